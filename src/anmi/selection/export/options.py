"""What an export may be told, and what it may look up besides the training rows."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from pydantic import Field

from anmi.selection.steps import Params


class ExportOptions(Params):
    """What goes into an export."""

    negatives: int | None = Field(
        None, ge=1, le=1000, description="Negatives of each training row, best first; all that it has when empty."
    )
    score: str | None = Field(
        None,
        min_length=1,
        description="Which judgment becomes the score or soft label, such as cross or p_relevant; hard labels of 1 and "
        "0 when empty, or no scores; n-tuple-scores then takes the first of cross, p_relevant and dense that is known "
        "for 95 % of the documents.",
    )
    prompt: str | None = Field(
        None, description="Put into every line as the prompt of its query; the trainer's own setting when empty."
    )
    by_source: bool = Field(
        False,
        description="Files of its own for each source of queries, as the BM25 notebook writes them. Off: a trainer "
        "reads all of them anyway.",
    )


@dataclass(frozen=True)
class Collection:
    """The collection that training rows were made of; some formats name its titles, types and language.

    Attributes
    ----------
    corpus
        ``document_id, title, text, metadata``.
    queries
        ``query_id, metadata``.
    name
        Such as ``beir:scifact``.
    language
        ISO 639-1 code.
    """

    corpus: pd.DataFrame
    queries: pd.DataFrame
    name: str
    language: str
