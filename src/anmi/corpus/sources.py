"""One string names a collection; one function per scheme reads it.

A new kind of source is one function from (location, options) to :class:`RawCollection` and one line in
:data:`anmi.corpus.raw.READERS`.
"""

from __future__ import annotations

import hashlib
import importlib
import zlib
from collections.abc import Callable, Mapping

import pyarrow.compute as pc

from anmi.corpus.checks import assemble
from anmi.corpus.language import language_code, load_ahead
from anmi.corpus.raw import READERS, Column, Options, RawCollection, kind_and_place
from anmi.corpus.texts import arrow, document_texts, joined_bytes
from anmi.corpus.types import Collection
from anmi.errors import AnmiError

__all__ = ["document_texts", "fingerprint", "load_collection"]

Reader = Callable[[str, Options], RawCollection]


def reader_of(kind: str) -> Reader:
    """Return what reads a kind of collection of :data:`anmi.corpus.raw.READERS`."""
    module, _, function = READERS[kind][0].partition(":")
    reader: Reader = getattr(importlib.import_module(module), function)
    return reader


def load_collection(
    collection: str,
    *,
    seed: int = 42,
    subset: int | None = None,
    max_quarantine: float = 0.01,
    dev_share: float = 0.15,
    test_share: float = 0.2,
    language: str | None = None,
    columns: Mapping[Column, str] | None = None,
) -> Collection:
    """Read, check and split the collection that one string names.

    Parameters
    ----------
    collection
        ``api_docs`` | ``beir:DIR`` | ``kg:DIR`` | ``pairs:GLOB[;GLOB…]`` | ``docs:GLOB[;GLOB…]`` | ``ir_datasets:ID``
        | ``hf:PATH_OR_NAME[:CONFIG][:SPLIT]``.
    seed
        Keys the hashes that cut splits and choose the subset.
    subset
        Cap on training queries, chosen by hash; dev, test and the corpus stay whole. ``None`` takes all.
    max_quarantine
        Share in [0, 1] of damaged documents, queries or qrels above which loading fails. A single damaged row never
        does, unless this is 0.
    dev_share, test_share
        Shares of the training queries cut off where the source has no such split.
    language
        See :func:`anmi.corpus.language.language_code`; recognised from a sample of documents when ``None``.
    columns
        What columns of tables are called, where it is no usual name; an empty name takes none.

    Returns
    -------
    Collection
        The same in every process for the same input and arguments.

    Raises
    ------
    AnmiError
        If the string or what it names is wrong.
    """
    if not 0 <= dev_share < 1 or not 0 <= test_share < 1 or dev_share + test_share >= 1:
        raise AnmiError(
            f"ingestion.dev_share {dev_share} and ingestion.test_share {test_share} leave nothing to train on"
        )
    if not 0 <= max_quarantine <= 1:
        raise AnmiError(f"ingestion.max_quarantine is {max_quarantine}; a share between 0 and 1 was expected")
    if subset is not None and subset < 1:
        raise AnmiError(f"ingestion.max_queries is {subset}; at least 1 training query was expected")
    kind, location = kind_and_place(collection)
    code = language_code(language) if language else None
    if not code and not collection.startswith("api_docs"):
        load_ahead()
    options = Options(seed, subset, max_quarantine, dev_share, test_share, code, columns or {})
    if "\0" in location:
        raise AnmiError(f'collection "{collection[:200]}" has a zero byte in its place; no file is called so')
    try:
        raw = reader_of(kind)(location, options)
    except (OSError, RuntimeError, EOFError, zlib.error) as error:
        if isinstance(error, RecursionError):
            raise
        # The home of nobody, a name too long for a file, a folder that may not be read: the error says which.
        raise AnmiError(f'collection "{collection[:200]}" cannot be read ({error}); check its place') from error
    return assemble(collection, raw, options)


def fingerprint(collection: Collection) -> str:
    """Return a hash of the corpus, the queries and the qrels, in their order.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    for table in (collection.corpus, collection.queries, collection.qrels):
        for name in sorted(table.columns):
            # Lengths before values: two columns never hash like one with the same characters.
            values = arrow(table[name])
            digest.update(f"{name}:{','.join(map(str, pc.binary_length(values).to_pylist()))}".encode())
            digest.update(joined_bytes(values))
    return digest.hexdigest()
