"""Folders in the BEIR layout: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/{train,dev,test}.tsv``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd

from anmi.corpus.jsonl import clean, read_lines, read_texts
from anmi.corpus.raw import Options, RawCollection, no_labels, no_queries
from anmi.corpus.types import empty
from anmi.corpus.within import inside
from anmi.errors import AnmiError

# In order of preference; the first file that exists is taken.
_FILES: Final = {"train": ("train",), "dev": ("dev", "validation", "val"), "test": ("test",)}
_HEADER: Final = "query-id<TAB>corpus-id<TAB>score"


def read_beir(location: str, options: Options) -> RawCollection:
    """Read a folder in the BEIR layout.

    Labels of any split may be missing, of all as well: then there is nothing to mine, and training rests on
    pseudo-queries.

    Parameters
    ----------
    location
        The folder. Without any labels it needs no ``queries.jsonl``.
    options
        Not used; every reader takes them.

    Raises
    ------
    AnmiError
        If a file is missing, damaged, not in the layout, or a link out of the folder; or ``qrels`` holds tables and
        none has the name of a split.
    """
    folder = Path(location).expanduser()
    if not folder.is_dir():
        raise AnmiError(f"{folder} is not a folder; beir:DIR expects one with corpus.jsonl, queries.jsonl and qrels/")
    documents = read_texts(inside(folder / "corpus.jsonl", folder), "document_id")
    if (folder / "qrels").is_file():
        raise AnmiError(f"{folder / 'qrels'} is a file; a folder with train.tsv, dev.tsv or test.tsv was expected")
    found = {
        split: next((path for name in names if (path := folder / "qrels" / f"{name}.tsv").exists()), None)
        for split, names in _FILES.items()
    }
    labelled = [read_qrels(inside(path, folder), split) for split, path in found.items() if path]
    if not labelled and (others := sorted(path.name for path in (folder / "qrels").glob("*.tsv"))):
        # Labels under another name are a slip: the run would train on pseudo-queries and never say why.
        raise AnmiError(
            f"{folder / 'qrels'} has {others[0]} and no table of a split; call it train.tsv, dev.tsv or test.tsv"
        )
    asked = folder / "queries.jsonl"
    queries = (
        read_texts(inside(asked, folder), "query_id").drop(columns="title")
        if labelled or asked.exists()
        else no_queries()
    )
    qrels = pd.concat(labelled, ignore_index=True) if labelled else no_labels()
    return RawCollection(documents, queries, qrels, empty("head", "relation", "tail"))


def read_qrels(path: Path, split: str) -> pd.DataFrame:
    """Read one qrels file with its header.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id, relevance, split, file, line``; relevance as it was written.

    Raises
    ------
    AnmiError
        If the header is missing or a line has not three columns.
    """
    rows: list[tuple[str, str, str]] = []
    numbers: list[int] = []
    header = False
    for number, line in read_lines(path):
        fields = [clean(value).strip() for value in line.split("\t")]
        if not header:
            _check_header(path, number, fields)
            header = True
            continue
        if len(fields) != 3:
            raise AnmiError(f"{path} line {number} has {len(fields)} columns; three separated by tabs were expected")
        rows.append((fields[0], fields[1], fields[2]))
        numbers.append(number)
    if not rows:
        raise AnmiError(f"{path} has a header and no rows; at least one label was expected")
    frame = pd.DataFrame(rows, columns=["query_id", "document_id", "relevance"], dtype="str")
    return frame.assign(split=split, file=str(path), line=numbers)


def _check_header(path: Path, number: int, fields: list[str]) -> None:
    if len(fields) == 1 and len(fields[0].split()) > 1:
        raise AnmiError(f"{path} line {number} is not separated by tabs; its header should be {_HEADER}")
    try:
        float(fields[-1])
    except ValueError:
        if len(fields) == 3:
            return
        raise AnmiError(f"{path} line {number} has {len(fields)} columns; its header should be {_HEADER}") from None
    raise AnmiError(f"{path} line {number} is a label and not the header; put {_HEADER} in the first line")
