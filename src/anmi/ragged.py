"""Types of arrays, padded arrays of rows of unlike length, and the Arrow lists they are on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anmi.errors import AnmiError

Bools: TypeAlias = NDArray[np.bool_]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Float32s: TypeAlias = NDArray[np.float32]
Float64s: TypeAlias = NDArray[np.float64]


def in_rows(values: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """Return the values at places of each row: [Q, K] from [Q, M] and places [Q, K].

    Examples
    --------
    >>> in_rows(np.array([[5, 6, 7]]), np.array([[2, 0]])).tolist()
    [[7, 5]]
    """
    return np.take_along_axis(values, places, axis=1)


def lists(values: NDArray[Any], filled: NDArray[np.bool_]) -> pa.Array:
    """Return the filled cells of each row as a list: an Arrow list array of length Q from [Q, M].

    Examples
    --------
    >>> lists(np.array([[1, 2], [3, 0]]), np.array([[True, True], [True, False]])).to_pylist()
    [[1, 2], [3]]
    """
    offsets = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[filled]))


def padded_array(column: pa.ChunkedArray, padding: float, min_width: int = 0) -> NDArray[Any]:
    """Return lists as a padded array [Q, M], with M the longest, but at least ``min_width``.

    Examples
    --------
    >>> padded_array(pa.chunked_array([pa.array([[1, 2], [3]])]), -1).tolist()
    [[1, 2], [3, -1]]
    """
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    lengths = array.value_lengths().to_numpy(zero_copy_only=False)
    values = array.flatten().to_numpy(zero_copy_only=False)
    width = int(lengths.max(initial=min_width))
    result = np.full((len(lengths), width), padding, dtype=values.dtype)
    result[np.arange(width)[None, :] < lengths[:, None]] = values
    return result


def read_table(
    source: bytes | Path,
    choose: Callable[[list[str]], list[str]] | None = None,
    **options: Any,
) -> pa.Table:
    """Read a Parquet file, or the bytes of one, and verify the checksums of its pages.

    Parameters
    ----------
    source
        The file or its bytes.
    choose
        Returns the columns to read, of all by name.
    options
        For :class:`pyarrow.parquet.ParquetFile`.

    Raises
    ------
    AnmiError
        It is damaged.
    """
    stored = pa.BufferReader(source) if isinstance(source, bytes) else source
    try:
        with pq.ParquetFile(stored, page_checksum_verification=True, **options) as file:
            names = choose and choose(file.schema_arrow.names)
            # One after the other: Arrow cannot read lists of dictionaries from several row groups
            # at once.
            groups = [file.read_row_group(place, names) for place in range(file.num_row_groups)]
            return pa.concat_tables(groups) if groups else file.read(names)
    except (OSError, ValueError, pa.ArrowException) as error:
        place = "a part" if isinstance(source, bytes) else source
        raise AnmiError(
            f"{place} is damaged ({str(error)[:200]}): make it again with `kedro run`"
        ) from error


def table_bytes(table: pa.Table) -> bytes:
    """Return a table of such lists as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    # Measurements hardly repeat: dictionaries of them take most of the time and some of the space,
    # and lz4 takes less time than zstd to write and to read, for more space.
    pq.write_table(table, sink, compression="lz4", use_dictionary=False, write_page_checksum=True)
    return bytes(sink.getvalue())
