"""Training rows as they are held and stored: by number in memory, with texts in Parquet, block by block.

A document that is a negative of many rows stands once among the texts of a block of rows, in memory and in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anmi.ragged import read_table

# Rows of a row group. Its texts are held at once when it is written, and stored once.
GROUP: Final = 8192
# Columns of document numbers, and the columns of ids and texts that they become; None for no texts.
JOINED: Final[dict[str, str | None]] = {
    "positive_id": "positive",
    "positive_ids": None,
    "negative_ids": "negatives",
    "excluded_ids": None,
}
# Above the texts of any group: else the writer gives up the dictionary, and repeats the texts.
_PAGE: Final = 1 << 28


@dataclass(frozen=True)
class TrainingRows:
    """Training rows whose documents are numbers.

    Attributes
    ----------
    tables
        Rows of one schema, with int32 document indices in the columns of :data:`JOINED`.
    ids, texts
        Of the documents, in corpus order.
    """

    tables: list[pa.Table]
    ids: pa.Array
    texts: pa.Array

    def __len__(self) -> int:
        return sum(len(table) for table in self.tables)

    @property
    def negatives(self) -> int:
        """How many negatives all rows have."""
        return sum(len(part.flatten()) for table in self.tables for part in table.column("negative_ids").chunks)

    def blocks(self) -> Iterator[pa.Table]:
        """Yield :data:`GROUP` rows at a time with ids and texts; one block without rows where there are none."""
        rows = pa.concat_tables(self.tables)
        for start in range(0, max(len(rows), 1), GROUP):
            yield self._joined(rows.slice(start, GROUP).combine_chunks())

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows with ids and texts, lists as arrays."""
        return frame(pa.concat_tables(self.blocks()))

    def save(self, path: Path) -> None:
        """Write a Parquet file, one row group a block."""
        blocks = self.blocks()
        first = next(blocks)
        # Without Arrow's schema, so that every reader is given plain texts.
        with pq.ParquetWriter(
            path,
            first.schema,
            compression="zstd",
            store_schema=False,
            dictionary_pagesize_limit=_PAGE,
            write_page_checksum=True,
        ) as writer:
            writer.write_table(first)
            for block in blocks:
                writer.write_table(block)

    def _joined(self, block: pa.Table) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for name in block.column_names:
            column = block.column(name).combine_chunks()
            if name not in JOINED:
                columns[name] = column
                continue
            numbers, place = np.unique(_values(column).to_numpy(), return_inverse=True)
            for new, values in ((name, self.ids), (JOINED[name], self.texts)):
                if new is not None:
                    # Copies have one text: with it twice, the writer would give up the dictionary.
                    told = values.take(pa.array(numbers)).dictionary_encode()
                    columns[new] = _like(column, told.indices.to_numpy()[place], told.dictionary)
        return pa.table(columns)


def _values(column: pa.Array) -> pa.Array:
    return column.flatten() if pa.types.is_list(column.type) else column


def _like(column: pa.Array, place: NDArray[np.int64], values: pa.Array) -> pa.Array:
    """Return a column of the values at these places, in lists as long as those of another column."""
    found = pa.DictionaryArray.from_arrays(pa.array(place, pa.int32()), values)
    return listed(found, column.value_lengths().to_numpy(zero_copy_only=False)) if column.type != pa.int32() else found


def listed(values: pa.Array, lengths: NDArray[Any]) -> pa.ListArray:
    """Return values that are sorted by row as one list per row.

    Examples
    --------
    >>> listed(pa.array([3, 1, 2]), np.array([2, 0, 1])).to_pylist()
    [[3, 1], [], [2]]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def load(path: Path) -> pd.DataFrame:
    """Read a table of training rows, in which equal texts of a block are one object."""
    # Of plain columns pandas makes columns of its own, which hold no objects.
    texts = [
        f"{field.name}.list.element"
        for field in pq.read_schema(path)
        if pa.types.is_list(field.type) and pa.types.is_string(field.type.value_type)
    ]
    return frame(read_table(path, read_dictionary=texts))


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a table with its lists as arrays; texts of dictionaries become objects once, not at every place."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_list(column.type):
            parts = [part for chunk in column.chunks for part in _arrays(chunk)]
            columns[name] = pd.Series(parts, dtype=object)
        elif pa.types.is_dictionary(column.type):
            columns[name] = column.cast(column.type.value_type).to_pandas()
        else:
            columns[name] = column.to_pandas()
    return pd.DataFrame(columns)


def _arrays(column: pa.ListArray) -> list[NDArray[Any]]:
    values = column.flatten()
    if pa.types.is_dictionary(values.type):
        known = np.array([*values.dictionary.to_pylist(), None], dtype=object)[:-1]
        flat = known[values.indices.to_numpy()]
    else:
        flat = values.to_numpy(zero_copy_only=False)
    ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False)).tolist()
    return [flat[start:end] for start, end in pairwise([0, *ends])]
