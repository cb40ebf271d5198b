"""What a collection is, in memory, and what of it was set aside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from anmi.errors import AnmiError

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


QUARANTINE_COLUMNS: Final = ("kind", "id", "file", "line", "reason")
_ID_COLUMN: Final = {"document": "document_id", "query": "query_id", "qrel": "query_id"}
_PLURAL: Final = {"document": "documents", "query": "queries", "qrel": "qrels"}


def counts_by_reason(table: pd.DataFrame) -> dict[str, int]:
    """Return how many rows were set aside for each reason; an id that ends one in quotes makes it no other.

    Examples
    --------
    >>> counts_by_reason(pd.DataFrame({"reason": ['as "a"', "empty", 'as "b"']}))
    {'as': 2, 'empty': 1}
    """
    reasons = table["reason"].str.replace(r' ".*"$', "", regex=True)
    return {str(reason): int(count) for reason, count in reasons.groupby(reasons).size().items()}


def table_of(rows: Iterable[tuple[str, str, str, int, str]] = ()) -> pd.DataFrame:
    """Return rows of ``kind, id, file, line, reason`` as a table."""
    return _typed(pd.DataFrame(list(rows), columns=list(QUARANTINE_COLUMNS)))


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({column: "int64" if column == "line" else "str" for column in QUARANTINE_COLUMNS})


def check_share(damaged: pd.DataFrame, what: str, total: int, share: float) -> None:
    """Fail where more than a share of ``total`` is damaged; a single damaged row never fails, unless the share is 0.

    Raises
    ------
    AnmiError
        Naming the first damaged row.
    """
    allowed = max(1.0, share * total) if share > 0 else 0.0
    if len(damaged) > allowed:
        first: Any = damaged.iloc[0]
        raise AnmiError(
            f"{len(damaged)} of {total} {what} are damaged, more than ingestion.max_quarantine {share:.2%}; the first "
            f'is {first["file"]} line {first["line"]}, "{first["id"]}": {first["reason"]}; correct the file or raise '
            "ingestion.max_quarantine"
        )


class Quarantine:
    """Collects rows that were set aside.

    Only damage counts against the threshold. What follows from something else that is listed already, or is set aside
    on purpose, does not.
    """

    def __init__(self) -> None:
        self._parts: list[pd.DataFrame] = []
        self._damaged: dict[str, list[pd.DataFrame]] = {}

    def add(self, kind: str, rows: pd.DataFrame, reason: str | pd.Series, *, damage: bool) -> None:
        """Note rows of the kind ``document``, ``query`` or ``qrel``, with their ``file`` and ``line``.

        The reason is one for all rows, or a series of theirs.
        """
        if rows.empty:
            return
        identifiers = rows[_ID_COLUMN[kind]]
        if kind == "qrel":
            identifiers = identifiers + " " + rows["document_id"]
        part = pd.DataFrame({"kind": kind, "id": identifiers, "file": rows["file"], "line": rows["line"]})
        part = part.assign(reason=reason)[list(QUARANTINE_COLUMNS)].reset_index(drop=True)
        self._parts.append(part)
        if damage:
            self._damaged.setdefault(kind, []).append(part)

    def set_aside(
        self, kind: str, rows: pd.DataFrame, bad: pd.Series | NDArray[np.bool_], reason: str, *, damage: bool
    ) -> pd.DataFrame:
        """Note the bad rows and return the others."""
        mask = np.asarray(bad, dtype=bool)
        self.add(kind, rows[mask], reason, damage=damage)
        return rows[~mask]

    def check(self, kind: str, total: int, share: float) -> None:
        """Fail where more than ``share`` of the rows of a kind are damaged; see :func:`check_share`."""
        check_share(pd.concat(self._damaged.get(kind, [table_of()])), _PLURAL[kind], total, share)

    def table(self) -> pd.DataFrame:
        """Return ``kind, id, file, line, reason``; line 0 where the source has no lines."""
        return _typed(pd.concat([table_of(), *self._parts], ignore_index=True))
