"""The module keeps marks: labels that people give to queries and documents for the next run.

Each collection has a file to which lines are only added: the last mark of a pair counts, earlier
ones stay visible. Marks count for queries of train and dev, and for questions that people asked on
the page, which become queries. Those of other test queries never count, so that figures stay
comparable with earlier ones and with those of others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import pandas as pd
from filelock import FileLock
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from anmi.corpus.passages import spread
from anmi.corpus.texts import find_queries, normalised, pairs_among, without_signs
from anmi.corpus.types import FEWEST_DEV, Collection, Quarantine, empty
from anmi.errors import COMMANDS, AnmiError
from anmi.files import aside
from anmi.fingerprint import hash_text
from anmi.seeds import cut

Relevance = Literal[0, 1]
MARK_COLUMNS: Final = ("query_id", "document_id", "relevance", "by", "at")
# Marks of another split are kept but have no effect.
COUNTED: Final = ("train", "dev")
# Questions that people ask are for train or test; dev is cut from train, as in a collection without
# a dev split.
ASKED_SPLITS: Final = ("train", "test")
_LONGEST_NAME: Final = 60


@dataclass(frozen=True, config=ConfigDict(strict=True))
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
        The text of a question that is no query of the collection, and ``train`` or ``test``; else
        empty.
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


_READER: Final = TypeAdapter(Mark)


def file_of(marks: str | None, collection: str) -> Path | None:
    """Return the file of a collection's marks, which may be absent; None where there can be none.

    Parameters
    ----------
    marks
        A folder with a file for each collection, or one file, ``*.jsonl``; None and addresses (a
        data root in a bucket) have none.
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
    if marks.endswith(".jsonl"):
        return Path(marks)
    plain = re.sub(r"[^\w.]+", "-", collection).strip("-")[-_LONGEST_NAME:]
    # Two collections may differ in characters that no file name has.
    return Path(marks) / f"{plain}-{hash_text(collection, size=4)}.jsonl"


def read_log(path: Path | None) -> list[Mark]:
    """Return all marks that were ever made, the oldest first; none where there is no file.

    Raises
    ------
    AnmiError
        A line is no mark; it is named.
    """
    if path is None or not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    log = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            log.append(_mark(line, path, number))
    return log


def _mark(line: str, path: Path, number: int) -> Mark:
    try:
        mark: Mark = _READER.validate_json(line)
        if (mark.split in ASKED_SPLITS) if mark.question.strip() else not mark.split:
            return mark
    except ValidationError:
        pass
    raise AnmiError(
        f"{path} line {number} is no mark: an object with query_id, document_id and relevance (0, 1"
        " or null), and with question and split (train or test) where somebody asked, was"
        " expected; correct the line or remove it"
    )


def current_marks(log: Iterable[Mark]) -> pd.DataFrame:
    """Return the last mark of each pair that was not taken back, in the order of the pairs' ids.

    Examples
    --------
    >>> log = [Mark("q", "d", 1), Mark("q", "e", 0), Mark("q", "d", None)]
    >>> current_marks(log).document_id.tolist()
    ['e']
    """
    last = {(mark.query_id, mark.document_id): mark for mark in log}
    rows = [asdict(last[pair]) for pair in sorted(last) if last[pair].relevance is not None]
    types = {name: "int64" if name == "relevance" else "str" for name in MARK_COLUMNS}
    return pd.DataFrame(rows, columns=list(MARK_COLUMNS)).astype(types)


def questions(log: Iterable[Mark]) -> pd.DataFrame:
    """Return what people asked, in order: ``query_id, text, split``; the last split stands."""
    last = {mark.query_id: (mark.question, mark.split) for mark in log if mark.question}
    rows = [(query_id, *text_and_split) for query_id, text_and_split in last.items()]
    return pd.DataFrame(rows, columns=["query_id", "text", "split"], dtype="str")


def question_of(text: str) -> tuple[str, str]:
    """Return the id and the text of a typed question; its id ignores case and punctuation.

    Examples
    --------
    >>> question_of("How  do I sort?"), question_of("how do i sort")[0]
    (('asked-accee5c7b945f3fc', 'How do I sort?'), 'asked-accee5c7b945f3fc')
    """
    text = text.encode("utf-8", "replace").decode()
    text = " ".join(COMMANDS.sub(" ", text).split())
    return f"asked-{hash_text(normalised(text), size=8)}", text


def add(path: Path, mark: Mark) -> Mark:
    """Add a mark to a file and return it with its time.

    The file is written aside and renamed, by one process at a time, so that none is lost and no
    half is seen.
    """
    dated = mark.now()
    # Most marks have neither a question nor its split.
    row = {name: value for name, value in asdict(dated).items() if name in MARK_COLUMNS or value}
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        earlier_lines = path.read_text(encoding="utf-8") if path.is_file() else ""
        # An editor may leave the last line without an end.
        earlier_lines += "\n" if earlier_lines and not earlier_lines.endswith("\n") else ""
        with aside(path) as file:
            file.write_text(earlier_lines + json.dumps(row) + "\n", encoding="utf-8")
    return dated


def with_marks(
    collection: Collection,
    marks: pd.DataFrame,
    asked_questions: pd.DataFrame | None = None,
    *,
    seed: int = 0,
    dev_share: float = 0.0,
) -> tuple[Collection, pd.DataFrame]:
    """Return a collection with what was marked as labels, and the marks that count.

    A pair marked as relevant gets a label of 1, unless it has one. A label of a pair marked as not
    relevant goes, and so does a query that has no other. Marks of test queries, and of what the
    collection does not have, do not count. A question becomes a query where a document was marked
    as relevant for it; one that has the text of a query is that query. A mark of a document that
    was cut is one of each of its passages.

    Parameters
    ----------
    collection
        As it was read and split.
    marks
        From :func:`current_marks`.
    asked_questions
        From :func:`questions`.
    seed, dev_share
        Cut dev from questions of train, see :func:`anmi.seeds.cut`, where the collection has no dev
        query and at least 20 questions become one.

    Returns
    -------
    collection, marks
        The collection, and those of the marks that count.
    """
    if marks.empty:
        return collection, marks
    marks = marks.assign(marked=marks["document_id"])
    if "start" in collection.corpus:
        # A mark of a passage wins over one of its document, which has more rows above it.
        marks = _last(spread(marks, collection.corpus))
    new_queries = empty("query_id", "split")
    if asked_questions is not None and len(asked_questions):
        collection, marks, new_queries = _with_questions(
            collection, marks, asked_questions, seed, dev_share
        )
    queries = collection.queries
    split = marks["query_id"].map(queries.set_index("query_id")["split"])
    is_present = split.notna() & marks["document_id"].isin(collection.corpus["document_id"])
    is_new = marks["query_id"].isin(new_queries["query_id"])
    counts = is_present & (split.isin(COUNTED) | is_new)
    notes = collection.notes | _note(marks.assign(known=is_present, counts=counts), new_queries)
    counted = marks.assign(split=split)[counts].reset_index(drop=True)
    is_relevant = (counted["relevance"] == 1).to_numpy()
    labels = collection.qrels[~pairs_among(collection.qrels, counted[~is_relevant])]
    new_labels = counted[is_relevant & ~pairs_among(counted, labels)][[*labels]]
    new_labels = new_labels.astype(dict(labels.dtypes))
    qrels = pd.concat([labels, new_labels], ignore_index=True)
    if (new_labels["split"] == "train").any():
        notes.pop("labels", None)

    quarantine = Quarantine()
    without = queries["query_id"].isin(counted["query_id"])
    without &= ~queries["query_id"].isin(qrels["query_id"])
    reason = "its only positive was marked as not relevant"
    rows = quarantine.set_aside("query", queries.assign(file="", line=0), without, reason)
    # What a person said wins over what follows from texts or facts.
    is_contradicted = pairs_among(collection.equivalents, counted)
    marked_collection = replace(
        collection,
        queries=rows[[*queries]].reset_index(drop=True),
        qrels=qrels,
        notes=notes,
        equivalents=collection.equivalents[~is_contradicted].reset_index(drop=True),
        quarantine=pd.concat([collection.quarantine, quarantine.table()], ignore_index=True),
    )
    return marked_collection, counted[[*MARK_COLUMNS]]


def _last(marks: pd.DataFrame) -> pd.DataFrame:
    """Return the last mark of each pair."""
    return marks.drop_duplicates(["query_id", "document_id"], keep="last", ignore_index=True)


def _with_questions(
    collection: Collection,
    marks: pd.DataFrame,
    asked_questions: pd.DataFrame,
    seed: int,
    dev_share: float,
) -> tuple[Collection, pd.DataFrame, pd.DataFrame]:
    """Return the collection with new queries, the marks by ids of queries, and the new queries."""
    queries = collection.queries
    forms = [normalised(text) for text in asked_questions["text"]]
    first_queries = queries[::-1]
    ids_by_form = dict(
        zip(map(normalised, first_queries["text"]), first_queries["query_id"], strict=True)
    )
    query_ids: list[str] = [
        ids_by_form.setdefault(form, query_id)
        for form, query_id in zip(forms, asked_questions["query_id"], strict=True)
    ]
    id_of_question = pd.Series(query_ids, asked_questions["query_id"], dtype=object)
    mapped_ids = marks["query_id"].map(id_of_question)
    marks = _last(marks.assign(query_id=mapped_ids.fillna(marks["query_id"])))
    is_present = marks["document_id"].isin(collection.corpus["document_id"])
    answered = marks["query_id"][is_present & (marks["relevance"] == 1)]
    new = asked_questions.assign(
        normalised=forms,
        query_id=query_ids,
        metadata="{}",
        same_as="",
    )
    is_new = ~new["query_id"].isin(queries["query_id"])
    new = new[is_new & new["query_id"].isin(answered)]
    new = new.drop_duplicates("query_id", keep="last", ignore_index=True)
    if len(collection.forms):
        new["same_as"] = find_queries(new, collection.corpus, collection.forms)
    cut_splits = cut([*map(without_signs, new["text"])], seed, dev_share=dev_share)
    is_dev = (new["split"] == "train") & (cut_splits == "dev")
    if not (queries["split"] == "dev").any() and is_dev.sum() >= FEWEST_DEV:
        new["split"] = new["split"].mask(is_dev, "dev")
    all_queries = pd.concat([queries, new[[*queries]]], ignore_index=True)
    return replace(collection, queries=all_queries), marks, new


def _note(marks: pd.DataFrame, new: pd.DataFrame) -> dict[str, str]:
    """Say what people marked, and which marks have no effect; the collection's own do not count."""
    # A mark of a whole document has one row for each passage here.
    marks = marks[marks["at"] != ""].drop_duplicates(["query_id", "marked"])
    if marks.empty:
        return {}
    relevant_count = ((marks["relevance"] == 1) & marks["counts"]).sum()
    text = (
        f"{relevant_count:,} pairs marked as relevant,"
        f" {marks['counts'].sum() - relevant_count:,} as not relevant"
    )
    if len(new):
        counts = new["split"].value_counts(sort=False)
        splits = ", ".join(f"{count:,} {split}" for split, count in counts.items())
        text += f"; {len(new):,} questions asked on the page are queries ({splits})"
    absent = (
        "of documents or queries that are not there, or of questions without a relevant document"
    )
    ignored_counts = {
        absent: (~marks["known"]).sum(),
        "of test queries": (marks["known"] & ~marks["counts"]).sum(),
    }
    ignored = ", ".join(f"{count:,} {reason}" for reason, count in ignored_counts.items() if count)
    return {"marks": f"{text}; without effect: {ignored}" if ignored else text}
