"""The types of this room: a collection as it was read, a checked one, and the quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from anmi.corpus.sentences import language_code
from anmi.errors import AnmiError
from anmi.ragged import Bools

SPLITS: Final = ("train", "dev", "test")
# Fewer dev queries with a label choose little, so pseudo-queries stand in.
FEWEST_DEV: Final = 20
# trec_eval keeps an array as long as the largest label, which takes gigabytes, and misreads labels
# above 2**53.
LARGEST_RELEVANCE: Final = 1_000_000
ENTITY_COLUMNS: Final = ("uri", "label", "types")
FACT_COLUMNS: Final = ("document_id", "head", "relation", "tail")
QUERY_COLUMNS: Final = ("query_id", "text", "metadata", "file", "line")
LABEL_COLUMNS: Final = ("query_id", "document_id", "relevance", "split", "file", "line")
# Of files with runs of TREC, which are systems by their names.
RUN_ENDINGS: Final = (".run", ".trec", ".txt")
RUN_COLUMNS: Final = ("query_id", "document_id", "score", "system")
QUARANTINE_COLUMNS: Final = ("kind", "id", "file", "line", "reason")
_NUMBERS: Final = {"line": "int64", "score": "float64"}
# What a column of a table may hold.
Column = Literal["query", "positive", "negative", "score", "id", "title", "text", "parent"]


def table(rows: Iterable[Sequence[Any]], *columns: str) -> pd.DataFrame:
    """Return rows as a table; lines and scores are numbers, all else is text."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype(
        {name: _NUMBERS.get(name, "str") for name in columns}
    )


def empty(*columns: str) -> pd.DataFrame:
    """Return a table without rows."""
    return table((), *columns)


def table_of(rows: Iterable[Sequence[Any]] = ()) -> pd.DataFrame:
    """Return rows of ``kind, id, file, line, reason`` as a table."""
    return table(rows, *QUARANTINE_COLUMNS)


class ReadingParams(BaseModel):
    """How a collection is read, checked and split; the stage of ingestion has more.

    Attributes
    ----------
    max_quarantine
        Share in [0, 1] of damaged documents, queries or qrels above which loading fails. A single
        damaged row never does, unless this is 0.
    dev_share, test_share
        Shares of the training queries that become a split where the source lacks it.
    language
        See :func:`anmi.corpus.sentences.language_code`; recognised from a sample of documents when
        ``None``.
    columns
        Names of the columns of tables where they are not the usual ones; an empty name takes none.
    relevant_from
        The first relevant grade: a label below it is judged and not relevant, whatever it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_quarantine: float = Field(0.01, ge=0, le=1)
    dev_share: float = Field(0.15, gt=0, lt=1)
    test_share: float = Field(0.2, gt=0, lt=1)
    language: str | None = None
    columns: dict[Column, str] = Field(default={})
    relevant_from: int = Field(1, ge=1)

    @field_validator("language")
    @classmethod
    def _is_known(cls, language: str | None) -> str | None:
        try:
            return language_code(language) if language else None
        except AnmiError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        """Fail before a file is read."""
        if self.dev_share + self.test_share >= 1:
            raise ValueError(
                f"dev_share {self.dev_share:g} and test_share {self.test_share:g} leave nothing to"
                " train on; lower them"
            )
        return self


class Options(ReadingParams):
    """The choices of :func:`anmi.corpus.sources.load_collection`.

    Attributes
    ----------
    seed
        Keys the hashes that cut splits and choose the subset.
    subset
        Cap on training queries, chosen by hash; dev, test and the corpus stay whole. ``None`` takes
        all.
    """

    seed: int = 42
    subset: int | None = None


@dataclass(frozen=True)
class RawCollection:
    """A collection as a reader found it: rows of one id are the same and texts are strings.

    Attributes
    ----------
    documents
        ``document_id, title, text, metadata, file, line``; metadata as a JSON string.
    queries
        ``query_id, text, metadata, file, line``.
    qrels
        ``query_id, document_id, relevance, split, file, line``; relevance as it was written. All
        rows are ``train`` where the source has no splits.
    graph
        ``head, relation, tail``.
    same_text_is_equivalent
        Whether a document of one query is relevant for every query with the same normalised text.
    notes
        What the user should know.
    entities, facts, runs
        As in :class:`Collection`; without facts, they come from the graph and from
        ``metadata.triples``.
    set_aside
        ``kind, id, file, line, reason``: what the reader itself put into quarantine.
    """

    documents: pd.DataFrame
    queries: pd.DataFrame = field(default_factory=partial(empty, *QUERY_COLUMNS))
    qrels: pd.DataFrame = field(default_factory=partial(empty, *LABEL_COLUMNS))
    graph: pd.DataFrame = field(default_factory=partial(empty, "head", "relation", "tail"))
    same_text_is_equivalent: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    entities: pd.DataFrame = field(default_factory=partial(empty, *ENTITY_COLUMNS))
    facts: pd.DataFrame = field(default_factory=partial(empty, *FACT_COLUMNS))
    runs: pd.DataFrame = field(default_factory=partial(empty, *RUN_COLUMNS))
    set_aside: pd.DataFrame = field(default_factory=partial(empty, *QUARANTINE_COLUMNS))


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
        ``document_id, title, text, metadata`` (metadata as a JSON string). A document's index is
        its row.
    queries
        ``query_id, text, split, metadata, same_as``: the document that is the query itself, or has
        its text; empty where there is none.
    qrels
        ``query_id, document_id, relevance, split``; only positive relevance, only known queries. Of
        dev and test queries also documents that the corpus lacks, which no search can find.
    equivalents
        ``query_id, document_id``: documents that are in truth relevant though no qrel says so. For
        scoring only.
    judged
        ``query_id, document_id``: labels below the first relevant grade, which are judged
        negatives.
    graph
        ``head, relation, tail``: facts about documents or entities; may be empty.
    duplicates
        ``document_id, duplicate_of``: documents with the normalised text of an earlier one.
    quarantine
        ``kind, id, file, line, reason``: what was set aside, and why.
    entities
        ``uri, label, types``, types as a JSON list; empty where the source names no entities.
    facts
        ``document_id, head, relation, tail``: what a document states, in the terms of the graph.
    runs
        ``query_id, document_id, score, system``: what other systems found, which evaluation
        measures as well.
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
    entities: pd.DataFrame = field(default_factory=partial(empty, *ENTITY_COLUMNS))
    facts: pd.DataFrame = field(default_factory=partial(empty, *FACT_COLUMNS))
    judged: pd.DataFrame = field(default_factory=partial(empty, "query_id", "document_id"))
    runs: pd.DataFrame = field(default_factory=partial(empty, *RUN_COLUMNS))
    forms: pa.LargeStringArray = field(default_factory=partial(pa.array, (), pa.large_string()))


def counts_by_reason(table: pd.DataFrame) -> dict[str, int]:
    """Return how many rows were set aside for each reason, whatever id the reason quotes.

    Examples
    --------
    >>> counts_by_reason(pd.DataFrame({"reason": ['as "a"', "empty", 'as "b"']}))
    {'as': 2, 'empty': 1}
    """
    reasons = table["reason"].str.replace(r' ".*"$', "", regex=True)
    return {str(reason): int(count) for reason, count in reasons.groupby(reasons).size().items()}


def check_share(
    damaged: pd.DataFrame,
    plural: str,
    total: int,
    share: float,
) -> None:
    """Fail where more than a share is damaged, and more than one row unless the share is 0.

    Raises
    ------
    AnmiError
        Naming the first damaged row.
    """
    if len(damaged) > (max(1.0, share * total) if share > 0 else 0.0):
        row: Any = damaged.iloc[0]
        raise AnmiError(
            f"{len(damaged)} of {total} {plural} are damaged, more than ingestion.max_quarantine"
            f' {share:.2%}; the first is {row["file"]} line {row["line"]}, "{row["id"]}":'
            f" {row['reason']}; correct the file or raise ingestion.max_quarantine"
        )


class Quarantine:
    """Collects the rows that are set aside; only damage counts against the threshold.

    What follows from something else that is listed already, or is set aside on purpose, is no
    damage.
    """

    def __init__(self) -> None:
        self._parts = [empty(*QUARANTINE_COLUMNS).assign(damage=False)]

    def set_aside(
        self,
        kind: str,
        rows: pd.DataFrame,
        bad: pd.Series | Bools,
        reason: str | pd.Series,
        *,
        damage: bool = False,
    ) -> pd.DataFrame:
        """Note the bad rows of the kind ``document``, ``query`` or ``qrel`` and return the others.

        The reason is one for all rows, or a series with one for each.
        """
        mask = np.asarray(bad, dtype=bool)
        if mask.any():
            bad_rows = rows[mask]
            ids = bad_rows["query_id" if kind == "qrel" else f"{kind}_id"]
            if kind == "qrel":
                ids = ids + " " + bad_rows["document_id"]
            self._parts.append(
                bad_rows[["file", "line"]].assign(
                    kind=kind,
                    id=ids,
                    reason=reason,
                    damage=damage,
                )
            )
        return rows[~mask]

    def check(self, kind: str, total: int, share: float) -> None:
        """Fail where more than ``share`` of a kind is damaged; see :func:`check_share`."""
        rows = pd.concat(self._parts)
        damaged = rows[(rows["kind"] == kind) & rows["damage"]]
        check_share(damaged, "queries" if kind == "query" else f"{kind}s", total, share)

    def table(self) -> pd.DataFrame:
        """Return ``kind, id, file, line, reason``; line 0 where the source has no lines."""
        return table_of(
            pd.concat(self._parts)[list(QUARANTINE_COLUMNS)].itertuples(index=False, name=None)
        )
