"""The module reads query–document pairs from tables, with negatives and labels where there are any."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from anmi.corpus.places import ROW_FILES, files_of_pairs, kind_of
from anmi.corpus.rows import TextTable, columns_of, read_rows, texts_in
from anmi.corpus.texts import clean
from anmi.corpus.types import Column, Options, RawCollection
from anmi.errors import AnmiError

# Origin, number, values and split of a row.
Pair = tuple[Path, int, dict[str, Any], str]


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
    counts: dict[str, int] = {}

    def rows() -> Iterator[Pair]:
        seen: set[Path] = set()
        for pattern, cap, files in files_of_pairs(location):
            counts[pattern] = 0
            # A file that an earlier pattern has read is not read again.
            for path in (path for path in files if path.resolve() not in seen):
                if kind_of(path) not in ROW_FILES:
                    raise AnmiError(f"{path} is no table; give files that end in {', '.join(sorted(ROW_FILES))}")
                if counts[pattern] < cap:
                    seen.add(path.resolve())
                    for number, values in read_rows(path):
                        if counts[pattern] == cap:
                            break
                        counts[pattern] += 1
                        yield path, number, values, "train"

    return gather_pairs(f"pairs:{location}", rows(), options, {"pairs": counts})


def gather_pairs(name: str, rows: Iterable[Pair], options: Options, notes: dict[str, Any]) -> RawCollection:
    """Make a collection of pairs: equal queries become one with several positives, equal documents one document.

    Raises
    ------
    AnmiError
        There is no pair, a column is missing, or it holds something else.
    """
    queries, documents = TextTable("query"), TextTable("document")
    labels: dict[tuple[str, str, str, str], tuple[str, int]] = {}
    languages = Counter[str]()
    for path, line, values, split in rows:
        columns: dict[Column, tuple[str, ...]] = {
            what: columns_of(path, line, values, what, options.columns, needed=what in ("query", "positive"))
            for what in ("query", "positive", "negative", "score", "title")
        }
        used = {each for found in columns.values() for each in found} | {"query_type", "doc_type"}
        shared = {key: item for key, item in values.items() if key not in used}
        texts = {
            what: [each for column in columns[what] for each in texts_in(path, line, column, values[column])]
            for what in ("query", "positive", "negative")
        }
        scores = [score for column in columns["score"] for score in _scores(path, line, column, values[column])]
        if len(texts["query"]) != 1 or (len(scores) > 1 and len(scores) != len(texts["positive"])):
            raise AnmiError(
                f"{path} line {line} has {len(texts['query'])} queries, {len(texts['positive'])} documents and "
                f"{len(scores)} labels; one query was expected, and one label or as many as documents"
            )
        scores = scores if len(scores) > 1 else (scores or ["1"]) * len(texts["positive"])
        title = "".join(clean(values[column]) for column in columns["title"] if isinstance(values[column], str))
        prefix = "" if split == "train" else f"{split}-"
        query = _added(queries, f"{prefix}q", texts["query"][0][1], _typed(values, "query_type", shared), path, line)
        metadata = _typed(values, "doc_type", shared)
        found = [
            (_added(documents, "d", text, metadata, path, line, own or title), score)
            for (own, text), score in zip(texts["positive"], scores, strict=True)
        ]
        negatives = [each for each in texts["negative"] if each[1].strip()]
        found += [(_added(documents, "d", text, {}, path, line, own), "0") for own, text in negatives]
        for document, score in found:
            labels.setdefault((query, document, score, split), (str(path), line))
        if isinstance(values.get("language"), str):
            languages[values["language"]] += 1
    if not labels:
        raise AnmiError(f"{name} gives no pair; name at least one file with a row")
    table = [(*label, *place) for label, place in labels.items()]
    return RawCollection(
        documents.table(), queries.table().drop(columns="title"),
        pd.DataFrame(table, columns=["query_id", "document_id", "relevance", "split", "file", "line"]),
        language=min(languages, key=lambda code: (-languages[code], code), default=None), notes=notes,
    )  # fmt: skip


def _added(
    table: TextTable, prefix: str, text: str, metadata: Mapping[str, Any], path: Path, line: int, title: str = ""
) -> str:
    """Return the id of a text, which is a hash of it; a text is added where it comes first."""
    # Empty texts are damage: each is counted, so they must not merge into one.
    content = f"{title}\x1f{text}" if title else text if text.strip() else f"\x1f{path}\x1f{line}"
    identifier = prefix + hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    if identifier not in table:
        table.add(identifier, text, metadata, path, line, title)
    return identifier


def _scores(path: Path, line: int, name: str, value: Any) -> list[str]:
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


def _typed(values: Mapping[str, Any], key: str, shared: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key], **shared} if key in values else shared
