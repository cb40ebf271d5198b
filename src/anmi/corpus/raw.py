"""What a reader hands over before it is checked, and the choices every reader may be given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pandas as pd

from anmi.corpus.types import ENTITY_COLUMNS, FACT_COLUMNS, RUN_COLUMNS, empty, table_of
from anmi.errors import AnmiError, nearest

MAX_DOCUMENT_CHARACTERS: Final = 1_000_000


# What a column of a table may hold.
Column = Literal["query", "positive", "negative", "score", "id", "title", "text"]


@dataclass(frozen=True)
class Options:
    """The choices of ``load_collection``; see there for their meaning."""

    seed: int = 42
    subset: int | None = None
    max_quarantine: float = 0.01
    dev_share: float = 0.15
    test_share: float = 0.2
    language: str | None = None
    columns: Mapping[Column, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RawCollection:
    """A collection as it was read: ids are unique and texts are strings, nothing else is promised.

    Attributes
    ----------
    documents
        ``document_id, title, text, metadata, file, line``; metadata as a JSON string.
    queries
        ``query_id, text, metadata, file, line``.
    qrels
        ``query_id, document_id, relevance, split, file, line``; relevance as it was written. All rows are ``train``
        where the source knows no splits.
    graph
        ``head, relation, tail``.
    same_text_is_equivalent
        Whether queries with the same normalised text have each other's documents as relevant ones.
    language
        ISO 639-1 code where the source names it.
    notes
        What the user is to know.
    entities
        ``uri, label, types, description``, types as a JSON list.
    facts
        ``document_id, head, relation, tail``: what a document states, in the terms of the graph; where there are none,
        they are gathered from the graph and from ``metadata.triples``.
    runs
        ``query_id, document_id, score, system``: what other systems found.
    set_aside
        ``kind, id, file, line, reason``: what the reader itself put into quarantine.
    """

    documents: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame
    graph: pd.DataFrame
    same_text_is_equivalent: bool = False
    language: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    entities: pd.DataFrame = field(default_factory=lambda: empty(*ENTITY_COLUMNS))
    facts: pd.DataFrame = field(default_factory=lambda: empty(*FACT_COLUMNS))
    runs: pd.DataFrame = field(default_factory=lambda: empty(*RUN_COLUMNS))
    set_aside: pd.DataFrame = field(default_factory=table_of)


def no_queries() -> pd.DataFrame:
    """Return the queries of a collection that has none: ``query_id, text, metadata, file, line``."""
    return empty("query_id", "text", "metadata", "file").assign(line=pd.Series(dtype="int64"))


def no_labels() -> pd.DataFrame:
    """Return the labels of a collection without any: ``query_id, document_id, relevance, split, file, line``."""
    return empty("query_id", "document_id", "relevance", "split", "file").assign(line=pd.Series(dtype="int64"))


def inside(path: Path, folder: Path) -> Path:
    """Return a file of a folder, unless it is a link that leads out of it.

    Whoever packed a collection may have put a link to ``~/.aws/credentials`` in it; read as a document, that would
    be shown in reports and sent to judges. The folder itself may be a link: the user named it.

    Parameters
    ----------
    path
        A file, which need not exist.
    folder
        That it must lie in once all links are followed.

    Raises
    ------
    AnmiError
        It lies elsewhere.
    """
    try:
        leads_in = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise AnmiError(f"{path} cannot be followed ({error}); put the file itself there") from None
    if not leads_in:
        raise AnmiError(
            f"{path} is a link that leads out of {folder}; a collection is read from its own folder alone, so put the "
            "file itself there"
        )
    return path


# Kind: module and function that read it, and what follows the colon (nothing for a built-in collection).
READERS: Final[dict[str, tuple[str, str]]] = {
    "api_docs": ("anmi.corpus.api_docs:read_api_docs", ""),
    "beir": ("anmi.corpus.kg:read_beir", "DIR"),
    "kg": ("anmi.corpus.kg:read_kg", "DIR"),
    "pairs": ("anmi.corpus.pairs:read_pairs", "GLOB[;GLOB…]"),
    "docs": ("anmi.corpus.files_source:read_docs", "GLOB[;GLOB…]"),
    "ir_datasets": ("anmi.corpus.libraries:read_ir_datasets", "ID"),
    "hf": ("anmi.corpus.libraries:read_hf", "PATH_OR_NAME[:CONFIG][:SPLIT]"),
}
ROW_FILES: Final = frozenset({".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".feather"})


def kind_of(path: Path) -> str:
    """Return the ending of a file in lower case; where it is packed, the one before ``.gz``.

    Examples
    --------
    >>> kind_of(Path("a.jsonl.gz")), kind_of(Path("b.CSV"))
    ('.jsonl', '.csv')
    """
    return Path(path.stem if path.suffix.lower() == ".gz" else path).suffix.lower()


def kind_and_place(collection: str) -> tuple[str, str]:
    """Return the kind of a collection and where it lies.

    Raises
    ------
    AnmiError
        The kind is unknown, or the place is missing, or it is there and should not be.

    Examples
    --------
    >>> kind_and_place("beir:../shared/data/scifact"), kind_and_place("api_docs")
    (('beir', '../shared/data/scifact'), ('api_docs', ''))
    >>> kind_and_place("beir:")
    Traceback (most recent call last):
    anmi.errors.AnmiError: collection "beir:" lacks its place: write it as beir:DIR
    """
    kind, colon, place = collection.partition(":")
    if kind not in READERS:
        there = Path(collection)
        hint = f'for what lies there write "{likely_kind(there)}:{collection}"' if there.exists() else None
        raise AnmiError(f'there is no collection "{collection}": {hint or nearest(kind, READERS)}')
    argument = READERS[kind][1]
    if argument and not place.strip():
        raise AnmiError(f'collection "{collection}" lacks its place: write it as {kind}:{argument}')
    if colon and not argument:
        raise AnmiError(f'collection "{collection}" takes nothing after the name: write it as {kind}')
    return kind, place.strip()


def likely_kind(place: Path) -> str:
    """Return what kind of collection a folder or file seems to be, by its name and what lies in it.

    Examples
    --------
    >>> likely_kind(Path("docs")), likely_kind(Path("pairs.csv"))
    ('docs', 'pairs')
    """
    if any(place.glob("corpus.*")):
        return "beir"
    if (place / "dataset_dict.json").exists() or (place / "state.json").exists():
        return "hf"
    return "pairs" if kind_of(place) in ROW_FILES else "docs"
