"""Titles and texts of documents on disk, of which only what was found is read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: Final = ("document_id", "title", "text")
# What is read for one document: few enough for a look, enough to compress well.
_GROUP: Final = 500


def write(corpus: pd.DataFrame, path: Path) -> None:
    """Write ``document_id, title, text`` of a corpus, in its order, as Parquet in groups that are read one by one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(corpus[list(COLUMNS)].astype(str), preserve_index=False)
    pq.write_table(table, path, row_group_size=_GROUP)


class Documents:
    """What :func:`write` wrote; nothing is read before it is asked for.

    Parameters
    ----------
    path
        The Parquet file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def __getitem__(self, rows: Iterable[int]) -> dict[int, dict[str, str]]:
        """Return ``document_id, title, text`` by row, of the rows asked for."""
        wanted: dict[int, list[int]] = {}
        for row in set(rows):
            wanted.setdefault(row // _GROUP, []).append(row)
        found: dict[int, dict[str, str]] = {}
        for group, members in wanted.items():
            table = self._file.read_row_group(group)
            found |= {row: table.slice(row - group * _GROUP, 1).to_pylist()[0] for row in members}
        return found

    @cached_property
    def _file(self) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.path, memory_map=True)
