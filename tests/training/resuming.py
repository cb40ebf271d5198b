"""Small trainings, and how they are stopped in the middle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dropout,
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
)
from tests.mined import mined
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from anmi.training.loop import CheckpointPlan
from anmi.training.options import TrainingOptions
from anmi.training.trainer import TrainingResult, train

ROWS, EPOCHS, BATCH = 22, 3, 4
STATIC = {
    "learning_rate": 0.05,
    "temperature": "learnable",
    "curriculum": {"learning_progress": {"window": "rank", "window_steps": 2}},
}
# Recomputed in passes, with what its curriculum observes: losses, gradients and the dev metric.
BERT = {
    "learning_rate": 1e-3,
    "temperature": "adaptive",
    "tokens_per_pass": 20,
    "precision": "float32",
    "curriculum": {"learning_progress": {"window": "rank", "window_steps": 5}},
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
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=62, intermediate_size=32, **size)).save_pretrained(folder)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer(), **special).save_pretrained(folder)
    network = Transformer(str(folder))
    pooling = Pooling(network.get_embedding_dimension())
    return SentenceTransformer(modules=[network, pooling], device="cpu")


def table(**changes: Any) -> pd.DataFrame:
    """Every query has one positive and six negatives, of which a step takes two."""
    documents = [f"w{i + 30} w{i + 8}" for i in range(ROWS)]
    rows = mined([f"w{i} w{i + 1}" for i in range(ROWS)], documents, 6)
    return rows.assign(**changes)


def fit(
    encoder: SentenceTransformer,
    plan: CheckpointPlan | None,
    evaluate_dev: Callable[[Any], float] | None = None,
    rows: pd.DataFrame | None = None,
    seed: int = 1,
    **changes: Any,
) -> TrainingResult:
    # A checkpoint after every step.
    usual = {"epochs": EPOCHS, "batch_size": BATCH, "negatives": 2, "checkpoint_minutes": 1e-9}
    return train(
        table() if rows is None else rows,
        encoder=encoder,
        options=TrainingOptions(**usual | changes),
        output=None,
        evaluate_dev=evaluate_dev,
        seed=seed,
        checkpoints=plan,
    )


def nearness(encoder: SentenceTransformer) -> Callable[[SentenceTransformer], float]:
    """A metric that only falls from what it was at the start."""
    start = encoder.encode("w1 w2", normalize_embeddings=True)
    return lambda model: float(start @ model.encode("w1 w2", normalize_embeddings=True))


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def killed_static(folder: Path, forward: int) -> None:
    """Stop in the middle of a step, in the ``forward``-th pass through the encoder, of which a step has two."""
    encoder = static()
    stop_at(encoder[1], forward)
    with pytest.raises(Killed):
        fit(encoder, CheckpointPlan(folder), **STATIC)


def stop_at(module: Any, forward: int) -> None:
    passes = [0]

    def count(*_: Any) -> None:
        passes[0] += 1
        if passes[0] == forward:
            raise Killed

    module.register_forward_hook(count)
