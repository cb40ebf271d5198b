"""The manifests of all runs under a data root, local or remote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from anmi.errors import AnmiError, nearest
from anmi.locks import is_held, state
from anmi.runs.places import Place

LOCK: Final = "lock"
_MANIFEST: Final = "manifest.json"
# A run whose host cannot be asked is given up when it has noted nothing for so long.
_SILENT: Final = timedelta(days=7)
# Runs by their place among those that are finished, from the end.
NAMED: Final = {"latest": 1, "previous": 2}
UNFINISHED: Final = ("killed", "failed", "interrupted")


class Runs:
    """What runs noted under a data root.

    Parameters
    ----------
    root
        The data root, a path or a URL.
    """

    def __init__(self, root: str) -> None:
        self.place = Place(root)
        self.root, self.is_local = self.place.root, self.place.is_local

    def all(self) -> list[dict[str, Any]]:
        """Return all manifests, the oldest first, each with what became of the run as ``status``.

        A run that says that it is running is ``killed`` where its process is gone.
        """
        found = [manifest | {"status": self.status(manifest)} for manifest in self._read()]
        return sorted(found, key=lambda manifest: str(manifest["run_id"]))

    def _read(self) -> Iterator[dict[str, Any]]:
        for file in self.place.files("runs"):
            # Anything else than <run id>/manifest.json is none, such as what a killed process was writing.
            parts = file.name.split("/")
            if len(parts) != 3 or parts[-1] != _MANIFEST:
                continue
            # Empty where it was removed in between.
            manifest = read_manifest(self.root, parts[1])
            if manifest.get("run_id") == parts[1]:
                yield manifest

    def status(self, manifest: Mapping[str, Any]) -> str:
        """Return ``finished``, ``failed``, ``interrupted``, ``running``, or ``killed`` where nobody noted the end."""
        noted = str(manifest.get("status", "killed"))
        if noted != "running":
            return noted
        found = state(manifest.get("process") or {})
        if found == "unknown" and self.is_local:
            held = is_held(Path(self.root) / "runs" / str(manifest["run_id"]) / LOCK)
            found = "unknown" if held is None else "alive" if held else "dead"
        if found == "unknown":
            last = datetime.fromisoformat(str(manifest.get("updated") or manifest["start"]))
            found = "dead" if datetime.now(UTC) - last > _SILENT else "alive"
        return "running" if found == "alive" else "killed"

    def get(self, run_id: str) -> dict[str, Any]:
        """Return the manifest of a run: by its id, the start of it, ``latest`` or ``previous``.

        These two are the last finished run and the one before it.

        Raises
        ------
        AnmiError
            There is no such run, or more than one.
        """
        runs = self.all()
        if run_id in NAMED:
            finished = [manifest for manifest in runs if manifest["status"] == "finished"]
            if len(finished) < NAMED[run_id]:
                raise AnmiError(
                    f'there is no "{run_id}" run under {self.root}, since {len(finished)} are finished: '
                    "`kedro anmi runs` lists all"
                )
            return finished[-NAMED[run_id]]
        ids = [str(manifest["run_id"]) for manifest in runs]
        found = [manifest for manifest in runs if str(manifest["run_id"]).startswith(run_id)]
        exact = [manifest for manifest in found if manifest["run_id"] == run_id]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            raise AnmiError(f'"{run_id}" is the start of {len(found)} runs: give more of {", ".join(ids[-3:])}')
        told = nearest(run_id, ids[-5:]) if ids else "nothing was run here yet"
        raise AnmiError(f'there is no run "{run_id}" under {self.root}: {told}; `kedro anmi runs` lists all')


def read_manifest(root: str, run_id: str) -> dict[str, Any]:
    """Return what a run noted under the data root; empty where there is no such run."""
    try:
        return dict(json.loads(Place(root).read(f"runs/{run_id}/{_MANIFEST}") or "{}"))
    except (OSError, ValueError):
        return {}


def versions_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of all that a run made, took over or read; what it made goes before what it read."""
    kinds = [manifest.get(kind) or {} for kind in ("inputs", "loaded", "reused", "saved")]
    return {name: version for kind in kinds for name, version in kind.items() if version}
