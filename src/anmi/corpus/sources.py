"""One string names a collection; the module reads, checks and splits it.

A new kind of source is one function from (location, options) to :class:`anmi.corpus.types.RawCollection` and one line
in :data:`anmi.corpus.places.READERS`.
"""

from __future__ import annotations

import hashlib
import importlib
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anmi.corpus.checks import assemble
from anmi.corpus.language import language_code
from anmi.corpus.places import READERS, kind_and_place
from anmi.corpus.texts import arrow
from anmi.corpus.types import Collection, Options, RawCollection
from anmi.errors import AnmiError


def load_collection(collection: str, **options: Any) -> Collection:
    """Read, check and split the collection that one string names.

    Parameters
    ----------
    collection
        ``api_docs`` | ``beir:DIR`` | ``kg:DIR`` | ``pairs:GLOB[;GLOB…]`` | ``docs:GLOB[;GLOB…]`` | ``ir_datasets:ID``
        | ``hf:PATH_OR_NAME[:CONFIG][:SPLIT]``.
    options
        See :class:`anmi.corpus.types.Options`.

    Returns
    -------
    Collection
        The same in every process for the same input and options.

    Raises
    ------
    AnmiError
        If the string or what it names is wrong.
    """
    given = Options(**options)
    given = replace(given, language=language_code(given.language) if given.language else None)
    kind, location = kind_and_place(collection)
    if "\0" in location:
        raise AnmiError(f'collection "{collection[:200]}" has a zero byte in its place; no file is called so')
    module, _, function = READERS[kind][0].partition(":")
    try:
        raw: RawCollection = getattr(importlib.import_module(module), function)(location, given)
    except RecursionError:
        raise
    except (OSError, RuntimeError, EOFError, zlib.error) as error:
        # The home of nobody, a name too long for a file, a folder that may not be read: the error says which.
        raise AnmiError(f'collection "{collection[:200]}" cannot be read ({error}); check its place') from error
    return assemble(collection, raw, given)


def fingerprint(collection: Collection) -> str:
    """Return a hash of the corpus, the queries and the qrels, in their order, as 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for table in (collection.corpus, collection.queries, collection.qrels):
        for name in sorted(table.columns):
            # Lengths before values: two columns never hash like one with the same characters.
            values = arrow(table[name])
            digest.update(f"{name}:{','.join(map(str, pc.binary_length(values).to_pylist()))}".encode())
            digest.update(_joined_bytes(values))
    return digest.hexdigest()


def _joined_bytes(values: pa.LargeStringArray) -> memoryview:
    """Return the bytes of all texts, one behind the other, as they lie in memory."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return memoryview(b"")
    first, last = np.frombuffer(offsets, np.int64)[[values.offset, values.offset + len(values)]]
    return memoryview(data)[first:last]
