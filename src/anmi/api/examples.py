"""Training examples of others are read, and written again without some of their negatives."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from anmi.api.formats import check_dataset
from anmi.errors import AnmiError

Record = dict[str, Any]
Saved = Literal["dataset", "lines", "array", "data", "parquet"]


class Layout(NamedTuple):
    """Where an example has its texts.

    Attributes
    ----------
    query, positives
        Names of the query's field and of the positives'.
    negatives
        Names of the fields of negatives, each a text or a list.
    labels
        Field that tells positives from negatives, which then share a field; empty without one.
    """

    query: str
    positives: str
    negatives: tuple[str, ...]
    labels: str = ""


# FlagEmbedding, Tevatron, DPR, NeMo.
_FILES: Final = (
    Layout("query", "pos", ("neg",)),
    Layout("query", "positive_passages", ("negative_passages",)),
    Layout("question", "positive_ctxs", ("hard_negative_ctxs", "negative_ctxs")),
    Layout("question", "pos_doc", ("neg_doc",)),
)
_KNOWN: Final = (
    "(query, pos, neg), (query, positive_passages, negative_passages), (question, positive_ctxs,"
    " hard_negative_ctxs), (question, pos_doc, neg_doc), or those of sentence-transformers:"
    " (anchor, positive, negative), (anchor, positive, negative_1 …), (anchor, passage, label) and"
    " (anchor, passages, labels)"
)


def layout_of(names: Sequence[str], place: str) -> Layout:
    """Return the layout of examples with these fields.

    Examples
    --------
    >>> layout_of(["query", "pos", "neg", "prompt"], "rows.jsonl").negatives
    ('neg',)
    >>> layout_of(["question", "answer", "negative_1", "negative_2"], "dataset")[:2]
    ('question', 'answer')
    """
    for layout in _FILES:
        negatives = tuple(name for name in layout.negatives if name in names)
        if {layout.query, layout.positives} <= {*names} and negatives:
            return layout._replace(negatives=negatives)
    negatives = tuple(name for name in names if name.split("_")[0] == "negative")
    if len(names) > 2 and negatives:
        return Layout(names[0], names[1], negatives)
    for labels in ("label", "labels"):
        if len(names) > 2 and labels in names:
            return Layout(names[0], names[1], (names[1],), labels)
    raise AnmiError(
        f"{place} has the fields {', '.join(names)}, which are not those of negatives; expected"
        f" were {_KNOWN}"
    )


class Negative(NamedTuple):
    """One negative of a record: its field, its place in a list (or None) and its text."""

    field: str
    place: int | None
    text: str


@dataclass
class Examples:
    """Records with a query, positives and negatives each.

    Attributes
    ----------
    records, layout
        As they were read.
    place
        Where they come from, for errors.
    saved
        How they were stored, and are stored again.
    frame
        What stands around the records of a JSON file.
    texts
        Of documents by id, for records that name these.
    """

    records: list[Record]
    layout: Layout
    place: str
    saved: Saved
    frame: Record
    texts: Mapping[str, str]

    def query(self, record: Record) -> str:
        """Return the text of a record's query."""
        query = record[self.layout.query]
        if not isinstance(query, str):
            raise AnmiError(f"{self.place} has the query {query!r}: a text was expected")
        return query

    def positives(self, record: Record) -> list[str]:
        """Return the texts of a record's positives."""
        passages = _listed(record[self.layout.positives])
        labels = self._labels(record, len(passages))
        return [
            self._text(passage)
            for passage, label in zip(passages, labels, strict=True)
            if label > 0
        ]

    def negatives(self, record: Record) -> list[Negative]:
        """Return a record's negatives."""
        negatives = []
        for name in self.layout.negatives:
            passages = record.get(name)
            is_list = isinstance(passages, (list, tuple))
            listed = _listed(passages)
            labels = self._labels(record, len(listed)) if self.layout.labels else [0] * len(listed)
            for place, (passage, label) in enumerate(zip(listed, labels, strict=True)):
                if label <= 0:
                    text = self._text(passage)
                    negatives.append(Negative(name, place if is_list else None, text))
        return negatives

    def _labels(self, record: Record, count: int) -> list[float]:
        if not self.layout.labels:
            return [1.0] * count
        labels = _listed(record[self.layout.labels])
        if len(labels) != count:
            raise AnmiError(
                f"{self.place} has {len(labels)} labels of {count} passages: one each was expected"
            )
        return labels

    def _text(self, passage: Any) -> str:
        if isinstance(passage, Mapping):
            if isinstance(passage.get("text"), str):
                return f"{passage.get('title') or ''} {passage['text']}".strip()
            passage = passage.get("docid", passage.get("id"))
            if str(passage) not in self.texts:
                raise AnmiError(
                    f"{self.place} names the document {passage!r} without its text: give a corpus"
                    " that has it"
                )
        if isinstance(passage, (str, int)) and str(passage) in self.texts:
            return self.texts[str(passage)]
        if not isinstance(passage, str):
            raise AnmiError(f"{self.place} has the passage {passage!r}: a text was expected")
        return passage

    def without(self, dropped: Iterable[Sequence[bool]]) -> list[Record]:
        """Return the records without some negatives.

        Parameters
        ----------
        dropped
            Of each record, which of its negatives go. A record goes with a negative that is no
            list's.
        """
        cleaned = []
        for record, flags in zip(self.records, dropped, strict=True):
            negatives = zip(self.negatives(record), flags, strict=True)
            false_negatives = [negative for negative, is_false in negatives if is_false]
            if all(negative.place is not None for negative in false_negatives):
                cleaned.append(_shortened(record, false_negatives))
        return cleaned

    def weighted(self, weights: Iterable[Sequence[float]]) -> list[Record]:
        """Return the records with the weights of their negatives, in a field ``weights``."""
        return [
            record | {"weights": list(values)}
            for record, values in zip(self.records, weights, strict=True)
        ]

    def save(self, records: list[Record], path: Path) -> None:
        """Write records as they were stored; those of a dataset to a folder or a Parquet file."""
        if self.saved == "lines":
            lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            path.write_text(lines, encoding="utf-8")
        elif self.saved in ("array", "data"):
            whole: Any = self.frame | {"data": records} if self.saved == "data" else records
            path.write_text(json.dumps(whole, ensure_ascii=False, indent=1), encoding="utf-8")
        elif self.saved == "parquet" or path.suffix == ".parquet":
            self.dataset(records).to_parquet(str(path))
        else:
            self.dataset(records).save_to_disk(str(path))

    @staticmethod
    def dataset(records: list[Record]) -> Any:
        """Return records as a dataset."""
        from datasets import Dataset

        return Dataset.from_list(records)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _shortened(record: Record, false_negatives: Sequence[Negative]) -> Record:
    """Return a record without the negatives, and without what stands beside them in other lists."""
    shortened = dict(record)
    for field in {negative.field for negative in false_negatives}:
        places = {negative.place for negative in false_negatives if negative.field == field}
        for name, values in record.items():
            is_beside = isinstance(values, (list, tuple)) and len(values) == len(record[field])
            if is_beside and _goes_with(name, field):
                shortened[name] = [
                    value for place, value in enumerate(values) if place not in places
                ]
    return shortened


def _goes_with(name: str, field: str) -> bool:
    """Whether a list is that of the field, or belongs to it as ``neg_scores`` to ``neg``."""
    return name in (field, "labels", "scores") or name.startswith(f"{field}_")


def read_examples(source: Any, texts: Mapping[str, str]) -> Examples:
    """Read a dataset, a folder of ``save_to_disk``, or a Parquet, JSON or JSONL file.

    Raises
    ------
    AnmiError
        There is nothing, or not what negatives look like.
    """
    if not isinstance(source, (str, Path)):
        check_dataset(source)
        records = list(source)
        names = list(source.column_names)
        return Examples(
            records, layout_of(names, "the dataset"), "the dataset", "dataset", {}, texts
        )
    path = Path(source)
    if not path.exists():
        raise AnmiError(f"{path} is not there: a file or folder of negatives was expected")
    frame: Record = {}
    if path.is_dir() or path.suffix == ".parquet":
        from datasets import Dataset, load_from_disk

        dataset = load_from_disk(str(path)) if path.is_dir() else Dataset.from_parquet(str(path))
        records = list(dataset)
        saved: Saved = "dataset" if path.is_dir() else "parquet"
    else:
        saved, frame, records = _json_records(path)
    if not records:
        raise AnmiError(f"{path} has no examples: at least one query with negatives was expected")
    return Examples(records, layout_of([*records[0]], str(path)), str(path), saved, frame, texts)


def _json_records(path: Path) -> tuple[Saved, Record, list[Record]]:
    text = _read_text(path)
    try:
        whole = json.loads(text)
    except ValueError:
        return "lines", {}, list(_lines(path, text))
    if isinstance(whole, list):
        return "array", {}, whole
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        return "data", whole, whole["data"]
    return "lines", {}, [whole]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnmiError(f"{path} is no text in UTF-8 ({error}): save it as UTF-8") from error


def _lines(path: Path, text: str) -> Iterator[Record]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise AnmiError(
                f"{path}, line {number} is no JSON ({error}): one object a line was expected"
            ) from error
        if not isinstance(record, dict):
            raise AnmiError(f"{path}, line {number} is {line[:40]!r}: an object was expected")
        yield record


def read_corpus(source: Any) -> dict[str, str]:
    """Return documents by id: of a mapping, of texts, or of a JSONL or Parquet file.

    Without ids the documents are numbered. A file has ``text``, and perhaps ``title`` and ``_id``,
    ``docid`` or ``id``.
    """
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return dict(source)
    if not isinstance(source, (str, Path)):
        return {str(number): text for number, text in enumerate(source)}
    path = Path(source)
    if not path.is_file():
        raise AnmiError(f"{path} is not there: a JSONL or Parquet file of documents was expected")
    if path.suffix == ".parquet":
        from datasets import Dataset

        records = list(Dataset.from_parquet(str(path)))
    else:
        records = list(_lines(path, _read_text(path)))
    texts = {}
    for number, record in enumerate(records):
        if not isinstance(record.get("text"), str):
            raise AnmiError(f"{path} has no text in record {number + 1}: a field text was expected")
        name = next((record[key] for key in ("_id", "docid", "id") if key in record), number)
        texts[str(name)] = f"{record.get('title') or ''} {record['text']}".strip()
    return texts
