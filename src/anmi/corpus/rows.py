"""The module reads texts and labelled pairs from JSONL, CSV, TSV, Parquet and Arrow files."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd
import pyarrow as pa

from anmi.corpus.places import ROW_FILES, files_of_pairs, kind_of
from anmi.corpus.texts import clean, to_json
from anmi.corpus.types import LABEL_COLUMNS, Column, Options, RawCollection, table
from anmi.errors import AnmiError

Row = tuple[int, dict[str, Any]]

# The names that are known where the user gives none, the likeliest first. Each may be in the
# plural, and a number may follow that of a negative.
USUAL: Final[dict[Column, tuple[str, ...]]] = {
    "id": ("_id", "id"),
    "title": ("title",),
    "text": ("text", "body", "content", "passage", "document"),
    "query": ("query", "question", "anchor", "sentence1"),
    "positive": ("positive", "document", "passage", "context", "answer", "text", "sentence2",
                 "response", "pos", "positive_doc", "positive_passage"),
    "negative": ("negative", "hard_negative", "neg", "negative_passage"),
    "score": ("score", "label", "relevance"),
}  # fmt: skip
_NUMBER: Final = re.compile(r"_?\d+$")
# A field of a table may be a whole book; the csv module's own limit is 128 kB.
_LONGEST_FIELD: Final = 2**31 - 1
_AT_ONCE: Final = 1000
# NaN is what pandas and others write where there is nothing; JSON has neither it nor infinities.
_JSON: Final = json.JSONDecoder(parse_constant=lambda _: None)


def read_lines(path: Path, *, blank: bool = False) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of a file, which may be packed; ``blank`` ones as well.

    A byte-order mark and Windows line ends are accepted.

    Raises
    ------
    AnmiError
        If the file is missing, not UTF-8, or has no line that is not blank.
    """
    if not path.is_file():
        raise AnmiError(f"{path} does not exist; check the folder's name and its layout")
    has_text = False
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise AnmiError(
                    f"{path} line {number} is not UTF-8 (byte {error.object[error.start]:#04x} at"
                    f" position {error.start}); convert the file to UTF-8"
                ) from None
            filled = bool(text.strip())
            has_text |= filled
            if filled or blank:
                yield number, text
    if not has_text:
        raise AnmiError(f"{path} is empty; at least one line was expected")


def read_objects(path: Path) -> Iterator[Row]:
    """Yield line number and object of every line of a JSONL file.

    Raises
    ------
    AnmiError
        A line is no JSON object, or not UTF-8; or there is none.
    """
    for number, line in read_lines(path):
        try:
            value = _JSON.decode(line)
        except (ValueError, RecursionError) as error:
            reason = "too large or nested too deep"
            if isinstance(error, json.JSONDecodeError):
                reason = error.msg
            raise AnmiError(
                f"{path} line {number} is not valid JSON ({reason}); one JSON object a line was"
                " expected"
            ) from None
        if not isinstance(value, dict):
            raise AnmiError(
                f"{path} line {number} holds {type(value).__name__}; a JSON object was expected"
            )
        yield number, value


def read_rows(path: Path) -> Iterator[Row]:
    """Yield line number, or number of the row, and values by column.

    Parameters
    ----------
    path
        Its ending says what it is: ``.jsonl`` and ``.ndjson`` hold a JSON object a line, ``.csv``
        and ``.tsv`` a header and fields that may be quoted (what separates those of ``.csv`` is a
        comma, a semicolon or a tab, whichever the header has most of); ``.gz`` may follow these.
        ``.parquet``, ``.arrow`` and ``.feather`` are read some rows at a time.

    Raises
    ------
    AnmiError
        The file is damaged; the error names the line.
    """
    kind = kind_of(path)
    if kind in (".jsonl", ".ndjson"):
        return read_objects(path)
    if kind in (".csv", ".tsv"):
        return _separated(path, kind)
    return numbered(_batches(path, kind))


def numbered(batches: Iterable[Any]) -> Iterator[Row]:
    """Yield the rows of Arrow tables with their numbers, from 1."""
    lists = (batch.to_pylist() for batch in batches)
    return enumerate(chain.from_iterable(lists), 1)


def _batches(path: Path, kind: str) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    try:
        if kind == ".parquet":
            with pq.ParquetFile(path, memory_map=True) as table:
                yield from table.iter_batches(_AT_ONCE)
            return
        with pa.memory_map(str(path)) as file:
            # What `datasets` saves has no index.
            opened = pa.ipc.open_file if file.read(6) == b"ARROW1" else pa.ipc.open_stream
            file.seek(0)
            yield from opened(file).read_all().to_batches(_AT_ONCE)
    except pa.ArrowException as error:
        raise AnmiError(f"{path} is not in its format ({error}); write the file again") from None


def _separated(path: Path, kind: str) -> Iterator[Row]:
    lines = (f"{line}\n" for _, line in read_lines(path, blank=True))
    csv.field_size_limit(_LONGEST_FIELD)
    rows = _of_tsv(lines) if kind == ".tsv" else _of_csv(path, lines)
    _, header = next(rows, (1, []))
    for line, fields in rows:
        if len(fields) != len(header):
            raise AnmiError(
                f"{path} line {line} has {len(fields)} columns and the header {len(header)}; a"
                " column of each name was expected, with quotes around texts that hold a"
                " separator"
            )
        yield line, dict(zip(header, fields, strict=True))


def _of_csv(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the fields of each row."""
    first = next(lines, "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(
        chain([first], lines),
        delimiter=delimiter,
        strict=True,
    )
    line = 1
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise AnmiError(
            f"{path} line {line} is not in its format ({error}); check its quotes"
        ) from None


def _of_tsv(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the fields of each row; quotes that enclose no field are text."""
    ahead = deque[str]()
    line = 1
    width = 0

    def take() -> str:
        return ahead.popleft() if ahead else next(lines, "")

    def continued(row: list[str]) -> Iterator[str]:
        yield row[0]
        for text in iter(take, ""):
            row.append(text)
            yield text

    for first in iter(take, ""):
        row = [first]
        fields = first.rstrip("\n").split("\t")
        if any(field.startswith('"') for field in fields):
            quoted = list[str]()
            with suppress(csv.Error):
                quoted = next(
                    csv.reader(
                        continued(row),
                        delimiter="\t",
                        strict=True,
                    )
                )
            if len(quoted) in (width, len(fields)):
                fields = quoted
            else:
                ahead.extendleft(reversed(row[1:]))
                del row[1:]
        if fields != [""]:
            width = width or len(fields)
            yield line, fields
        line += len(row)


class _Record(NamedTuple):
    """A row of a table: its place, its values by column, and the user's names of columns."""

    path: Path
    line: int
    values: Mapping[str, Any]
    names: Mapping[Column, str]

    def columns(self, kind: Column, needed: bool = False) -> tuple[str, ...]:
        """Return the columns of a kind: one, several of negatives, or none unless one is needed.

        Raises
        ------
        AnmiError
            The column that the user names, or that is needed, is not there.
        """
        name = self.names.get(kind)
        if (columns := _named(tuple(self.values), kind, name)) or not (name or needed):
            return columns
        expected_names = [name] if name else USUAL[kind][:5]
        usual = " or ".join(f'"{expected}"' for expected in expected_names)
        present_names = list(self.values)[:20]
        present = ", ".join(f'"{column}"' for column in present_names) or "none"
        raise AnmiError(
            f"{self.path} line {self.line} has no column {usual}; its columns are {present}: name"
            f" the one that is meant by ingestion.columns.{kind}"
        )

    def used(self, *kinds: Column) -> set[str]:
        """Return all columns that hold something of these kinds."""
        return {column for kind in kinds for column in self.columns(kind)}

    def cell(self, kind: Column, needed: bool = False) -> str:
        """Return the one text of a column; empty where there is no such column."""
        for name in self.columns(kind, needed)[:1]:
            value = self.values[name]
            if kind == "title" and not isinstance(value, str):
                return ""
            if kind == "id" and isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            texts = [text for _, text in self._texts_in(name)]
            text = texts[0] if texts else ""
            if len(texts) > 1 or (kind == "id" and not text.strip()):
                problem = "a list" if len(texts) > 1 else "empty"
                raise AnmiError(
                    f'{self.path} line {self.line} has a "{name}" that is {problem}; write a text'
                )
            # Blanks around ids are not seen, and not written in labels.
            return text.strip() if kind == "id" else text
        return ""

    def texts(self, kind: Column, needed: bool = False) -> list[tuple[str, str]]:
        """Return titles and texts of all columns of a kind."""
        columns = self.columns(kind, needed)
        return [text for column in columns for text in self._texts_in(column)]

    def _texts_in(self, name: str) -> list[tuple[str, str]]:
        """Return titles and texts of a field, of one item or a list: a text, or an object of both.

        Raises
        ------
        AnmiError
            One is something else.
        """
        texts = []
        for item in _listed(self.values[name]):
            title: Any = ""
            text = item
            if isinstance(item, dict):
                title = item.get("title")
                text = item.get("text")
            if not isinstance(text, str | None):
                raise AnmiError(
                    f'{self.path} line {self.line} has a "{name}" that is no text, nor a list of'
                    " texts; write it as one"
                )
            plain_title = clean(title) if isinstance(title, str) else ""
            texts.append((plain_title, clean(text or "")))
        return texts

    def labels(self) -> list[str]:
        """Return the one label of a row or a list of them as they are written."""
        labels = []
        for name in self.columns("score"):
            for value in _listed(self.values[name]):
                text = "" if value is None else str(value)
                if isinstance(value, bool):
                    text = str(int(value))
                with suppress(ValueError):
                    if float(text) % 1 > 0:
                        raise AnmiError(
                            f'{self.path} line {self.line} has the "{name}" {text}; a label is a'
                            " whole number, 0 of a negative: name another column by"
                            " ingestion.columns.score, or leave it empty, and every pair counts as"
                            " relevant"
                        )
                labels.append(text)
        return labels


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@lru_cache(maxsize=1024)
def _named(
    columns: tuple[str, ...],
    kind: Column,
    column: str | None,
) -> tuple[str, ...]:
    if column is not None:
        return (column,) if column in columns else ()
    names_by_form: dict[str, str] = {}
    for name in reversed(columns):
        form = name.strip().lower().replace("-", "_")
        names_by_form[form] = name
    usual: list[str] = []
    for name in USUAL[kind]:
        usual += [name, f"{name}s"]
    if kind == "negative":
        forms = (form for form in reversed(names_by_form) if _NUMBER.sub("", form) in usual)
        return tuple(names_by_form[form] for form in forms)
    for form in usual:
        if form in names_by_form:
            return (names_by_form[form],)
    return ()


class TextTable(dict[str, tuple[str, str, str, str, int]]):
    """Documents or queries as they are read: title, text, metadata as JSON, file and line by id.

    Attributes
    ----------
    repeated
        Id and content of rows that stand more than once, which are set aside later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repeated: list[tuple[str, str, str, str, str, int]] = []

    def add(
        self,
        identifier: str,
        text: str,
        metadata: dict[str, Any],
        path: Path,
        line: int,
        title: str = "",
    ) -> None:
        """Add a text.

        Raises
        ------
        AnmiError
            The id occurs twice, with different contents.
        """
        row = title, text, to_json(metadata), str(path), line
        before = self.setdefault(identifier, row)
        if before is row:
            return
        if before[:3] != row[:3]:
            raise AnmiError(
                f'{path} line {line} repeats the id "{identifier}" of {before[3]} line {before[4]}'
                " with another content; make ids unique"
            )
        self.repeated.append((identifier, *row))

    def added(
        self,
        prefix: str,
        text: str,
        metadata: dict[str, Any],
        path: Path,
        line: int,
        title: str = "",
    ) -> str:
        """Return the id of a text, which is a hash of it; a text is added where it comes first."""
        # Empty texts are damage: each is counted, so they must not merge into one.
        content = text if text.strip() else f"\x1f{path}\x1f{line}"
        if title:
            content = f"{title}\x1f{text}"
        digest = hashlib.blake2b(content.encode(), digest_size=8)
        identifier = prefix + digest.hexdigest()
        if identifier not in self:
            self.add(identifier, text, metadata, path, line, title)
        return identifier

    def add_rows(
        self,
        path: Path,
        rows: Iterable[Row],
        columns: Mapping[Column, str],
        name: str = "",
    ) -> None:
        """Add the rows of a table by their columns ``id``, ``title`` and ``text``.

        Parameters
        ----------
        path
            Where the rows come from.
        rows
            Numbers and values.
        columns
            See :attr:`anmi.corpus.types.ReadingParams.columns`.
        name
            Of the table: what its rows are called where they have no id, and noted in their
            metadata.

        Raises
        ------
        AnmiError
            A text is missing or is none, and so for an id where the table has no name; or an id
            occurs twice.
        """
        for line, values in rows:
            record = _Record(path, line, values, columns)
            identifier = record.cell("id", needed=not name) or f"{name}#{line}"
            title = record.cell("title")
            text = record.cell("text", needed=True)
            metadata = metadata_of(values, record.used("id", "title", "text"))
            if name:
                metadata["path"] = name
            self.add(identifier, text, metadata, path, line, title)

    def table(self, kind: str) -> pd.DataFrame:
        """Return ``<kind>_id, title, text, metadata, file, line``; a query has no title."""
        first_rows = ((identifier, *row) for identifier, row in self.items())
        rows = chain(first_rows, self.repeated)
        names = (f"{kind}_id", "title", "text", "metadata", "file", "line")
        frame = table(rows, *names)
        return frame.drop(columns="title") if kind == "query" else frame


def read_texts(
    path: Path,
    kind: str,
    columns: Mapping[Column, str],
    rows: Iterable[Row] | None = None,
) -> pd.DataFrame:
    """Read documents or queries: ``_id`` and ``text``, maybe ``title`` and ``metadata``.

    Other columns become metadata.

    Parameters
    ----------
    path
        A table, or the origin of ``rows``.
    kind
        ``document`` or ``query``.
    columns
        See :attr:`anmi.corpus.types.Options.columns`.
    rows
        Numbers and values, where they are not those of the table.

    Raises
    ------
    AnmiError
        See :meth:`TextTable.add_rows`; or there is no row.
    """
    texts = TextTable()
    texts.add_rows(path, read_rows(path) if rows is None else rows, columns)
    if not texts:
        raise AnmiError(f"{path} has no row; at least one was expected")
    return texts.table(kind)


def metadata_of(value: Mapping[str, Any], used: Collection[str]) -> dict[str, Any]:
    """Return the metadata of a row, with the columns that are not used for something else."""
    nested = value.get("metadata") if "metadata" not in used else None
    if isinstance(nested, str) and nested.startswith("{"):  # In a table, JSON is a text.
        with suppress(ValueError):
            nested = json.loads(nested)
    left_out = {*used, "metadata"}
    columns = {key: item for key, item in value.items() if key not in left_out}
    if isinstance(nested, dict):
        columns |= nested
    elif nested is not None:
        columns["metadata"] = nested
    return columns


# Origin, number, values and split of a row.
Pair = tuple[Path, int, dict[str, Any], str]


def read_pairs(location: str, options: Options) -> RawCollection:
    """Read pairs from tables.

    Parameters
    ----------
    location
        Patterns separated by semicolons; ``PATTERN@N`` takes the first N pairs of a pattern's
        files, which are read in the natural order of their numbers.
    options
        Of interest are ``columns``.

    Raises
    ------
    AnmiError
        If a pattern matches no file, or a file is damaged or lacks a column.
    """
    counts: dict[str, int] = {}

    def rows() -> Iterator[Pair]:
        paths_read: set[Path] = set()
        for pattern, cap, files in files_of_pairs(location):
            counts[pattern] = 0
            for path in files:
                # A file that an earlier pattern has read is not read again.
                if path.resolve() in paths_read:
                    continue
                if kind_of(path) not in ROW_FILES:
                    raise AnmiError(
                        f"{path} is no table; give files that end in {', '.join(sorted(ROW_FILES))}"
                    )
                if counts[pattern] < cap:
                    paths_read.add(path.resolve())
                    for number, values in read_rows(path):
                        if counts[pattern] == cap:
                            break
                        counts[pattern] += 1
                        yield path, number, values, "train"

    return gather_pairs(f"pairs:{location}", rows(), options, {"pairs": counts})


def gather_pairs(
    name: str,
    rows: Iterable[Pair],
    options: Options,
    notes: dict[str, Any],
) -> RawCollection:
    """Make a collection of pairs, in which equal queries are one, and so are equal documents.

    Raises
    ------
    AnmiError
        There is no pair, a column is missing, or it holds something else.
    """
    queries = TextTable()
    documents = TextTable()
    labels = list[tuple[Any, ...]]()
    for path, line, values, split in rows:
        record = _Record(path, line, values, options.columns)
        query_texts = record.texts("query", needed=True)
        positives = record.texts("positive", needed=True)
        scores = record.labels()
        fits = len(scores) < 2 or len(scores) == len(positives)
        if len(query_texts) != 1 or not fits:
            raise AnmiError(
                f"{path} line {line} has {len(query_texts)} queries, {len(positives)} documents and"
                f" {len(scores)} labels; one query was expected, and one label or as many as"
                " documents"
            )
        if len(scores) < 2:
            scores = (scores or ["1"]) * len(positives)
        prefix = "q" if split == "train" else f"{split}-q"
        metadata = _metadata_of_pair(record, "query_type")
        query = queries.added(prefix, query_texts[0][1], metadata, path, line)
        labelled = []
        title = record.cell("title")
        metadata = _metadata_of_pair(record, "doc_type")
        for (own_title, text), score in zip(positives, scores, strict=True):
            document = documents.added("d", text, metadata, path, line, own_title or title)
            labelled.append((document, score))
        for own_title, text in record.texts("negative"):
            if text.strip():
                document = documents.added("d", text, {}, path, line, own_title)
                labelled.append((document, "0"))
        for document, score in labelled:
            labels.append((query, document, score, split, str(path), line))
    if not labels:
        raise AnmiError(f"{name} gives no pair; name at least one file with a row")
    label_table = table(labels, *LABEL_COLUMNS)
    return RawCollection(
        documents.table("document"),
        queries.table("query"),
        label_table.drop_duplicates([*LABEL_COLUMNS[:4]], ignore_index=True),
        notes=notes,
    )


def _metadata_of_pair(record: _Record, key_of_type: str) -> dict[str, Any]:
    """Return the type of the query or document, and the columns that are used for nothing else."""
    used = record.used("query", "positive", "negative", "score", "title")
    used |= {"query_type", "doc_type"}
    metadata = {}
    if key_of_type in record.values:
        metadata[key_of_type] = record.values[key_of_type]
    for name, value in record.values.items():
        if name not in used:
            metadata[name] = value
    return metadata
