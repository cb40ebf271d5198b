"""Folders of models are data: what names code, or is pickled, is refused in one sentence before it is looked into."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anmi.errors import AnmiError
from anmi.files import measured
from anmi.fingerprint import files_in
from anmi.judging.cross_encoder import open_cross_encoder
from anmi.retrieval.encoders import fingerprint, load_encoder
from anmi.retrieval.model_folder import check_folder, checked_model, minilm_folder

OWN = "sentence_transformers.sentence_transformer.modules"


class Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def saved(word_encoder: Callable[..., Any], tmp_path: Path) -> Path:
    """A small model as sentence-transformers saves it."""
    folder = tmp_path / "model"
    word_encoder(["a", "b"]).save(str(folder), create_model_card=False)
    return folder


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_text(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def own_code(folder: Path, mark: Path) -> None:
    """A module of the folder's own, which leaves a mark as soon as it is imported."""
    (folder / "modeling_own.py").write_text(
        f"import os\nos.mkdir({str(mark)!r})\nclass Own: pass\n"
    )
    module("modeling_own.Own")(folder, mark)


def module(kind: str, place: Any = "") -> Callable[[Path, Path], None]:
    return lambda folder, _: write(
        folder / "modules.json", [{"idx": 0, "name": "0", "path": place, "type": kind}]
    )


def setting(file: str, **values: Any) -> Callable[[Path, Path], None]:
    return lambda folder, _: write(folder / file, values)


def pickled_weights(folder: Path, mark: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(mark)))


def pickled_part(folder: Path, mark: Path) -> None:
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(mark)))


def pickled_behind_a_link(folder: Path, mark: Path) -> None:
    payload = folder.parent / "payload"
    payload.mkdir(exist_ok=True)
    (payload / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(mark)))
    (payload / "itself").symlink_to(payload)
    (folder / "2_Dense").symlink_to("../payload")


def disguised_weights(folder: Path, mark: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Payload(mark)))


ST, NO_LIST, NO_CLASS = (
    "sentence_transformers",
    "no list of modules",
    "none of sentence-transformers",
)
TEMPLATE = [{"name": "../../owned", "template": "x"}]
FUNCTION = {"activation_fn": "torch.distributed.run.main"}


def modules(content: Any) -> Callable[[Path, Path], None]:
    return lambda folder, _: write(folder / "modules.json", content)


def text(file: str, content: str) -> Callable[[Path, Path], None]:
    return lambda folder, _: write_text(folder / file, content)


HOSTILE: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "code of its own": (own_code, 'names the class "modeling_own.Own"'),
    "a function of the system": (module("os.system"), 'names the class "os.system"'),
    "another package": (module("subprocess.Popen"), NO_CLASS),
    "a name that begins alike": (module(f"{ST}_evil.Own"), NO_CLASS),
    "a name with more in it": (module(f"{OWN}.Pooling;os"), NO_CLASS),
    "a path that leads out": (module(f"{OWN}.Normalize", "../../etc"), "leads out of the folder"),
    "an absolute path": (module(f"{OWN}.Normalize", "/etc"), "leads out of the folder"),
    "no list of modules": (setting("modules.json", type="os.system"), NO_LIST),
    "a list of lists": (modules([[{"type": "os.system"}]]), NO_LIST),
    "a type that is a number": (modules([{"type": 5}]), NO_LIST),
    "a path that is a list": (module(f"{OWN}.Normalize", ["a"]), "a path that is a text"),
    "a function of the library": (module(f"{ST}.util.http_get"), NO_CLASS),
    "a module that is none": (module(f"{ST}.util.Nothing"), "could not be loaded"),
    "deep JSON": (text("modules.json", "[" * 9999), "is nested too deep"),
    "settings that are a number": (text("config_sentence_transformers.json", "5"), "could not"),
    "auto_map": (setting("config.json", auto_map={"AutoModel": "own.Own"}), '"auto_map"'),
    "auto_map of a tokenizer": (
        setting("tokenizer_config.json", auto_map={"AutoTokenizer": ["a.B", None]}),
        '"auto_map"',
    ),
    "auto_map inside": (
        setting("config.json", text_config={"auto_map": {"AutoConfig": "o/r--m.C"}}),
        '"auto_map"',
    ),
    "kernels of the hub": (
        setting("config.json", _attn_implementation_internal="evil/kernel"),
        "would be imported",
    ),
    "attention of the hub": (
        setting("config.json", attn_implementation="evil/kernel"),
        "would be fetched",
    ),
    "an adapter": (
        setting("adapter_config.json", auto_mapping={"parent_library": "evil"}),
        "would be imported",
    ),
    "a template": (setting("tokenizer_config.json", chat_template=TEMPLATE), '"../../owned"'),
    "several templates": (
        setting("tokenizer_config.json", chat_template={"/owned": "x"}),
        'named "/owned"',
    ),
    "a switch": (
        setting("sentence_bert_config.json", model_args={"trust_remote_code": True}),
        "trust_remote_code",
    ),
    "an activation": (setting("2_Dense/config.json", activation_function="os.abort"), '"os.abort"'),
    "a function of torch": (setting("config.json", sentence_transformers=FUNCTION), "run.main"),
    "a route": (setting("router_config.json", types={"query": "os.system"}), '"os.system"'),
    "a tokenizer": (
        setting("wordembedding_config.json", tokenizer_class="os.system"),
        'the class "os.system"',
    ),
    "no JSON": (text("config.json", "{"), "is not valid JSON"),
    "pickled weights": (pickled_weights, "pytorch_model.bin and not as safetensors"),
    "pickled weights of a part": (pickled_part, "2_Dense/pytorch_model.bin and not as safetensors"),
    "pickled weights behind a link": (pickled_behind_a_link, "2_Dense/pytorch_model.bin and not"),
    "a pickle called safetensors": (disguised_weights, "is not in the format safetensors"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_model_is_refused_in_one_sentence(kind: str, saved: Path, tmp_path: Path) -> None:
    make, told = HOSTILE[kind]
    mark = tmp_path / "owned"
    make(saved, mark)
    for opened in (
        lambda: load_encoder(str(saved), tmp_path),
        lambda: open_cross_encoder(str(saved), 64),
    ):
        with pytest.raises(AnmiError) as caught:
            opened()
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not mark.exists(), "its code was run"


def test_models_of_this_project_and_usual_ones_pass(saved: Path, tmp_path: Path) -> None:
    check_folder(minilm_folder())
    assert checked_model(str(saved)) == saved
    usual = shutil.copytree(minilm_folder(), tmp_path / "usual")
    for folder in ("", "1_Pooling"):
        # Left beside safetensors by many who save both; never read then.
        (usual / folder).mkdir(exist_ok=True)
    (usual / "pytorch_model.bin").write_bytes(b"never read")
    (usual / "training_args.bin").write_bytes(b"never read")
    activation = "torch.nn.modules.activation.Tanh"
    write(usual / "2_Dense" / "config.json", {"activation_function": activation})
    write(usual / "router_config.json", {"types": {"query_0": f"{OWN}.StaticEmbedding"}})
    settings = {"max_seq_length": 256, "model_args": {"trust_remote_code": False}}
    write(usual / "sentence_bert_config.json", settings)
    check_folder(usual)


def test_a_cache_of_links_passes_and_what_lies_behind_a_link_counts(
    saved: Path, tmp_path: Path
) -> None:
    # As the hub's client keeps models: snapshots of links to blobs.
    (tmp_path / "blobs").mkdir()
    cached = tmp_path / "snapshots" / "revision"
    for number, path in enumerate(files_in(saved)):
        place = cached / path.relative_to(saved)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "blobs" / str(number))
        place.symlink_to(tmp_path / "blobs" / str(number))
    (cached / "back").symlink_to(cached)
    assert checked_model(str(cached)) == cached
    prints = [fingerprint(load_encoder(str(folder), tmp_path)) for folder in (cached, saved)]
    assert prints[0] == prints[1]
    assert measured(cached)["digest"] == measured(saved)["digest"]
    (tmp_path / "linked").symlink_to(saved)
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "model").symlink_to(tmp_path / "linked")
    before = measured(tmp_path / "outer")
    (saved / "modules.json").write_text((saved / "modules.json").read_text() + " ")
    assert before["files"] == len(files_in(saved))
    assert measured(tmp_path / "outer")["digest"] != before["digest"]


def test_nothing_but_data_is_fetched_from_the_hub(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    asked: dict[str, Any] = {}

    def fetch(name: str, **options: Any) -> str:
        asked.update(options)
        module("evil.Own")(saved, saved)
        return str(saved)

    # No hub can be reached here: its client is asked for a folder, and what it would fetch is told
    # by its own filter.
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(AnmiError, match=r'modules\.json names the class "evil\.Own"'):
        checked_model("evil/model")
    data = [
        "config.json",
        "1_Pooling/config.json",
        "model.safetensors",
        "vocab.txt",
        "spiece.model",
    ]
    code = ["pytorch_model.bin", "modeling.py", "training_args.bin", "rng.pth"]
    code += ["onnx/model.onnx", "openvino/openvino_model.bin"]
    assert list(filter_repo_objects([*data, *code], **asked)) == data
