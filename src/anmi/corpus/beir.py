"""The module reads folders in the BEIR layout, labels and runs of TREC."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.corpus.places import inside, kind_of
from anmi.corpus.rows import Row, read_lines, read_rows, read_texts
from anmi.corpus.texts import clean
from anmi.corpus.types import RUN_COLUMNS, RUN_ENDINGS, Options, RawCollection, empty
from anmi.errors import AnmiError

# In order of preference; the first file that exists is taken.
SPLIT_NAMES: Final = {"train": ("train",), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
_COLUMNS: Final = ("query-id", "corpus-id", "score")
_HEADER: Final = "<TAB>".join(_COLUMNS)
_TEXTS: Final = (".jsonl", ".jsonl.gz", ".parquet")
_LABELS: Final = (".tsv", ".parquet", ".txt", ".trec", ".qrels")


def read_beir(location: str, options: Options) -> RawCollection:
    """Read a folder in the BEIR layout.

    Labels of any split may be missing, of all as well: then there is nothing to mine, and training rests on
    pseudo-queries.

    Parameters
    ----------
    location
        The folder. Without any labels it needs no ``queries.jsonl``.
    options
        Of interest are ``columns``.

    Raises
    ------
    AnmiError
        If a file is missing, damaged, not in the layout, or a link out of the folder; or ``qrels`` holds tables and
        none has the name of a split.
    """
    folder = Path(location).expanduser()
    if not folder.is_dir():
        raise AnmiError(f"{folder} is not a folder; one with corpus.jsonl, queries.jsonl and qrels/ was expected")
    place = folder / "qrels"
    if place.is_file():
        raise AnmiError(f"{place} is a file; a folder with train.tsv, dev.tsv or test.tsv was expected")
    corpus = inside(_first(folder, ["corpus"], _TEXTS) or folder / "corpus.jsonl", folder)
    documents = read_texts(corpus, "document", options.columns)
    found = {split: _first(place, names, _LABELS) for split, names in SPLIT_NAMES.items()}
    tables = {path.name: read_qrels(inside(path, folder), split) for split, path in found.items() if path}
    others = sorted(path.name for path in place.glob("*.*") if path.suffix in _LABELS)
    if not tables and others:
        # Labels under another name are a slip: the run would train on pseudo-queries and never say why.
        raise AnmiError(f"{place} has {others[0]} and no table of a split; call it train.tsv, dev.tsv or test.tsv")
    asked = _first(folder, ["queries"], _TEXTS)
    parts: dict[str, Any] = {}
    if labelled := [table for table in tables.values() if len(table)]:
        parts["qrels"] = pd.concat(labelled, ignore_index=True)
    if asked or labelled:
        path = inside(asked or folder / "queries.jsonl", folder)
        parts["queries"] = read_texts(path, "query", options.columns).drop(columns="title")
    runs = sorted(path for path in (folder / "runs").glob("*") if path.suffix in RUN_ENDINGS)
    return RawCollection(
        documents, **parts,
        notes={name: "is empty, as if it were not there" for name, table in tables.items() if table.empty},
        runs=pd.concat([empty(*RUN_COLUMNS), *(read_run(inside(path, folder)) for path in runs)], ignore_index=True),
    )  # fmt: skip


def _first(folder: Path, names: Iterable[str], endings: Sequence[str]) -> Path | None:
    """Return the first file that exists, or is a link."""
    places = (folder / f"{name}{ending}" for name in names for ending in endings)
    return next((path for path in places if path.is_symlink() or path.exists()), None)


def read_run(path: Path) -> pd.DataFrame:
    """Read a run of TREC: query, Q0, document, rank, score and tag, separated by blanks.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id, score, system``: the system has the name of the file.

    Raises
    ------
    AnmiError
        A line is no such line.
    """
    rows = []
    for number, line in read_lines(path):
        try:
            query, _, document, _, score, _ = line.split()
            if not math.isfinite(value := float(score)):
                raise ValueError
        except ValueError:
            raise AnmiError(f'{path} line {number} is "{line[:100]}"; six columns of TREC were expected: query, Q0, '
                            "document, rank, score (a number), tag") from None  # fmt: skip
        rows.append((query, document, value, path.name))
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS))


def read_qrels(path: Path, split: str) -> pd.DataFrame:
    """Read one file of labels; that of dev may be empty.

    It is Parquet, or has a header and three columns separated by tabs, or four of TREC (query, 0, document, relevance)
    separated by blanks and no header.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id, relevance, split, file, line``; relevance as it was written.

    Raises
    ------
    AnmiError
        If the header is missing or a line has not as many columns.
    """
    if kind_of(path) == ".parquet":
        return labels_of(path, read_rows(path), split)
    lines = read_lines(path) if split != "dev" or path.read_bytes().strip() else ()
    rows = [(number, [clean(value).strip() for value in line.split("\t")]) for number, line in lines]
    wanted, what = 3, "three separated by tabs were expected"
    if rows and len(trec := " ".join(rows[0][1]).split()) == 4 and trec[3].lstrip("-").isdecimal():
        rows = [(number, " ".join(fields).split()) for number, fields in rows]
        wanted, what = 4, "four of TREC were expected: query, 0, document, relevance"
    elif rows:
        number, fields = rows.pop(0)
        if len(fields) != 3 or fields[2].replace(".", "").isdecimal():
            raise AnmiError(
                f"{path} line {number} is not the header; its columns should be {_HEADER}, separated by tabs"
            )
    for number, fields in rows:
        if len(fields) != wanted:
            raise AnmiError(f"{path} line {number} has {len(fields)} columns; {what}")
    return _table(path, [(number, [fields[0], *fields[-2:]]) for number, fields in rows], split)


def labels_of(path: Path, rows: Iterable[Row], split: str) -> pd.DataFrame:
    """Return the labels of rows with the columns ``query-id``, ``corpus-id`` and ``score``; see :func:`read_qrels`."""
    try:
        return _table(path, [(line, [str(values[name]) for name in _COLUMNS]) for line, values in rows], split)
    except KeyError as error:
        raise AnmiError(f"{path} has no column {error}; {', '.join(_COLUMNS)} were expected") from None


def _table(path: Path, rows: Sequence[tuple[int, Sequence[str]]], split: str) -> pd.DataFrame:
    if not rows and split != "dev":
        raise AnmiError(f"{path} has a header and no rows; at least one label was expected")
    labels = [fields for _, fields in rows]
    frame = pd.DataFrame(labels, columns=["query_id", "document_id", "relevance"], dtype="str")
    return frame.assign(split=split, file=str(path), line=[number for number, _ in rows])
