"""Marks: what a person said of pairs of query and document, kept beside the artifacts and read by the next run.

A file per collection, to which lines are only added: the last mark of a pair stands, and what stood before it stays to
be seen. Marks count for queries of train and dev, and for questions that people asked on the page, which become queries
by them. Those of other test queries never do: what is measured on them is to be comparable with what was measured
before, and with what others measure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Set
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from filelock import FileLock
from numpy.typing import NDArray

from anmi.corpus.duplicates import find_queries, normalised
from anmi.corpus.passages import spread
from anmi.corpus.splits import FEWEST_DEV, cut
from anmi.corpus.types import Collection, Quarantine, empty
from anmi.errors import COMMANDS, AnmiError
from anmi.files import aside, disk_errors
from anmi.fingerprint import hash_text

Relevance = Literal[0, 1]
MARK_COLUMNS: Final = ("query_id", "document_id", "relevance", "by", "at")
SUFFIX: Final = ".jsonl"
# A mark of another split is kept and without effect.
COUNTED: Final = ("train", "dev")
# Of a question that somebody asks: dev is cut from train, as in a collection without a dev split.
ASKED_SPLITS: Final = ("train", "test")
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
        When, in UTC; empty for what the collection itself judges.
    question, split
        The text of a question that is no query of the collection, and ``train`` or ``test``; else empty.
    """

    query_id: str
    document_id: str
    relevance: Relevance | None
    by: str = ""
    at: str = ""
    question: str = ""
    split: str = ""

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
        mark = Mark(**{field.name: found[field.name] for field in fields(Mark) if field.name in found})
        texts = all(isinstance(value, str) for name, value in asdict(mark).items() if name != "relevance")
        texts = texts and mark.split in (ASKED_SPLITS if mark.question.strip() else ("",))
        if texts and (mark.relevance is None or (type(mark.relevance) is int and mark.relevance in (0, 1))):
            return mark
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise AnmiError(
        f"{path} line {number} is no mark: an object with query_id, document_id and relevance (0, 1 or null), and with "
        "question and split (train or test) where somebody asked, was expected; correct the line or remove it"
    )


def current_marks(log: Iterable[Mark]) -> pd.DataFrame:
    """Return the last mark of each pair that was not taken back, in the order of the pairs' ids.

    Examples
    --------
    >>> current_marks([Mark("q", "d", 1), Mark("q", "e", 0), Mark("q", "d", None)]).document_id.tolist()
    ['e']
    """
    last = {(mark.query_id, mark.document_id): mark for mark in log}
    rows = [asdict(last[pair]) for pair in sorted(last) if last[pair].relevance is not None]
    return pd.DataFrame(rows, columns=MARK_COLUMNS) if rows else none_made()


def questions(log: Iterable[Mark]) -> pd.DataFrame:
    """Return what people asked: ``query_id, text, split``, in the order in which they did; the last split stands."""
    last: dict[str, tuple[str, str]] = {}
    for mark in log:
        if mark.question:
            last[mark.query_id] = (mark.question, mark.split)
    rows = [(name, *asked) for name, asked in last.items()]
    return pd.DataFrame(rows, columns=["query_id", "text", "split"], dtype="str")


def question_of(text: str) -> tuple[str, str]:
    """Return the id and the text of a question that somebody typed; one that is asked in other letters has its id.

    Examples
    --------
    >>> question_of("How  do I sort?"), question_of("how do i sort")[0]
    (('asked-accee5c7b945f3fc', 'How do I sort?'), 'asked-accee5c7b945f3fc')
    """
    text = " ".join(COMMANDS.sub(" ", text.encode("utf-8", "replace").decode()).split())
    return f"asked-{hash_text(normalised(text), size=8)}", text


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
                row = {name: value for name, value in asdict(made).items() if name in MARK_COLUMNS or value}
                file.write_text(before + json.dumps(row) + "\n", encoding="utf-8")
    return made


def with_marks(
    found: Collection, marks: pd.DataFrame, asked: pd.DataFrame | None = None, *, seed: int = 0, dev_share: float = 0.0
) -> tuple[Collection, pd.DataFrame]:
    """Return a collection with what was marked as labels, and the marks that count.

    A pair marked as relevant gets a label of 1, unless it has one. A label of a pair marked as not relevant goes, and
    so does a query that has no other. Marks of test queries, and of what the collection does not have, do not count. A
    question becomes a query where a document was marked as relevant for it; one that has the text of a query is that
    query. A mark of a document that was cut is one of each of its passages.

    Parameters
    ----------
    found
        As it was read and split.
    marks
        From :func:`current_marks`.
    asked
        From :func:`questions`.
    seed, dev_share
        Cut dev from questions of train, see :func:`anmi.corpus.splits.cut`, where the collection has no dev query
        and at least 20 questions become one.

    Returns
    -------
    collection, marks
        The collection, and those of the marks that count.
    """
    if marks.empty:
        return found, marks
    marks = marks.assign(marked=marks["document_id"])
    if "start" in found.corpus:
        # What is said of a passage goes before what is said of its document, which stands above it.
        marks = spread(marks, found.corpus).drop_duplicates(["query_id", "document_id"], keep="last", ignore_index=True)
    new = empty("query_id", "split")
    if asked is not None and len(asked):
        found, marks, new = _with_questions(found, marks, asked, seed, dev_share)
    split = marks["query_id"].map(dict(zip(found.queries["query_id"], found.queries["split"], strict=True)))
    known = split.notna() & marks["document_id"].isin(found.corpus["document_id"])
    counts = known & (split.isin(COUNTED) | marks["query_id"].isin(new["query_id"]))
    counted = marks[counts].reset_index(drop=True)
    relevant = counted["relevance"] == 1
    refuted = _pairs(counted[~relevant])
    kept = found.qrels[~_among(found.qrels, refuted)]
    fresh = counted[relevant.to_numpy() & ~_among(counted, _pairs(kept))]
    labels = fresh[["query_id", "document_id", "relevance"]].assign(split=split[counts].to_numpy()[fresh.index])
    qrels = pd.concat([kept, labels.astype(kept.dtypes.to_dict())], ignore_index=True)

    without = ~found.queries["query_id"].isin(qrels["query_id"]) & found.queries["query_id"].isin(counted["query_id"])
    aside_ = Quarantine()
    rows = found.queries.assign(file="", line=0)
    aside_.add("query", rows[without], "its only positive was marked as not relevant", damage=False)
    # What a person said goes before what follows from texts or facts.
    equivalents = found.equivalents[~_among(found.equivalents, _pairs(counted))]
    said = marks["at"] != ""
    notes = (
        {**found.notes, "marks": _marks_note(marks[said], counts[said], known[said], new)}
        if said.any()
        else found.notes
    )
    if (labels["split"] == "train").any():
        notes = {name: value for name, value in notes.items() if name != "labels"}
    return replace(
        found, queries=found.queries[~without].reset_index(drop=True), qrels=qrels, notes=notes,
        equivalents=equivalents.reset_index(drop=True),
        quarantine=pd.concat([found.quarantine, aside_.table()], ignore_index=True),
    ), counted[[*MARK_COLUMNS]]  # fmt: skip


def _with_questions(
    found: Collection, marks: pd.DataFrame, asked: pd.DataFrame, seed: int, dev_share: float
) -> tuple[Collection, pd.DataFrame, pd.DataFrame]:
    """Return the collection with new queries, the marks by the ids of queries, and the new queries."""
    forms = [normalised(text) for text in asked["text"]]
    names = dict(zip(map(normalised, found.queries["text"][::-1]), found.queries["query_id"][::-1], strict=True))
    same = [names.setdefault(form, name) for form, name in zip(forms, asked["query_id"], strict=True)]
    other = marks["query_id"].map(dict(zip(asked["query_id"], same, strict=True)))
    marks = marks.assign(query_id=other.fillna(marks["query_id"]))
    marks = marks.drop_duplicates(["query_id", "document_id"], keep="last", ignore_index=True)
    here = marks["document_id"].isin(found.corpus["document_id"])
    answered = marks["query_id"][here & (marks["relevance"] == 1)]
    new = asked.assign(normalised=forms, query_id=same, metadata="{}", same_as="", absent="")
    new = new[~new["query_id"].isin(found.queries["query_id"]) & new["query_id"].isin(answered)]
    new = new.drop_duplicates("query_id", keep="last", ignore_index=True)
    if len(found.forms):
        new["same_as"] = find_queries(new, found.corpus, found.forms)
    dev = (new["split"] == "train") & (cut(new["normalised"].tolist(), seed, dev_share=dev_share) == "dev")
    if not (found.queries["split"] == "dev").any() and dev.sum() >= FEWEST_DEV:
        new["split"] = new["split"].mask(dev, "dev")
    queries = pd.concat([found.queries, new[[*found.queries]]], ignore_index=True)
    return replace(found, queries=queries), marks, new


def _marks_note(marks: pd.DataFrame, counts: pd.Series, known: pd.Series, new: pd.DataFrame) -> str:
    """Say what people marked, and what of it has no effect."""
    # One of a whole document stands here once for each passage.
    first = ~marks.duplicated(["query_id", "marked"])
    marks, counts, known = marks[first], counts[first], known[first]
    relevant, counted = int((marks["relevance"][counts] == 1).sum()), int(counts.sum())
    text = f"{relevant:,} pairs marked as relevant, {counted - relevant:,} as not relevant"
    if len(new):
        splits = ", ".join(f"{count:,} {split}" for split, count in new["split"].value_counts(sort=False).items())
        text += f"; {len(new):,} questions asked on the page are queries ({splits})"
    unknown, of_test = int((~known).sum()), int((known & ~counts).sum())
    left = [
        (unknown, "of documents or queries that are not there, or of questions without a relevant document"),
        (of_test, "of test queries"),
    ]
    told = ", ".join(f"{count:,} {what}" for count, what in left if count)
    return f"{text}; without effect: {told}" if told else text


def _pairs(table: pd.DataFrame) -> set[tuple[Any, Any]]:
    return set(zip(table["query_id"], table["document_id"], strict=True))


def _among(table: pd.DataFrame, pairs: Set[tuple[Any, Any]]) -> NDArray[np.bool_]:
    rows = zip(table["query_id"], table["document_id"], strict=True)
    return np.fromiter((pair in pairs for pair in rows), bool, len(table))
