"""Query–document pairs in tables, with negatives and labels where there are any."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.jsonl import clean, to_json
from anmi.corpus.raw import ROW_FILES, Column, Options, RawCollection, inside, kind_of
from anmi.corpus.tables import columns_of, read_rows, texts_in
from anmi.corpus.types import empty
from anmi.errors import AnmiError

_WILDCARD: Final = re.compile(r"[*?\[]")
_CAP: Final = re.compile(r"(.*)@(\d+)")
_DIGITS: Final = re.compile(r"(\d+)")


@dataclass
class _Texts:
    """Distinct texts in the order of their first appearance."""

    prefix: str
    rows: dict[str, tuple[str, str, str, str, int]] = field(default_factory=dict)

    def add(
        self, text: str, metadata: dict[str, Any], path: Path, line: int, split: str = "train", title: str = ""
    ) -> str:
        # Empty texts are damage: each is counted, so they must not merge into one.
        content = f"{title}\x1f{text}" if title else text if text.strip() else f"\x1f{path}\x1f{line}"
        prefix = self.prefix if split == "train" else f"{split}-{self.prefix}"
        identifier = prefix + hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
        if identifier not in self.rows:
            self.rows[identifier] = (title, text, to_json(metadata), str(path), line)
        return identifier

    def table(self, id_column: str) -> pd.DataFrame:
        title, text, metadata, file, line = zip(*self.rows.values(), strict=True)
        columns = {id_column: list(self.rows), "title": title, "text": text, "metadata": metadata, "file": file}
        return pd.DataFrame(columns, dtype="str").assign(line=list(line))


class Pairs:
    """Gathers pairs; equal queries become one query with several positives, equal documents one document.

    Parameters
    ----------
    columns
        See :attr:`anmi.corpus.raw.Options.columns`.
    """

    def __init__(self, columns: Mapping[Column, str]) -> None:
        self._columns = columns
        self._queries, self._documents = _Texts("q"), _Texts("d")
        self._labels: dict[tuple[str, str, str, str], tuple[str, int]] = {}
        self._languages: Counter[str] = Counter()

    def add(self, path: Path, line: int, values: dict[str, Any], split: str = "train") -> None:
        """Take the query of a row, with its positives and the negatives that are given.

        Raises
        ------
        AnmiError
            A column is missing, or holds something else.
        """
        names: dict[Column, tuple[str, ...]] = {
            what: columns_of(path, line, values, what, self._columns, needed=what in ("query", "positive"))
            for what in ("query", "positive", "negative", "score", "title")
        }
        used = {name for found in names.values() for name in found} | {"query_type", "doc_type"}
        shared = {key: item for key, item in values.items() if key not in used}
        queries, positives, negatives = (
            [each for name in names[what] for each in texts_in(path, line, name, values[name])]
            for what in ("query", "positive", "negative")
        )
        labels = [label for name in names["score"] for label in _labels(path, line, name, values[name])]
        if len(queries) != 1 or (len(labels) > 1 and len(labels) != len(positives)):
            raise AnmiError(
                f"{path} line {line} has {len(queries)} queries, {len(positives)} documents and {len(labels)} labels; "
                "one query was expected, and one label or as many as documents"
            )
        query = self._queries.add(queries[0][1], _typed(values, "query_type", shared), path, line, split)
        titles = [clean(title) for name in names["title"] if isinstance(title := values[name], str)]
        if len(labels) < len(positives):
            labels = (labels or ["1"]) * len(positives)
        found = [
            (
                self._documents.add(text, _typed(values, "doc_type", shared), path, line, title=own or "".join(titles)),
                label,
            )
            for (own, text), label in zip(positives, labels, strict=True)
        ]
        found += [
            (self._documents.add(text, {}, path, line, title=own), "0") for own, text in negatives if text.strip()
        ]
        for document, label in found:
            self._labels.setdefault((query, document, label, split), (str(path), line))
        if isinstance(values.get("language"), str):
            self._languages[values["language"]] += 1

    def gathered(self, place: str, notes: dict[str, Any]) -> RawCollection:
        """Return the collection.

        Raises
        ------
        AnmiError
            There is no pair.
        """
        if not self._labels:
            raise AnmiError(f"{place} gives no pair; name at least one file with a row")
        names = ["query_id", "document_id", "relevance", "split"]
        qrels = pd.DataFrame(list(self._labels), columns=names, dtype="str")
        origins, lines = zip(*self._labels.values(), strict=True)
        return RawCollection(
            self._documents.table("document_id"),
            self._queries.table("query_id").drop(columns="title"),
            qrels.assign(file=list(origins), line=list(lines)),
            empty("head", "relation", "tail"),
            language=min(self._languages, key=lambda code: (-self._languages[code], code), default=None),
            notes=notes,
        )


def _labels(path: Path, line: int, name: str, value: Any) -> list[str]:
    """Return one label or a list of them as they are written."""
    given = value if isinstance(value, list) else [value]
    found = [str(int(each)) if isinstance(each, bool) else "" if each is None else str(each) for each in given]
    for text in found:
        with suppress(ValueError):
            if float(text) % 1:
                raise AnmiError(
                    f'{path} line {line} has the "{name}" {text}; a label is a whole number, 0 of a negative: name '
                    "another column by ingestion.columns.score, or leave it empty, and every pair counts as relevant"
                )
    return found


def read_pairs(location: str, options: Options) -> RawCollection:
    """Read pairs from tables.

    Parameters
    ----------
    location
        Patterns separated by semicolons; ``PATTERN@N`` takes the first N pairs of a pattern's files, which are read in
        the natural order of their numbers.
    options
        Of interest are ``columns``.

    Raises
    ------
    AnmiError
        If a pattern matches no file, or a file is damaged or lacks a column.
    """
    pairs = Pairs(options.columns)
    counts: dict[str, int] = {}
    seen: set[Path] = set()
    for pattern, cap, files in files_of_patterns(location):
        counts[pattern] = 0
        # A file that an earlier pattern has read is not read again.
        for path in (path for path in files if path.resolve() not in seen):
            if counts[pattern] >= cap:
                break
            if kind_of(path) not in ROW_FILES:
                raise AnmiError(f"{path} is no table; give files that end in {', '.join(sorted(ROW_FILES))}")
            seen.add(path.resolve())
            for number, value in read_rows(path):
                if counts[pattern] >= cap:
                    break
                counts[pattern] += 1
                pairs.add(path, number, value)
    return pairs.gathered(f"pairs:{location}", {"pairs": counts})


def files_of_patterns(location: str) -> list[tuple[str, float, list[Path]]]:
    """Return the patterns of a location, each with its cap (infinite without one) and the files it matches.

    Raises
    ------
    AnmiError
        If a pattern matches none.
    """
    patterns = [part.strip() for part in location.split(";") if part.strip()]
    capped = ((pattern, _CAP.fullmatch(pattern)) for pattern in patterns)
    return [(of, int(cap[2]) if cap else math.inf, find_files(cap[1] if cap else of)) for of, cap in capped]


def find_files(pattern: str) -> list[Path]:
    """Return the files a pattern matches, numbers in their names sorted as numbers.

    Raises
    ------
    AnmiError
        If there are none.
    """
    path, root = Path(pattern).expanduser(), root_of(pattern)
    wild = bool(_WILDCARD.search(pattern))
    found = root.glob(path.relative_to(root).as_posix()) if wild else [path]
    files = sorted((item for item in found if item.is_file()), key=_natural)
    if wild:
        # A file that is named in full may be a link, since the user named it; what a wildcard finds, nobody did.
        files = [inside(item, root) for item in files]
    if not files:
        raise AnmiError(f'no file matches "{pattern}"; check the path (now in {Path.cwd()})')
    return files


def root_of(pattern: str) -> Path:
    """Return the folder in front of a pattern's first wildcard; of a file that is named in full, the one it is in.

    Examples
    --------
    >>> root_of("notes/**/*.md").as_posix(), root_of("notes/a.md").as_posix()
    ('notes', 'notes')
    """
    parts = Path(pattern).expanduser().parts
    fixed = next((i for i, part in enumerate(parts) if _WILDCARD.search(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def _natural(path: Path) -> list[tuple[int, int, str]]:
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in _DIGITS.split(path.as_posix()) if part]


def _typed(value: dict[str, Any], key: str, shared: dict[str, Any]) -> dict[str, Any]:
    return {key: value[key], **shared} if key in value else shared
