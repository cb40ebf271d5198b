"""The encoder of a search: a table of token vectors is read without PyTorch, whose start takes longer than a search."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Encode = Callable[[Sequence[str]], Any]
_TABLE: Final = "StaticEmbedding"
_WEIGHTS: Final = "embedding.weight"
_LEAST: Final = 1e-12


class TokenTable:
    """A static encoder of sentence-transformers: the mean of the vectors of a text's tokens, at length 1.

    Parameters
    ----------
    tokenizer
        Of the library tokenizers.
    table
        float32 [V, D].
    prompt
        Put before each text.
    """

    def __init__(self, tokenizer: Any, table: NDArray[np.float32], prompt: str) -> None:
        self._tokenizer = tokenizer
        self._table = table
        self._prompt = prompt

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, float32 [T, D]; 0 for a text without a known token."""
        found = self._tokenizer.encode_batch([self._prompt + text for text in texts], add_special_tokens=False)
        vectors = np.zeros((len(found), self._table.shape[1]), np.float32)
        for row, encoding in zip(vectors, found, strict=True):
            if encoding.ids:
                row[:] = self._table[encoding.ids].mean(axis=0)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST)


def token_table(folder: Path) -> TokenTable | None:
    """Read the folder of a sentence-transformers model as a table of token vectors; None where it is anything else."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        settings = json.loads((folder / "config_sentence_transformers.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds not in ([_TABLE], [_TABLE, "Normalize"]) or settings.get("truncate_dim"):
        return None
    from safetensors import safe_open
    from tokenizers import Tokenizer

    from anmi.retrieval.prompts import prompts_of

    place = folder / modules[0]["path"]
    with safe_open(place / "model.safetensors", "numpy") as file:
        if list(file.keys()) != [_WEIGHTS]:
            return None
        table = file.get_tensor(_WEIGHTS)
    if table.dtype != np.float32:
        return None
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    model: Any = SimpleNamespace(prompts=settings.get("prompts"))
    return TokenTable(tokenizer, table, prompts_of(model)["query"])


def open_encoder(
    folder: Path, max_length: int | None, precision: Literal["auto", "float32", "bfloat16"], batch_size: int = 64
) -> Encode:
    """Return a function from queries to unit vectors, with the model's own prompt; for a sparse retriever to terms.

    Parameters
    ----------
    folder
        A sentence-transformers model.
    max_length, precision, batch_size
        As in :func:`anmi.retrieval.encoders.load_encoder` and :func:`anmi.retrieval.encoders.encode`.

    Raises
    ------
    AnmiError
        The folder holds more than data, or no such model.
    """
    from anmi.retrieval.model_folder import check_folder
    from anmi.retrieval.sparse import term_table

    check_folder(folder)
    if (table := token_table(folder) or term_table(folder)) is not None:
        return table
    from anmi.retrieval.encoders import encode, load_encoder

    model = load_encoder(str(folder), folder.parent, max_length)
    return lambda texts: encode(model, texts, precision=precision, batch_size=batch_size, role="query")
