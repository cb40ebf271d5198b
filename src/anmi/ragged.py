"""Padded arrays of rows of different length, and the Arrow lists that they are on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray


def lists(values: NDArray[Any], filled: NDArray[np.bool_]) -> pa.Array:
    """Return the filled cells of each row as a list: an Arrow list array of length Q from [Q, M].

    Examples
    --------
    >>> lists(np.array([[1, 2], [3, 0]]), np.array([[True, True], [True, False]])).to_pylist()
    [[1, 2], [3]]
    """
    offsets = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[filled]))


def padded_array(column: pa.ChunkedArray, padding: float, least: int = 0) -> NDArray[Any]:
    """Return lists as an array [Q, M] with M the longest, but at least ``least``; the rest is padding.

    Examples
    --------
    >>> padded_array(pa.chunked_array([pa.array([[1, 2], [3]])]), -1).tolist()
    [[1, 2], [3, -1]]
    """
    found = column.combine_chunks()
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    lengths = found.value_lengths().to_numpy(zero_copy_only=False)
    values = found.flatten().to_numpy(zero_copy_only=False)
    width = int(lengths.max(initial=least))
    result = np.full((len(lengths), width), padding, dtype=values.dtype)
    result[np.arange(width)[None, :] < lengths[:, None]] = values
    return result


def table_bytes(table: pa.Table) -> bytes:
    """Return a table of such lists as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    # Measurements hardly repeat: dictionaries of them take most of the time and some of the space, and lz4 takes less
    # time than zstd to write and to read, for more space.
    pq.write_table(table, sink, compression="lz4", use_dictionary=False)
    return bytes(sink.getvalue())
