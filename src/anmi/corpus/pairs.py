"""Query–document pairs in JSONL files: ``query, document, query_type, doc_type, source, language``."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.jsonl import read_objects, string, to_json
from anmi.corpus.raw import Options, RawCollection, inside
from anmi.corpus.types import empty
from anmi.errors import AnmiError

_WILDCARD: Final = re.compile(r"[*?\[]")
_CAP: Final = re.compile(r"(.*)@(\d+)")
_DIGITS: Final = re.compile(r"(\d+)")
_OWN_KEYS: Final = frozenset({"query", "document", "query_type", "doc_type"})


@dataclass
class _Texts:
    """Distinct texts in the order of their first appearance."""

    prefix: str
    rows: dict[str, tuple[str, str, str, int]] = field(default_factory=dict)

    def add(self, text: str, metadata: dict[str, Any], path: Path, line: int) -> str:
        # Empty texts are damage: each is counted, so they must not merge into one.
        content = text if text.strip() else f"\x1f{path}\x1f{line}"
        identifier = self.prefix + hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
        if identifier not in self.rows:
            self.rows[identifier] = (text, to_json(metadata), str(path), line)
        return identifier

    def table(self, id_column: str) -> pd.DataFrame:
        text, metadata, file, line = zip(*self.rows.values(), strict=True)
        columns = {id_column: list(self.rows), "text": text, "metadata": metadata, "file": file}
        return pd.DataFrame(columns, dtype="str").assign(line=list(line))


def read_pairs(location: str, options: Options) -> RawCollection:
    """Read pairs; equal queries become one query with several positives, equal documents one document.

    Parameters
    ----------
    location
        Patterns separated by semicolons; ``PATTERN@N`` takes the first N pairs of a pattern's files, which are read in
        the natural order of their numbers.
    options
        Not used; every reader takes them.

    Raises
    ------
    AnmiError
        If a pattern matches no file or a line is damaged.
    """
    queries, documents = _Texts("q"), _Texts("d")
    labels: dict[tuple[str, str], tuple[str, int]] = {}
    languages: Counter[str] = Counter()
    pairs: dict[str, int] = {}
    seen: set[Path] = set()
    for pattern, cap, files in files_of_patterns(location):
        pairs[pattern] = 0
        # A file that an earlier pattern has read is not read again.
        for path in (path for path in files if path.resolve() not in seen):
            if pairs[pattern] >= cap:
                break
            seen.add(path.resolve())
            for number, value in read_objects(path):
                if pairs[pattern] >= cap:
                    break
                pairs[pattern] += 1
                shared = {key: item for key, item in value.items() if key not in _OWN_KEYS}
                query, document = string(value, "query", path, number), string(value, "document", path, number)
                pair = (
                    queries.add(query, _typed(value, "query_type", shared), path, number),
                    documents.add(document, _typed(value, "doc_type", shared), path, number),
                )
                labels.setdefault(pair, (str(path), number))
                if isinstance(value.get("language"), str):
                    languages[value["language"]] += 1
    if not labels:
        raise AnmiError(f"pairs:{location} gives no pair; name at least one file with a line")
    qrels = pd.DataFrame(list(labels), columns=["query_id", "document_id"], dtype="str")
    origins, lines = zip(*labels.values(), strict=True)
    return RawCollection(
        documents.table("document_id").assign(title=pd.Series("", index=range(len(documents.rows)), dtype="str")),
        queries.table("query_id"),
        qrels.assign(relevance="1", split="train", file=list(origins), line=list(lines)),
        empty("head", "relation", "tail"),
        language=min(languages, key=lambda code: (-languages[code], code), default=None),
        notes={"pairs": pairs},
    )


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
