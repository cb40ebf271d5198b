"""What no kept run needs any more: old versions, manifests, checkpoints, work of ablations, leftovers."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from anmi.locks import is_held, owner_state
from anmi.runs.manifests import UNFINISHED, Runs
from anmi.runs.places import File, Place
from anmi.runs.reproduce import FOLDER

KINDS: Final = ("version", "manifest", "checkpoint", "ablation", "reproduction", "leftover")
_VERSION: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\d\.\d{3}Z")
_LEFTOVER: Final = re.compile(r"(?:.*/)?\.[^/]+\.tmp(?=/|$)")
_DAY: Final = 86_400.0


@dataclass(frozen=True)
class Removal:
    """Something that may go.

    Attributes
    ----------
    kind
        One of :data:`KINDS`.
    root, name
        Where it lies: the root, and its path from there.
    files, bytes
        How much it is.
    """

    kind: str
    root: str
    name: str
    files: int
    bytes: int


def kept(manifests: Sequence[Mapping[str, Any]], number: int, aliased: Collection[str]) -> dict[str, str]:
    """Return the runs to keep, each with the reason.

    Kept are the newest finished runs, runs that made a model which an alias in the registry stands for, runs that are
    still running, the last run where it did not end well, since it can be resumed, and all runs that these refer to
    by what they read or took over.

    Parameters
    ----------
    manifests
        Of all runs, the oldest first.
    number
        How many finished runs to keep.
    aliased
        Ids of Kedro's or of MLflow's runs.

    Examples
    --------
    >>> runs = [{"run_id": f"r{i}", "status": "finished", "loaded": {}} for i in range(3)]
    >>> runs[2]["loaded"] = {"corpus": "r0"}
    >>> kept(runs, 1, ())
    {'r2': 'among the newest', 'r0': 'r2 refers to it'}
    """
    by_id = {str(manifest["run_id"]): manifest for manifest in manifests}
    finished = [name for name, manifest in by_id.items() if manifest["status"] == "finished"]
    reasons = dict.fromkeys(reversed(finished[-number:] if number else []), "among the newest")
    resumed = {manifest.get("resumed_from") for manifest in manifests}
    last = next(reversed(by_id), None)
    for name, manifest in by_id.items():
        if manifest["status"] == "running":
            reasons.setdefault(name, "still running")
        elif name in aliased or (manifest.get("tracking_run") and manifest["tracking_run"] in aliased):
            reasons.setdefault(name, "its model has an alias")
        elif name == last and manifest["status"] in UNFINISHED and name not in resumed:
            reasons.setdefault(name, "can be resumed")
    # The registry knows runs whose manifest is somewhere else.
    reasons |= {name: "its model has an alias" for name in aliased if _VERSION.fullmatch(name) and name not in reasons}
    waiting = list(reasons)
    while waiting:
        name = waiting.pop()
        for other in sorted(_referred(by_id.get(name, {})) - reasons.keys()):
            reasons[other] = f"{name} refers to it"
            waiting.append(other)
    return reasons


def _referred(manifest: Mapping[str, Any]) -> set[str]:
    """Return the runs that a run refers to."""
    kinds = ("loaded", "inputs", "reused", "saved")
    found = {version for kind in kinds for version in (manifest.get(kind) or {}).values() if version}
    return found | ({manifest["resumed_from"]} if manifest.get("resumed_from") else set())


def plan(
    runs: Runs,
    manifests: Sequence[Mapping[str, Any]],
    keep: Collection[str],
    artifacts: Collection[str],
    work: Sequence[str] = (),
    store: Path | None = None,
) -> list[Removal]:
    """Return what may go.

    Parameters
    ----------
    runs, manifests
        Of the data root.
    keep
        Ids of the runs to keep; see :func:`kept`.
    artifacts
        Paths of the versioned artifacts, as the catalog has them.
    work
        Folders, from the root, in which ablations keep unfinished work.
    store
        Folder of the store, whose checkpoints are looked at.
    """
    files = list(runs.place.files())
    known = {str(manifest["run_id"]): manifest for manifest in manifests}
    starts = [_seconds(known[name]["start"]) for name in keep if name in known and _may_use(known[name])]
    # Where the system notes reading to the day only.
    oldest = min(starts, default=time.time()) - _DAY
    found = _versions(files, _inside(artifacts, runs.root), keep)
    found |= {("manifest", f"runs/{name}"): _of(files, f"runs/{name}") for name in _manifests(files, known, keep)}
    found |= _reproductions(files, runs, keep)
    found |= {("leftover", name): part for name, part in _leftovers(files).items()}
    found |= {("ablation", name): part for name, part in _work(files, work, oldest).items()}
    removals = [Removal(kind, runs.root, name, *_size(part)) for (kind, name), part in found.items()]
    if store is not None:
        removals += _checkpoints(store, oldest, [manifest for name, manifest in known.items() if name in keep])
    return sorted(removals, key=lambda item: (KINDS.index(item.kind), item.name))


def remove(removals: Iterable[Removal]) -> None:
    """Remove what was planned; manifests last, so that what is left after a crash still says whose it is."""
    by_place: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for item in removals:
        by_place[item.kind == "manifest", item.root].append(item.name)
    for (_, root), names in sorted(by_place.items()):
        Place(root).remove(*names)


def aliased_runs(context: Any, root: str) -> set[str]:
    """Return the runs, of Kedro or of MLflow, whose model an alias in the registry stands for.

    Raises
    ------
    AnmiError
        The registry cannot be asked; what it needs might be removed.
    """
    from anmi.datasets.model_registry import ModelRegistry
    from anmi.runs.tracking import read_settings, tracking_uri

    settings = read_settings(context)
    if not settings.enabled:
        return set()
    uri = tracking_uri(settings, root)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return set()
    registry = ModelRegistry(uri)
    entries = [
        registry.entry(name, version) for name in registry.names() for version in registry.aliases(name).values()
    ]
    return {name for entry in entries for name in (entry.tags.get("run_id", ""), entry.run) if name}


def _may_use(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a kept run may need work in progress: an ablation, or one that has not finished."""
    return manifest["status"] != "finished" or "ablation" in manifest.get("pipelines", ())


def _inside(places: Collection[str], root: str) -> set[str]:
    start, *found = ((place.partition("://")[2] or place).strip("/") for place in (root, *places))
    return {place.removeprefix(start).strip("/") for place in found}


def _versions(
    files: Sequence[File], artifacts: Collection[str], keep: Collection[str]
) -> dict[tuple[str, str], list[File]]:
    found: dict[tuple[str, str], list[File]] = defaultdict(list)
    for file in files:
        parts = file.name.split("/")
        for depth in range(1, len(parts) - 1):
            if _VERSION.fullmatch(parts[depth]):
                if "/".join(parts[:depth]) in artifacts and parts[depth] not in keep:
                    found["version", "/".join(parts[: depth + 1])].append(file)
                break
    return found


def _manifests(files: Sequence[File], known: Collection[str], keep: Collection[str]) -> set[str]:
    """Return the runs whose folder may go; one without a manifest may be just beginning, for a day."""
    newest: dict[str, float] = defaultdict(float)
    for file in files:
        parts = file.name.split("/")
        if parts[0] == "runs" and len(parts) > 2 and _VERSION.fullmatch(parts[1]):
            newest[parts[1]] = max(newest[parts[1]], file.used)
    return {name for name, used in newest.items() if name not in keep and (name in known or used < time.time() - _DAY)}


def _reproductions(files: Sequence[File], runs: Runs, keep: Collection[str]) -> dict[tuple[str, str], list[File]]:
    names = {file.name.split("/")[1] for file in files if file.name.startswith(f"{FOLDER}/") and "/." not in file.name}
    found = {}
    for name in sorted(names):
        states = {manifest["status"] for manifest in Runs(f"{runs.root}/{FOLDER}/{name}").all()}
        # A finished one that is still there was kept by wish.
        if "running" not in states and not (name in keep and states == {"finished"}):
            found["reproduction", f"{FOLDER}/{name}"] = _of(files, f"{FOLDER}/{name}")
    return found


def _leftovers(files: Sequence[File]) -> dict[str, list[File]]:
    """Return what killed writes left, by its folder: of dead processes at once, of others after a day."""
    parts: dict[str, list[File]] = defaultdict(list)
    for file in files:
        found = _LEFTOVER.match(file.name)
        if found:
            parts[found[0]].append(file)
    oldest = time.time() - _DAY
    return {
        name: part
        for name, part in parts.items()
        if owner_state(name) == "dead"
        or (owner_state(name) == "unknown" and max(file.changed for file in part) < oldest)
    }


def _work(files: Sequence[File], work: Sequence[str], oldest: float) -> dict[str, list[File]]:
    """Return the work of ablations, a mined collection or the file of a cell, that was not read since."""
    parts: dict[str, list[File]] = defaultdict(list)
    for file in files:
        for folder in work:
            inside = file.name.removeprefix(f"{folder}/").split("/")
            # <collection>/mined-<fingerprint>/..., <collection>/cells/<file>, <collection>/selections/<file>
            if file.name.startswith(f"{folder}/") and len(inside) > 2 and not _VERSION.fullmatch(inside[1]):
                depth = 2 if inside[1].startswith("mined-") else 3
                parts["/".join([folder, *inside[:depth]])].append(file)
    return {name: part for name, part in parts.items() if max(file.used for file in part) < oldest}


def _checkpoints(store: Path, oldest: float, manifests: Sequence[Mapping[str, Any]]) -> list[Removal]:
    """Return the checkpoints of trainings that nobody goes on with: held by nobody, and older than kept open runs."""
    folder = store / "checkpoints"
    named = {str(((found.get("parameters") or {}).get("training") or {}).get("checkpoint")) for found in manifests}
    removals = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        part = _of(list(Place(str(folder)).files()), path.name)
        old = max((file.used for file in part), default=path.stat().st_mtime) < oldest
        if old and not is_held(path / "lock") and not any(str(path.resolve()) in name for name in named):
            removals.append(Removal("checkpoint", str(folder), path.name, *_size(part)))
    return removals


def _of(files: Sequence[File], folder: str) -> list[File]:
    return [file for file in files if file.name.startswith(f"{folder}/")]


def _size(files: Sequence[File]) -> tuple[int, int]:
    return len(files), sum(file.bytes for file in files)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
