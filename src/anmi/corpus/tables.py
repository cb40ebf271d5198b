"""Rows of JSONL, CSV, TSV, Parquet and Arrow files, and which of their columns holds what."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from anmi.corpus.jsonl import clean, decoded, raw_lines, read_objects
from anmi.corpus.raw import Column, kind_of
from anmi.errors import AnmiError

# Where no names are given: the usual ones, the likeliest first. Each may stand in the plural, and a number may follow
# that of a negative.
USUAL: Final[dict[Column, tuple[str, ...]]] = {
    "id": ("_id", "id"),
    "title": ("title",),
    "text": ("text", "body", "content", "passage", "document"),
    "query": ("query", "question", "anchor", "sentence1"),
    "positive": ("positive", "document", "passage", "context", "answer", "text", "sentence2", "response", "pos",
                 "positive_doc", "positive_passage"),
    "negative": ("negative", "hard_negative", "neg", "negative_passage"),
    "score": ("score", "label", "relevance"),
}  # fmt: skip
_NUMBER: Final = re.compile(r"_?\d+$")
# A field of a table may be a whole book; the csv module's own limit is 128 kB.
_LONGEST_FIELD: Final = 2**31 - 1
_AT_ONCE: Final = 1000


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number, or number of the row, and values by column.

    Parameters
    ----------
    path
        Its ending tells what it is: ``.jsonl`` and ``.ndjson`` hold a JSON object a line, ``.csv`` and ``.tsv`` a
        header and fields that may be quoted (what separates those of ``.csv`` is a comma, a semicolon or a tab,
        whichever the header has most of); of these, ``.gz`` may follow. ``.parquet``, ``.arrow`` and ``.feather`` are
        read some rows at a time.

    Raises
    ------
    AnmiError
        The file is damaged; the error names the line.
    """
    kind = kind_of(path)
    if kind in (".jsonl", ".ndjson"):
        return read_objects(path)
    return _separated(path) if kind in (".csv", ".tsv") else numbered(_batches(path))


def numbered(batches: Iterator[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of Arrow tables with their numbers, from 1."""
    row = 0
    for batch in batches:
        for values in batch.to_pylist():
            yield (row := row + 1), values


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    try:
        if kind_of(path) == ".parquet":
            with pq.ParquetFile(path, memory_map=True) as table:
                yield from table.iter_batches(_AT_ONCE)
            return
        with pa.memory_map(str(path)) as file:
            try:
                found = pa.ipc.open_file(file)
                batches = (found.get_batch(place) for place in range(found.num_record_batches))
            except pa.ArrowInvalid:  # What `datasets` saves has no index.
                file.seek(0)
                batches = pa.ipc.open_stream(file)
            for batch in batches:
                yield from (batch.slice(start, _AT_ONCE) for start in range(0, batch.num_rows, _AT_ONCE))
    except pa.ArrowException as error:
        raise AnmiError(f"{path} is not in its format ({error}); write the file again") from None


def _separated(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    delimiter, last = "\t", 0

    def lines() -> Iterator[str]:
        nonlocal last
        for last, line in raw_lines(path):
            if "\0" in (text := decoded(path, last, line)):
                raise AnmiError(f"{path} line {last} holds a zero byte, so it is no table of texts")
            yield text + "\n"

    limit = csv.field_size_limit(_LONGEST_FIELD)
    text = lines()
    try:
        first = next(text, "")
        if kind_of(path) == ".csv":
            delimiter = max(",;\t", key=first.count)
        header: list[str] = []
        start = 1
        for fields in csv.reader(itertools.chain([first], text), delimiter=delimiter, strict=True):
            line, start = start, last + 1
            if not header:
                header = fields
            elif fields and len(fields) != len(header):
                raise AnmiError(
                    f"{path} line {line} has {len(fields)} columns and the header {len(header)}; a column of each name "
                    "was expected, with quotes around texts that hold a separator"
                )
            elif fields:
                yield line, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise AnmiError(f"{path} line {start} is not in its format ({error}); check its quotes") from None
    finally:
        csv.field_size_limit(limit)


def columns_of(
    path: Path, line: int, values: Mapping[str, Any], what: Column, given: Mapping[Column, str], needed: bool = False
) -> tuple[str, ...]:
    """Return the columns of a row that hold something: one, several of negatives, or none where none is needed.

    Raises
    ------
    AnmiError
        The column that is given, or needed, is not there.
    """
    name = given.get(what)
    if (found := _named(tuple(values), what, name)) or not (name or needed):
        return found
    wanted = " or ".join(f'"{usual}"' for usual in ([name] if name else USUAL[what][:5]))
    columns = ", ".join(f'"{column}"' for column in list(values)[:20]) or "none"
    raise AnmiError(
        f"{path} line {line} has no column {wanted}; its columns are {columns}: name the one "
        f"that is meant by ingestion.columns.{what}"
    )


@lru_cache(maxsize=1024)
def _named(columns: tuple[str, ...], what: Column, given: str | None) -> tuple[str, ...]:
    if given is not None:
        return (given,) if given in columns else ()
    plain = {name.strip().lower().replace("-", "_"): name for name in reversed(columns)}
    usual = [each for name in USUAL[what] for each in (name, f"{name}s")]
    if what == "negative":
        return tuple(plain[name] for name in reversed(plain) if _NUMBER.sub("", name) in usual)
    return next(((plain[name],) for name in usual if name in plain), ())


def texts_in(path: Path, line: int, name: str, value: Any) -> list[tuple[str, str]]:
    """Return titles and texts of a field: it holds one or a list of them, each a text or an object of both.

    Raises
    ------
    AnmiError
        One is something else.
    """
    found = []
    for item in value if isinstance(value, list) else [value]:
        title, text = (item.get("title"), item.get("text")) if isinstance(item, dict) else ("", item)
        if not isinstance(text, str | None):
            raise AnmiError(f'{path} line {line} has a "{name}" that is no text, nor a list of texts; write it as one')
        found.append((clean(title) if isinstance(title, str) else "", clean(text or "")))
    return found
