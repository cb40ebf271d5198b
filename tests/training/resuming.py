"""Trainings that fail; as a script, ``resuming.py FOLDER``, two that are killed and one that lacks memory."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dropout, Normalize, Pooling, StaticEmbedding, Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from anmi.training.loop import CheckpointPlan
from anmi.training.options import TrainingOptions
from anmi.training.trainer import TrainingResult, train

ROWS, EPOCHS, BATCH = 22, 3, 4
STEPS_PER_EPOCH = 6
STATIC = {
    "learning_rate": 0.05,
    "curriculum": {"learning_progress": {"window": "rank", "window_steps": 2}},
    "temperature": "learnable",
}
# Recomputed in passes, with what its curriculum observes: losses, gradients and the dev metric.
BERT = {
    "learning_rate": 1e-3,
    "curriculum": {"learning_progress": {"window": "rank", "window_steps": 5}},
    "temperature": "adaptive",
    "texts_per_pass": 5,
    "precision": "float32",
}


def tokenizer() -> Tokenizer:
    words = ["[PAD]", "[UNK]", *(f"w{i}" for i in range(60))]
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    return made


def static(dimensions: int = 8) -> SentenceTransformer:
    weights = torch.randn(62, dimensions, generator=torch.Generator().manual_seed(0))
    modules = [StaticEmbedding(tokenizer(), embedding_weights=weights), Dropout(0.2), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu")


def bert(folder: Path) -> SentenceTransformer:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=62, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    BertModel(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer(), pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    network = Transformer(str(folder))
    return SentenceTransformer(modules=[network, Pooling(network.get_embedding_dimension())], device="cpu")


def table(**changes: Any) -> pd.DataFrame:
    """Every query has one positive and six negatives, of which a step takes two."""

    def document(i: int) -> str:
        return f"w{i % ROWS + 30} w{i % ROWS + 8}"

    return pd.DataFrame(
        [
            {
                "query_id": f"q{i}",
                "query": f"w{i} w{i + 1}",
                "positive_id": f"d{i}",
                "positive": document(i),
                "negative_ids": [f"d{(i + j) % ROWS}" for j in range(1, 7)],
                "negatives": [document(i + j) for j in range(1, 7)],
                "weights": [1.0] * 6,
                "query_weight": 1.0,
                "positive_ids": [f"d{i}"],
                **changes,
            }
            for i in range(ROWS)
        ]
    )


def fit(
    encoder: SentenceTransformer,
    plan: CheckpointPlan | None,
    evaluate_dev: Callable[[Any], float] | None = None,
    rows: pd.DataFrame | None = None,
    seed: int = 1,
    **changes: Any,
) -> TrainingResult:
    # A checkpoint after every step.
    options = {"epochs": EPOCHS, "batch_size": BATCH, "negatives": 2, "checkpoint_minutes": 1e-9, **changes}
    return train(
        table() if rows is None else rows, encoder=encoder, options=TrainingOptions(**options), output=None,
        evaluate_dev=evaluate_dev, seed=seed, checkpoints=plan,
    )  # fmt: skip


def nearness(encoder: SentenceTransformer) -> Callable[[SentenceTransformer], float]:
    """A metric that only falls, so that the best weights are those of the start and have to outlive the kill."""
    start = encoder.encode("w1 w2", normalize_embeddings=True, show_progress_bar=False)
    return lambda model: float(start @ model.encode("w1 w2", normalize_embeddings=True, show_progress_bar=False))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_static(folder: Path, forward: int) -> None:
    """Killed in the middle of a step, in the ``forward``-th pass through the encoder."""
    encoder, passes = static(), [0]

    def count(*_: Any) -> None:
        passes[0] += 1
        if passes[0] == forward:
            die()

    encoder[1].register_forward_hook(count)
    fit(encoder, CheckpointPlan(folder / "static"), **STATIC)


def killed_bert(folder: Path) -> None:
    """Killed while the second epoch is measured, so its dev metric is lost with it."""

    encoder = bert(folder / "model")
    measure, calls = nearness(encoder), [0]

    def evaluate(model: SentenceTransformer) -> float:
        calls[0] += 1
        if calls[0] == 3:
            die()
        return measure(model)

    fit(encoder, CheckpointPlan(folder / "bert"), evaluate, **BERT)


def starved(folder: Path) -> None:
    """A batch that does not fit into the memory that is left."""
    import resource

    from anmi.errors import AnmiError

    encoder = static(20_000)
    rows = pd.concat([table(query=f"w{i} w{j}") for i in range(5) for j in range(6)])
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 120_000_000, used + 120_000_000))
    try:
        fit(encoder, CheckpointPlan(folder / "starved"), rows=rows, batch_size=600)
    except AnmiError as error:
        (folder / "starved.txt").write_text(str(error))


def main(folder: Path) -> None:
    """Run each in a fork made before anything was computed: importing the libraries once is most of the time."""
    torch.set_num_threads(1)
    for scenario in (lambda: killed_static(folder, 13), lambda: killed_bert(folder), lambda: starved(folder)):
        child = os.fork()
        if child == 0:
            try:
                scenario()
            except BaseException:
                traceback.print_exc()
                os._exit(3)
            os._exit(0)
        # Flushed, or a child that flushes what it inherited would say it again.
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
