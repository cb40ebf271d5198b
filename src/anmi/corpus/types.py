"""What a collection is, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd
import pyarrow as pa

SPLITS: Final = ("train", "dev", "test")
# trec_eval keeps an array as long as the largest label, which takes gigabytes, and misreads labels above 2**53.
LARGEST_RELEVANCE: Final = 1_000_000
ENTITY_COLUMNS: Final = ("uri", "label", "types", "description")
FACT_COLUMNS: Final = ("document_id", "head", "relation", "tail")
# Of files with runs of TREC, which are systems by their names.
RUN_ENDINGS: Final = (".run", ".trec", ".txt")
RUN_COLUMNS: Final = ("query_id", "document_id", "score", "system")


@dataclass(frozen=True)
class Collection:
    """A text collection with relevance labels, checked and in one schema.

    Attributes
    ----------
    name
        How the collection was asked for, for example ``beir:../shared/data/scifact``.
    language
        ISO 639-1 code of the documents.
    corpus
        ``document_id, title, text, metadata`` (metadata as a JSON string). A document's index is its row.
    queries
        ``query_id, text, split, metadata, same_as``: the document that is the query itself, or has its text; empty
        where there is none; and ``absent``, where labels of dev or test name documents that the corpus lacks: their
        relevance by id as JSON, else empty. They count in what recall and nDCG are measured against.
    qrels
        ``query_id, document_id, relevance, split``; only positive relevance, only known ids.
    equivalents
        ``query_id, document_id``: documents that are in truth relevant though no qrel says so. For scoring only.
    judged
        ``query_id, document_id``: labels of 0, which are judged negatives.
    graph
        ``head, relation, tail``: facts about documents or entities; may be empty.
    duplicates
        ``document_id, duplicate_of, kind`` with kind ``exact`` or ``normalised``.
    quarantine
        ``kind, id, file, line, reason``: what was set aside, and why.
    entities
        ``uri, label, types, description``, types as a JSON list; empty where the source names no entities.
    facts
        ``document_id, head, relation, tail``: what a document states, in the terms of the graph.
    runs
        ``query_id, document_id, score, system``: what other systems found, which evaluation measures as well.
    forms
        Normalised texts of the documents as an Arrow array, by which duplicates were found.
    """

    name: str
    language: str
    corpus: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame
    equivalents: pd.DataFrame
    graph: pd.DataFrame
    duplicates: pd.DataFrame
    quarantine: pd.DataFrame
    notes: dict[str, Any] = field(default_factory=dict)
    entities: pd.DataFrame = field(default_factory=lambda: empty(*ENTITY_COLUMNS))
    facts: pd.DataFrame = field(default_factory=lambda: empty(*FACT_COLUMNS))
    judged: pd.DataFrame = field(default_factory=lambda: empty("query_id", "document_id"))
    runs: pd.DataFrame = field(default_factory=lambda: empty(*RUN_COLUMNS).astype({"score": float}))
    forms: pa.LargeStringArray = field(default_factory=lambda: pa.array([], pa.large_string()))


def empty(*columns: str) -> pd.DataFrame:
    """Return an empty table of string columns."""
    return pd.DataFrame({column: pd.Series(dtype="str") for column in columns})
