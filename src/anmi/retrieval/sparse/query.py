"""Queries of a sparse retriever: a table from tokens to weights, read without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from anmi.errors import AnmiError

_TABLE: Final = "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding"
_WEIGHTS: Final = "weight"


class TermTable:
    """Looks up the weight of every token of a text; nothing is computed.

    Parameters
    ----------
    tokenizer
        Of the library tokenizers.
    weights
        Of its tokens, float32 [V]: 0 for special ones.
    """

    def __init__(self, tokenizer: Any, weights: NDArray[np.float32]) -> None:
        self.tokenizer = tokenizer
        self.weights = weights

    def __call__(self, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
        """Return float32 [T, V]; a token that stands in the text twice counts once."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        rows = [np.unique(np.asarray(encoding.ids, np.int64)) for encoding in encoded]
        tokens = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        shape = len(rows), len(self.weights)
        found = scipy.sparse.csr_matrix((self.weights[tokens], tokens, starts), shape=shape, dtype=np.float32)
        found.eliminate_zeros()
        return found

    def by_token(self) -> dict[str, float]:
        """Return the weight of every token by its name, those of weight 0 left out."""
        return {
            self.tokenizer.id_to_token(int(token)): round(float(self.weights[token]), 5)
            for token in np.flatnonzero(self.weights)
        }


def term_table(folder: Path) -> TermTable | None:
    """Read the queries' side of the folder of an inference-free sparse retriever; None where it is anything else."""
    try:
        types = json.loads((folder / "router_config.json").read_text(encoding="utf-8"))
        place = folder / next(name for name in types["structure"]["query"] if types["types"][name] == _TABLE)
    except (FileNotFoundError, KeyError, StopIteration):
        return None
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    weights = load_file(place / "model.safetensors")[_WEIGHTS].astype(np.float32)
    if tokenizer.get_vocab_size() != len(weights):
        raise AnmiError(
            f"{place}: the tokenizer has {tokenizer.get_vocab_size():,} tokens and the table {len(weights):,} weights; "
            "take both from one model, or train it again"
        )
    return TermTable(tokenizer, weights)
