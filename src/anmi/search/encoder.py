"""The encoder of a search: a table of token vectors is read without PyTorch, whose start takes longer than a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

Encode = Callable[[Sequence[str]], Any]


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
    from anmi.retrieval.prompts import prompts_of
    from anmi.retrieval.sparse import term_table
    from anmi.retrieval.token_table import token_table

    check_folder(folder)
    if (table := token_table(folder)) is not None:
        prompt = prompts_of(table)["query"]
        return lambda texts: table.encode(texts, prompt)
    if (terms := term_table(folder)) is not None:
        return terms
    from anmi.retrieval.encoders import encode, load_encoder

    model = load_encoder(str(folder), folder.parent, max_length)
    return lambda texts: encode(model, texts, precision=precision, batch_size=batch_size, role="query")
