"""Documents in the rows of JSONL, CSV and TSV files, by the names of their columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anmi.corpus.jsonl import clean, read_objects
from anmi.corpus.raw import FieldNames
from anmi.errors import AnmiError

ROW_FILES: Final = frozenset({".jsonl", ".ndjson", ".csv", ".tsv"})
# Where no names are given: the usual ones, the likeliest first.
_USUAL: Final = {"id": ("_id", "id"), "title": ("title",), "text": ("text", "body", "content")}
# A field of a table may be a whole book; the csv module's own limit is 128 kB.
_LONGEST_FIELD: Final = 2**31 - 1


@dataclass(frozen=True)
class Row:
    """One row of a file.

    Attributes
    ----------
    line
        Where it begins, from 1.
    id
        Empty where the file has no column of ids.
    title, text
        As they stand there; the title may be empty.
    rest
        The other columns.
    """

    line: int
    id: str
    title: str
    text: str
    rest: dict[str, Any]


def rows_of(path: Path, fields: FieldNames) -> Iterator[Row]:
    """Yield the rows of a file.

    Parameters
    ----------
    path
        Its ending tells what it is: ``.jsonl`` and ``.ndjson`` hold a JSON object a line, ``.csv`` and ``.tsv`` a
        header and fields that may be quoted. The separator of ``.csv`` is a comma, a semicolon or a tab, whichever the
        header has most of.
    fields
        Names of the columns; what is not named has one of the usual names, in any case: ``_id`` or ``id``, ``title``,
        and ``text``, ``body`` or ``content``.

    Raises
    ------
    AnmiError
        If the file is damaged or lacks a column, naming the line and the columns found.
    """
    read = _objects if path.suffix.lower() in (".jsonl", ".ndjson") else _table
    for line, values in read(path):
        yield _row(path, line, values, fields)


def _row(path: Path, line: int, values: Mapping[str, Any], fields: FieldNames) -> Row:
    names = {what: _column(path, line, what, values, getattr(fields, what)) for what in _USUAL}
    taken: dict[str, str] = {}
    for what, name in names.items():
        value = values.get(name) if name is not None else ""
        if what == "id" and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if what == "title" and not isinstance(value, str):
            value = ""
        if not isinstance(value, str) or (what == "id" and name is not None and not value.strip()):
            raise AnmiError(f'{path} line {line} has a "{name}" that is {"empty or " * (what == "id")}no text')
        taken[what] = clean(value)
    own = values.get("metadata")
    rest = {key: value for key, value in values.items() if key not in names.values() and value is not own}
    # As in corpus.jsonl of a BEIR folder.
    rest |= own if isinstance(own, dict) else {} if own is None else {"metadata": own}
    return Row(line, rest=rest, **taken)


def _column(path: Path, line: int, what: str, values: Mapping[str, Any], given: str | None) -> str | None:
    """Return which column holds the id, the title or the text; None where there is none and none is needed."""
    if given is not None and given in values:
        return given
    if given is None:
        known = {name.strip().lower(): name for name in reversed(list(values))}
        found = next((known[usual] for usual in _USUAL[what] if usual in known), None)
        if found is not None or what != "text":
            return found
    wanted = f'"{given}"' if given is not None else '"text", "body" or "content"'
    columns = ", ".join(f'"{name}"' for name in list(values)[:20]) or "none"
    raise AnmiError(
        f"{path} line {line} has no column {wanted}; its columns are {columns}: name the one that is meant by "
        f"ingestion.{what}_column"
    )


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    return read_objects(path)


def _table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    text = _text(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(text.partition("\n")[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: Sequence[str] | None = None
    limit = csv.field_size_limit(_LONGEST_FIELD)
    start = 1
    try:
        for fields in reader:
            line, start = start, reader.line_num + 1
            if not fields:
                continue
            if header is None:
                header = fields
            elif len(fields) != len(header):
                raise AnmiError(
                    f"{path} line {line} has {len(fields)} columns and the header {len(header)}; a column of each name "
                    "was expected, with quotes around texts that hold a separator"
                )
            else:
                yield line, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise AnmiError(f"{path} line {start} is not in its format ({error}); check its quotes") from None
    finally:
        csv.field_size_limit(limit)


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise AnmiError(
            f"{path} line {line} is not UTF-8 (byte {data[error.start]:#04x}); convert the file to UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise AnmiError(f"{path} line {line} holds a zero byte, so it is no table of texts")
    return text


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)
