"""A folder that nodes keep unfinished work in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedro.io.core import AbstractDataset, DatasetError

from anmi.errors import AnmiError


class WorkFolderDataset(AbstractDataset[Any, Path]):  # type: ignore[misc]
    """A local folder for what is finished bit by bit, such as the cells of an ablation; nodes get its path.

    It is no artifact: it has no versions, its files carry their own fingerprints, and deleting it loses time only.

    Parameters
    ----------
    filepath
        The folder; made when absent.
    metadata
        Read by kedro-viz.
    """

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        if "://" in filepath:
            raise AnmiError(
                f"{filepath} is remote, and unfinished work needs a local disk: set `work` in globals.yml to a folder"
            )
        self._filepath = Path(filepath)
        self.metadata = metadata

    def load(self) -> Path:
        """Return the folder."""
        self._filepath.mkdir(parents=True, exist_ok=True)
        return self._filepath.resolve()

    def save(self, data: Any) -> None:
        """Refuse: nodes write into the folder while they work."""
        raise DatasetError("a work folder is written into by nodes; it cannot be the output of a node")

    def _exists(self) -> bool:
        return self._filepath.is_dir()

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath)}
