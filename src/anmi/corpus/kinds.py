"""The kinds of collections, and how one is named: ``KIND`` or ``KIND:PLACE``. Imports nothing that takes long."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from anmi.errors import AnmiError, nearest

# Kind: module and function that read it, and what follows the colon (nothing for a built-in collection).
READERS: Final[dict[str, tuple[str, str]]] = {
    "api_docs": ("anmi.corpus.api_docs:read_api_docs", ""),
    "beir": ("anmi.corpus.beir:read_beir", "DIR"),
    "kg": ("anmi.corpus.kg:read_kg", "DIR"),
    "pairs": ("anmi.corpus.pairs:read_pairs", "GLOB[;GLOB…]"),
    "docs": ("anmi.corpus.files_source:read_docs", "GLOB[;GLOB…]"),
    "ir_datasets": ("anmi.corpus.ir_datasets_source:read_ir_datasets", "ID"),
}
_ROWS: Final = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"})


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
    if (place / "corpus.jsonl").exists():
        return "beir"
    return "pairs" if place.suffix.lower() in _ROWS else "docs"
