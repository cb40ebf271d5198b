"""What tests of all rooms share: where things are, and the project's command as a user types it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from tests.commands import Commands, environment

# Before a test imports a library that reads it; without it every load of a local model waits for
# the hub.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import anmi.environment  # noqa: F401

# How long an example takes says something of the machine and its load, and nothing of what is
# tested.
settings.register_profile(
    "anmi",
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("anmi")

ROOT = Path(__file__).parents[1]
Kedro = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with what takes longest, and only one of them with the run that several files look at."""
    if hasattr(config, "workerinput"):
        shared = {item.path for item in items if "whole_run" in getattr(item, "fixturenames", ())}
        items.sort(
            key=lambda i: (
                "e2e" not in i.path.parts,
                i.path.name != "test_run.py",
                i.path in shared,
            )
        )


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def made_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[Path], None]], Path]:
    """Fill a folder for all workers of this session; who comes later waits for it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with FileLock(root / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real collections; a test that needs it is skipped where there is none."""
    path = Path(os.environ.get("ANMI_DATA") or ROOT.parent / "shared" / "data")
    if not path.is_dir():
        pytest.skip(f"{path} does not exist; set ANMI_DATA to the folder of the collections")
    return path.resolve()


@pytest.fixture(scope="session")
def static_models() -> Path:
    """A folder of models that holds the distilled static encoder.

    Distilling takes over a minute, so a model made by an earlier run is taken, or one is kept in
    ``build``.
    """
    from anmi.retrieval.encoders import STATIC_DIMENSIONS, load_encoder
    from anmi.retrieval.model_folder import MINILM_SHA256

    name = f"static-{STATIC_DIMENSIONS}-{MINILM_SHA256[:12]}"
    kept = ROOT / "build" / "test-store" / "models"
    for models in (
        ROOT / "data" / "store" / "models",
        ROOT / "data" / "test" / "store" / "models",
        kept,
    ):
        if (models / name).is_dir():
            return models
    load_encoder("static", kept)
    return kept


@pytest.fixture(scope="session")
def new_store(static_models: Path) -> Callable[[Path], Path]:
    """Make a store without embeddings and judgments; only the static encoder is there already."""

    def make(path: Path) -> Path:
        for model in static_models.glob("static-*"):
            shutil.copytree(model, path / "models" / model.name)
        return path

    return make


@pytest.fixture(scope="session")
def word_encoder() -> Callable[..., Any]:
    """Make a static encoder with a random vector for each word, and one for all others."""

    def make(
        words: Sequence[str],
        dimension: int = 8,
        seed: int = 0,
        *,
        normalise: bool = True,
        **options: Any,
    ) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import Whitespace

        vocabulary = {word: number for number, word in enumerate(["[UNK]", *words])}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        weights = torch.randn(
            len(vocabulary), dimension, generator=torch.Generator().manual_seed(seed)
        )
        table = StaticEmbedding(tokenizer, embedding_weights=weights)
        modules = [table, Normalize()] if normalise else [table]
        return SentenceTransformer(modules=modules, device="cpu", **options)

    return make


@pytest.fixture(scope="session")
def network_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Make a network with random weights that knows some words: a BERT, a Qwen3 for ``lasttoken``."""

    def make(
        words: Sequence[str],
        *,
        include_prompt: bool = True,
        layers: int = 1,
        pooling: str = "mean",
        longest: int = 16,
        pad_token: str | None = "[PAD]",
        **options: Any,
    ) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling
        from transformers import BertConfig, BertTokenizerFast, Qwen3Config
        from transformers.models.auto import AutoModel

        base = tmp_path_factory.mktemp("network")
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
        sizes: dict[str, Any] = {
            "vocab_size": len(vocabulary),
            "hidden_size": 16,
            "num_hidden_layers": layers,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "max_position_embeddings": 2 * longest,
        }
        padding: dict[str, Any] = {"pad_token": pad_token, "eos_token": "[SEP]"}
        config: Any = BertConfig
        if pooling != "mean":
            # Or the first token would hardly see the others.
            sizes["initializer_range"] = 0.3
        if pooling == "lasttoken":
            sizes |= {"num_key_value_heads": 1, "head_dim": 8}
            padding["padding_side"] = "left"
            config = Qwen3Config
        torch.manual_seed(0)
        AutoModel.from_config(config(**sizes)).save_pretrained(base)
        numbers = {word: i for i, word in enumerate(vocabulary)}
        BertTokenizerFast(vocab=numbers, **padding).save_pretrained(base)
        modules = [
            Transformer(str(base), max_seq_length=longest),
            Pooling(16, pooling, include_prompt=include_prompt),
        ]
        return SentenceTransformer(modules=modules, device="cpu", **options)

    return make


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """What runs commands without the seconds that a start takes."""
    commands = Commands()
    yield commands
    commands.close()


@pytest.fixture(scope="session")
def kedro(commands: Commands) -> Kedro:
    """Run the command from the repository's root, with folders of its own.

    It is a fork of a process that has imported everything; the installed command itself is started
    where ``anew`` or variables of the environment are given, since some are read on import.
    """

    def run(
        *arguments: str,
        data_root: Path,
        store: Path,
        env: str | None = "test",
        timeout: float = 900,
        anew: bool = False,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        words = [*arguments, *(["--env", env] if env else [])]
        given = environment(ANMI_DATA_ROOT=str(data_root), ANMI_STORE=str(store), **variables)
        if not (anew or variables):
            return commands.run(words, ROOT, given, timeout)
        return subprocess.run(
            [str(Path(sys.executable).with_name("kedro")), *words],
            cwd=ROOT,
            env=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run
