"""Documents in files without queries: text, Markdown, HTML and PDF, and the rows of tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.jsonl import clean, metadata_of, to_json
from anmi.corpus.pairs import find_files, root_of
from anmi.corpus.plain_text import KINDS, UnreadableError
from anmi.corpus.raw import ROW_FILES, Column, Options, RawCollection, kind_of, no_labels, no_queries
from anmi.corpus.tables import columns_of, read_rows, texts_in
from anmi.corpus.types import check_share, empty, table_of
from anmi.errors import AnmiError

_BAR_FROM_FILES: Final = 200
# Bytes in which a file shows that it is not blank.
_LOOK: Final = 65_536
_ENDINGS: Final = ", ".join(sorted({*KINDS, *ROW_FILES}))
_COLUMNS: Final = ("document_id", "title", "text", "metadata", "file", "line")


def read_docs(location: str, options: Options) -> RawCollection:
    """Read documents from files; there are neither queries nor labels.

    A file of text, Markdown, HTML or PDF is one document, its id the path below the folder that all patterns share.
    Each row of a table (:func:`anmi.corpus.tables.read_rows`) is one, its id that of the row, or else path and line.
    Metadata hold the ``path``, ``headings`` where there are any, and the other columns of a row.

    A file that cannot be read is set aside and counts as damage; one without text, or of another kind, is only listed.

    Parameters
    ----------
    location
        Patterns separated by semicolons, see :func:`files_of_docs`.
    options
        Of interest are ``columns`` (of tables) and ``max_quarantine`` (of damaged files).

    Raises
    ------
    AnmiError
        If a pattern matches no file, a table is damaged or lacks a column, an id occurs twice, too many files are
        damaged, or no document is found.
    """
    from tqdm import tqdm

    files = files_of_docs(location)
    found = _Documents(options.columns)
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

    def __init__(self, columns: Mapping[Column, str]) -> None:
        self.rows: list[tuple[str, str, str, str, str, int]] = []
        self.damaged: list[tuple[str, str, str, int, str]] = []
        self.left_out: list[tuple[str, str, str, int, str]] = []
        self.kinds: Counter[str] = Counter()
        self._columns = columns
        self._places: dict[str, tuple[Path, int]] = {}

    def add(self, name: str, path: Path) -> None:
        """Read a file, whose path below the shared folder is its name."""
        kind = kind_of(path)
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
        with path.open("rb") as file:
            if not file.read(_LOOK).strip(b" \t\r\n\xef\xbb\xbf"):
                return
        for line, values in read_rows(path):
            taken, names = {}, []
            for what in ("id", "title", "text"):
                for found in columns_of(path, line, values, what, self._columns, needed=what == "text"):
                    names.append(found)
                    taken[what] = _cell(path, line, what, found, values[found])
            rest = metadata_of(values, names)
            identifier = taken.get("id", f"{name}#{line}")
            self._append(identifier, taken.get("title", ""), taken["text"], {**rest, "path": name}, path, line)

    def _append(self, identifier: str, title: str, text: str, metadata: dict[str, Any], path: Path, line: int) -> None:
        if identifier in self._places:
            first = "{} line {}".format(*self._places[identifier])
            raise AnmiError(f'{path} line {line} repeats the id "{identifier}" of {first}; ids must be unique')
        self._places[identifier] = (path, line)
        self.rows.append((clean(identifier), clean(title), clean(text), to_json(metadata), str(path), line))

    @staticmethod
    def _set_aside(where: list[tuple[str, str, str, int, str]], name: str, path: Path, reason: str) -> None:
        where.append(("document", clean(name), str(path), 0, reason))


def _cell(path: Path, line: int, what: Column, name: str, value: Any) -> str:
    if what == "title" and not isinstance(value, str):
        return ""
    if what == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    ((_, text), *more) = texts_in(path, line, name, value) or [("", "")]
    if more or (what == "id" and not text.strip()):
        raise AnmiError(f'{path} line {line} has a "{name}" that is {"empty" if not more else "a list"}; write a text')
    return text
