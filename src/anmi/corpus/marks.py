"""Marks: what a person said of pairs of query and document, kept beside the artifacts and read by the next run.

A file per collection, to which lines are only added: the last mark of a pair stands, and what stood before it stays to
be seen. Marks count for queries of train and dev. Those of test queries never do: what is measured on them is to be
comparable with what was measured before, and with what others measure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Set
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from filelock import FileLock
from numpy.typing import NDArray

from anmi.corpus.quarantine import Quarantine
from anmi.corpus.types import Collection, empty
from anmi.errors import AnmiError
from anmi.files import aside, disk_errors
from anmi.fingerprint import hash_text

Relevance = Literal[0, 1]
MARK_COLUMNS: Final = ("query_id", "document_id", "relevance", "by", "at")
SUFFIX: Final = ".jsonl"
# A mark of another split is kept and without effect.
COUNTED: Final = ("train", "dev")
_LONGEST_NAME: Final = 60


@dataclass(frozen=True)
class Mark:
    """What one person said of one pair.

    Attributes
    ----------
    query_id, document_id
        The pair.
    relevance
        1: relevant after all. 0: not relevant. None takes back what was said before.
    by
        Who said it.
    at
        When, in UTC.
    """

    query_id: str
    document_id: str
    relevance: Relevance | None
    by: str = ""
    at: str = ""

    def now(self) -> Mark:
        """Return the mark as made in this second."""
        return replace(self, at=datetime.now(UTC).isoformat(timespec="seconds"))


def file_of(marks: str | None, collection: str) -> Path | None:
    """Return the file of a collection's marks, which need not be there; None where there can be none.

    Parameters
    ----------
    marks
        A folder with a file for each collection, or one file, ``*.jsonl``; None and addresses (a data root in a
        bucket) have none.
    collection
        As the parameter ``collection`` says it.

    Examples
    --------
    >>> file_of("data/marks", "beir:../shared/data/scifact").as_posix()
    'data/marks/beir-..-shared-data-scifact-dae5616e.jsonl'
    >>> file_of("mine.jsonl", "api_docs").as_posix(), file_of("s3://bucket/marks", "api_docs")
    ('mine.jsonl', None)
    """
    if marks is None or "://" in marks:
        return None
    if marks.endswith(SUFFIX):
        return Path(marks)
    plain = re.sub(r"[^\w.]+", "-", collection).strip("-")[-_LONGEST_NAME:]
    # Two collections may differ in characters that no file name has.
    return Path(marks) / f"{plain}-{hash_text(collection, size=4)}{SUFFIX}"


def files_of_marks(marks: str | None, collection: str) -> list[Path]:
    """Return the file of a collection's marks where it is there: part of what the collection is read from."""
    path = file_of(marks, collection)
    return [path] if path is not None and path.is_file() else []


def read_log(path: Path) -> list[Mark]:
    """Return all marks that were ever made, the oldest first; none where there is no file.

    Raises
    ------
    AnmiError
        A line is no mark; it is named.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return [_mark(line, path, number) for number, line in enumerate(lines, start=1) if line.strip()]


def _mark(line: str, path: Path, number: int) -> Mark:
    try:
        found = json.loads(line)
        by, at = (str(found.get(name, "")) for name in ("by", "at"))
        mark = Mark(found["query_id"], found["document_id"], found["relevance"], by, at)
        texts = isinstance(mark.query_id, str) and isinstance(mark.document_id, str)
        if texts and (mark.relevance is None or (type(mark.relevance) is int and mark.relevance in (0, 1))):
            return mark
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise AnmiError(
        f"{path} line {number} is no mark: an object with query_id, document_id and relevance (0, 1 or null) was "
        "expected; correct the line or remove it"
    )


def standing(log: Iterable[Mark]) -> pd.DataFrame:
    """Return the last mark of each pair that was not taken back, in the order of the pairs' ids.

    Examples
    --------
    >>> standing([Mark("q", "d", 1), Mark("q", "e", 0), Mark("q", "d", None)]).document_id.tolist()
    ['e']
    """
    last = {(mark.query_id, mark.document_id): mark for mark in log}
    rows = [asdict(last[pair]) for pair in sorted(last) if last[pair].relevance is not None]
    return pd.DataFrame(rows, columns=MARK_COLUMNS) if rows else none_made()


def none_made() -> pd.DataFrame:
    """Return no marks: ``query_id, document_id, relevance, by, at``."""
    return empty("query_id", "document_id", "by", "at").assign(relevance=pd.Series(dtype="int64"))[[*MARK_COLUMNS]]


def add(path: Path, mark: Mark) -> Mark:
    """Add a mark to a file and return it with its time.

    The file is written aside and renamed, by one process at a time, so that none is lost and no half is seen.
    """
    made = mark.now()
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            before = path.read_text(encoding="utf-8") if path.is_file() else ""
            # A last line without an end, as an editor may leave it, is not to be joined with the next.
            before += "\n" if before and not before.endswith("\n") else ""
            with aside(path) as file:
                file.write_text(before + json.dumps(asdict(made)) + "\n", encoding="utf-8")
    return made


def with_marks(found: Collection, marks: pd.DataFrame) -> tuple[Collection, pd.DataFrame]:
    """Return a collection with what was marked as labels, and the marks that count.

    A pair marked as relevant gets a label of 1, unless it has one. A label of a pair marked as not relevant goes, and
    so does a query that has no other. Marks of test queries, and of what the collection does not have, do not count.

    Parameters
    ----------
    found
        As it was read and split.
    marks
        From :func:`standing`.

    Returns
    -------
    collection, marks
        The collection, and those of the marks that count.
    """
    if marks.empty:
        return found, marks
    split = marks["query_id"].map(dict(zip(found.queries["query_id"], found.queries["split"], strict=True)))
    known = split.notna() & marks["document_id"].isin(found.corpus["document_id"])
    counts = known & split.isin(COUNTED)
    counted = marks[counts].reset_index(drop=True)
    relevant = counted["relevance"] == 1
    refuted = _pairs(counted[~relevant])
    kept = found.qrels[~_among(found.qrels, refuted)]
    new = counted[relevant.to_numpy() & ~_among(counted, _pairs(kept))]
    labels = new[["query_id", "document_id", "relevance"]].assign(split=split[counts].to_numpy()[new.index])
    qrels = pd.concat([kept, labels.astype(kept.dtypes.to_dict())], ignore_index=True)

    without = ~found.queries["query_id"].isin(qrels["query_id"]) & found.queries["query_id"].isin(counted["query_id"])
    aside_ = Quarantine()
    rows = found.queries.assign(file="", line=0)
    aside_.add("query", rows[without], "its only positive was marked as not relevant", damage=False)
    # What a person said goes before what follows from texts or facts.
    equivalents = found.equivalents[~_among(found.equivalents, _pairs(counted))]
    return replace(
        found,
        queries=found.queries[~without].reset_index(drop=True),
        qrels=qrels,
        equivalents=equivalents.reset_index(drop=True),
        quarantine=pd.concat([found.quarantine, aside_.table()], ignore_index=True),
        notes={**found.notes, "marks": _told(int(relevant.sum()), len(counted), int((~known).sum()), len(marks))},
    ), counted


def _told(relevant: int, counted: int, unknown: int, total: int) -> str:
    text = f"{relevant} pairs marked as relevant, {counted - relevant} as not relevant"
    left = [(unknown, "of queries or documents that are not there"), (total - counted - unknown, "of test queries")]
    told = ", ".join(f"{count} {what}" for count, what in left if count)
    return f"{text}; without effect: {told}" if told else text


def _pairs(table: pd.DataFrame) -> set[tuple[Any, Any]]:
    return set(zip(table["query_id"], table["document_id"], strict=True))


def _among(table: pd.DataFrame, pairs: Set[tuple[Any, Any]]) -> NDArray[np.bool_]:
    rows = zip(table["query_id"], table["document_id"], strict=True)
    return np.fromiter((pair in pairs for pair in rows), bool, len(table))
