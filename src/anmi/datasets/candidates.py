"""Candidates on disk: a folder of Parquet shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from kedro.io.core import DatasetError

from anmi.candidates import Candidates, CandidateShards
from anmi.datasets.artifact import ArtifactDataset

if TYPE_CHECKING:
    from kedro_datasets._typing import TablePreview


class CandidateShardsDataset(ArtifactDataset):
    """Blocks of candidates, one Parquet file per block, read and written one block at a time.

    Saving pulls the blocks through the functions that make them, so memory holds one block; equal blocks give equal
    bytes. Loading returns :class:`anmi.candidates.CandidateShards` that read the files at each pass.
    """

    is_folder: ClassVar[bool] = True

    def _write(self, data: CandidateShards | Candidates, path: Path) -> None:
        if not isinstance(data, (Candidates, CandidateShards)):
            raise DatasetError(f"expected candidates for {self._filepath.name}, got {type(data).__name__}")
        path.mkdir()
        shards = CandidateShards.of([data]) if isinstance(data, Candidates) else data
        for number, part in enumerate(shards.parts()):
            (path / f"part-{number:05d}.parquet").write_bytes(part)

    def _read(self, path: Path) -> CandidateShards:
        return CandidateShards.read(sorted(path.glob("part-*.parquet")))

    def preview(self) -> TablePreview:
        """Show the first rows in kedro-viz."""
        first = next(iter(self.load()), None)
        table = first.take(slice(0, 5)).to_table().to_pandas().astype(str) if first is not None else None
        return cast("TablePreview", {} if table is None else table.to_dict(orient="split"))
