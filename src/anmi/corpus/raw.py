"""What a reader hands over before it is checked, and the choices every reader may be given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from anmi.corpus.quarantine import table_of
from anmi.corpus.types import ENTITY_COLUMNS, FACT_COLUMNS, empty

MAX_DOCUMENT_CHARACTERS: Final = 1_000_000


@dataclass(frozen=True)
class FieldNames:
    """What the fields of a row are called; ``None`` looks for the usual names.

    Attributes
    ----------
    id, title, text
        Of the columns of a table, or the keys of a JSON object.
    """

    id: str | None = None
    title: str | None = None
    text: str | None = None


USUAL_FIELDS: Final = FieldNames()


@dataclass(frozen=True)
class Options:
    """The choices of ``load_collection``; see there for their meaning."""

    seed: int = 42
    subset: int | None = None
    max_quarantine: float = 0.01
    dev_share: float = 0.15
    test_share: float = 0.2
    language: str | None = None
    fields: FieldNames = USUAL_FIELDS


@dataclass(frozen=True)
class RawCollection:
    """A collection as it was read: ids are unique and texts are strings, nothing else is promised.

    Attributes
    ----------
    documents
        ``document_id, title, text, metadata, file, line``; metadata as a JSON string.
    queries
        ``query_id, text, metadata, file, line``.
    qrels
        ``query_id, document_id, relevance, split, file, line``; relevance as it was written. All rows are ``train``
        where the source knows no splits.
    graph
        ``head, relation, tail``.
    same_text_is_equivalent
        Whether queries with the same normalised text have each other's documents as relevant ones.
    language
        ISO 639-1 code where the source names it.
    notes
        What the user is to know.
    entities
        ``uri, label, types, description``, types as a JSON list.
    facts
        ``document_id, head, relation, tail``: what a document states, in the terms of the graph; where there are none,
        they are gathered from the graph and from ``metadata.triples``.
    set_aside
        ``kind, id, file, line, reason``: what the reader itself put into quarantine.
    """

    documents: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame
    graph: pd.DataFrame
    same_text_is_equivalent: bool = False
    language: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    entities: pd.DataFrame = field(default_factory=lambda: empty(*ENTITY_COLUMNS))
    facts: pd.DataFrame = field(default_factory=lambda: empty(*FACT_COLUMNS))
    set_aside: pd.DataFrame = field(default_factory=table_of)


def no_queries() -> pd.DataFrame:
    """Return the queries of a collection that has none: ``query_id, text, metadata, file, line``."""
    return empty("query_id", "text", "metadata", "file").assign(line=pd.Series(dtype="int64"))


def no_labels() -> pd.DataFrame:
    """Return the labels of a collection without any: ``query_id, document_id, relevance, split, file, line``."""
    return empty("query_id", "document_id", "relevance", "split", "file").assign(line=pd.Series(dtype="int64"))
