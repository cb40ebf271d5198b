"""Documents in files without queries: text, Markdown, HTML and PDF, and the rows of JSONL, CSV and TSV."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.jsonl import clean, read_objects, to_json
from anmi.corpus.pairs import find_files, root_of
from anmi.corpus.plain_text import KINDS, UnreadableError
from anmi.corpus.quarantine import check_share, table_of
from anmi.corpus.raw import FieldNames, Options, RawCollection, no_labels, no_queries
from anmi.corpus.types import empty
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
    read = read_objects if path.suffix.lower() in (".jsonl", ".ndjson") else _table
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


def _table(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    text = _text(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=text.partition("\n")[0].count)
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


_BAR_FROM_FILES: Final = 200
_ENDINGS: Final = ", ".join(sorted({*KINDS, *ROW_FILES}))
_COLUMNS: Final = ("document_id", "title", "text", "metadata", "file", "line")


def read_docs(location: str, options: Options) -> RawCollection:
    """Read documents from files; there are neither queries nor labels.

    A file of text, Markdown, HTML or PDF is one document, its id the path below the folder that all patterns share.
    Each row of a JSONL, CSV or TSV file is one, its id that of the row, or else path and line. Metadata hold the
    ``path``, ``headings`` where there are any, and the other columns of a row.

    A file that cannot be read is set aside and counts as damage; one without text, or of another kind, is only listed.

    Parameters
    ----------
    location
        Patterns separated by semicolons, see :func:`files_of_docs`.
    options
        Of interest are ``fields`` (columns of rows) and ``max_quarantine`` (of damaged files).

    Raises
    ------
    AnmiError
        If a pattern matches no file, a table is damaged or lacks a column, an id occurs twice, too many files are
        damaged, or no document is found.
    """
    from tqdm import tqdm

    files = files_of_docs(location)
    found = _Documents(options.fields)
    for name, path in tqdm(files, unit="file", desc="reading", disable=len(files) < _BAR_FROM_FILES or None):
        found.add(name, path)
    check_share(table_of(found.damaged), "files", len(files), options.max_quarantine)
    if not found.rows:
        first = (found.damaged + found.left_out)[0]
        raise AnmiError(f"docs:{location} gives no document; of {len(files)} files the first is {first[2]}: {first[4]}")
    documents = pd.DataFrame(found.rows, columns=list(_COLUMNS))
    return RawCollection(
        documents.astype({name: "int64" if name == "line" else "str" for name in _COLUMNS}),
        no_queries(),
        no_labels(),
        empty("head", "relation", "tail"),
        notes={"files": dict(sorted(found.kinds.items()))},
        set_aside=table_of(found.damaged + found.left_out),
    )


def files_of_docs(location: str) -> list[tuple[str, Path]]:
    """Return the files that patterns match, each once, with its path below the folder that all patterns share.

    Parameters
    ----------
    location
        Patterns separated by semicolons. ``**`` stands for any number of folders, and a folder for all files below it.
        Hidden files and folders are matched only where a pattern names them, as in a shell.

    Returns
    -------
    list of (str, Path)
        In the order of the patterns, and of the names under each.

    Raises
    ------
    AnmiError
        If a pattern matches none.
    """
    patterns = [_whole(part.strip()) for part in location.split(";") if part.strip()]
    shared = os.path.commonpath([_absolute(root_of(pattern)) for pattern in patterns])
    seen: dict[Path, None] = {}
    result = []
    for pattern in patterns:
        root = root_of(pattern)
        asked = "/." in f"/{pattern.removeprefix(root.as_posix())}"
        files = [path for path in find_files(pattern) if asked or "/." not in f"/{path.relative_to(root).as_posix()}"]
        if not files:
            raise AnmiError(f'no file matches "{pattern}" but hidden ones; name them, or check the path')
        for path in files:
            if path.resolve() not in seen:
                seen[path.resolve()] = None
                result.append((Path(os.path.relpath(_absolute(path), shared)).as_posix(), path))
    return result


def _whole(pattern: str) -> str:
    """Return the pattern of all files where a folder is named; ``**`` alone would match folders only."""
    if Path(pattern).expanduser().is_dir():
        return f"{pattern.rstrip('/')}/**/*"
    return f"{pattern}/*" if Path(pattern).name == "**" else pattern


def _absolute(path: Path) -> str:
    # Not resolved: what a link is called where it lies is what the user knows.
    return os.path.abspath(path)  # noqa: PTH100


class _Documents:
    """Gathers documents and what was set aside."""

    def __init__(self, fields: FieldNames) -> None:
        self.rows: list[tuple[str, str, str, str, str, int]] = []
        self.damaged: list[tuple[str, str, str, int, str]] = []
        self.left_out: list[tuple[str, str, str, int, str]] = []
        self.kinds: Counter[str] = Counter()
        self._fields = fields
        self._places: dict[str, tuple[Path, int]] = {}

    def add(self, name: str, path: Path) -> None:
        """Read a file, whose path below the shared folder is its name."""
        kind = path.suffix.lower()
        before = len(self.rows)
        try:
            if kind in ROW_FILES:
                self._add_rows(name, path)
            elif kind in KINDS:
                found = KINDS[kind](path.read_bytes())
                if found.title or found.text:
                    headings = {"headings": list(found.headings)} if found.headings else {}
                    self._append(name, found.title, found.text, {"path": name, **headings}, path, 0)
            else:
                self._set_aside(self.left_out, name, path, f"files of its kind are not read; {_ENDINGS} are")
                return
        except UnreadableError as error:
            self._set_aside(self.damaged, name, path, str(error))
            return
        self.kinds[kind] += 1
        if len(self.rows) == before:
            self._set_aside(self.left_out, name, path, "there is no text in it")

    def _add_rows(self, name: str, path: Path) -> None:
        if not path.read_bytes().strip(b" \t\r\n\xef\xbb\xbf"):
            return
        for row in rows_of(path, self._fields):
            identifier = row.id or f"{name}#{row.line}"
            self._append(identifier, row.title, row.text, {**row.rest, "path": name}, path, row.line)

    def _append(self, identifier: str, title: str, text: str, metadata: dict[str, Any], path: Path, line: int) -> None:
        if identifier in self._places:
            first = "{} line {}".format(*self._places[identifier])
            raise AnmiError(f'{path} line {line} repeats the id "{identifier}" of {first}; ids must be unique')
        self._places[identifier] = (path, line)
        self.rows.append((clean(identifier), clean(title), clean(text), to_json(metadata), str(path), line))

    @staticmethod
    def _set_aside(where: list[tuple[str, str, str, int, str]], name: str, path: Path, reason: str) -> None:
        where.append(("document", clean(name), str(path), 0, reason))
