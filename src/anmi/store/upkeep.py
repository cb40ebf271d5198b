"""What a store holds, and removing what is no longer used."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anmi.errors import AnmiError, nearest
from anmi.store.registry import Record

if TYPE_CHECKING:
    from anmi.store.cache import Store

_TEACHER: Final = "teacher-"
_STATIC: Final = "static-"
_ONNX: Final = "onnx-"
# Nothing takes longer that works in a folder of its own: training a cross-encoder is a matter of minutes.
_LEFTOVER_DAYS: Final = 1.0
# Where less of the file is free, later values will fill it; a copy of the whole is not worth it.
_WORTH_COMPACTING: Final = 0.1


@dataclass(frozen=True)
class Model:
    """A folder beside the database.

    Attributes
    ----------
    path
        The folder.
    kind
        ``cross_encoder`` (a cross-encoder trained here), ``static`` (a distilled encoder), ``onnx`` (a network
        exported for ONNX Runtime), ``leftover`` (of a
        process that was killed) or ``other``, which is never removed.
    size
        Bytes of its files.
    last_used
        When it was last read or written, ISO 8601; to the day where the disk notes no more.
    """

    path: Path
    kind: str
    size: int
    last_used: str

    @property
    def fingerprint(self) -> str:
        """Of a cross-encoder; its judgments are stored under it."""
        return self.path.name.removeprefix(_TEACHER) if self.kind == "cross_encoder" else ""


@dataclass(frozen=True)
class Stats:
    """What a store holds.

    Attributes
    ----------
    path
        Its folder.
    file_size, free_size
        Bytes of the database, and those of them that later values will fill.
    records
        One per fingerprint, the last used first.
    models
        Folders of models, the largest first.
    """

    path: Path
    file_size: int
    free_size: int
    records: list[Record]
    models: list[Model]


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be.

    Attributes
    ----------
    records, models
        What was chosen.
    in_use
        Another process has the store open: values are removed all the same, models and the file's size stay.
    size_before, size_after
        Bytes of the database.
    """

    records: list[Record]
    models: list[Model]
    in_use: bool
    size_before: int
    size_after: int


def stats(store: Store) -> Stats:
    """Return what a store holds."""
    return Stats(store.path, store.database.file_size(), store.database.free_size(), store.records(), models(store))


def prune(
    store: Store,
    older_than_days: float | None,
    fingerprints: Collection[str],
    keep: Collection[str],
    dry_run: bool,
) -> Pruned:
    """See :meth:`anmi.store.Store.prune`."""
    if older_than_days is not None and not 0 <= older_than_days <= 36_500:
        raise AnmiError(f"values older than {older_than_days} days cannot be chosen: give a number from 0 to 36500")
    records, folders = store.records(), models(store)
    known = ({record.fingerprint for record in records} | {model.fingerprint for model in folders}) - {""}
    chosen = {_resolve(given, known) for given in fingerprints}
    kept = {_resolve(given, known) for given in keep}
    oldest = None if older_than_days is None else _days_ago(older_than_days)

    def wanted(fingerprint: str, last_used: str) -> bool:
        named = fingerprint in chosen if chosen else oldest is not None
        return named and fingerprint not in kept and (oldest is None or last_used <= oldest)

    chosen_records = [record for record in records if wanted(record.fingerprint, record.last_used)]
    gone = [
        model
        for model in folders
        if (model.kind == "leftover" and model.last_used <= _days_ago(_LEFTOVER_DAYS))
        or (model.kind in ("cross_encoder", "static", "onnx") and wanted(model.fingerprint, model.last_used))
    ]
    before = store.database.file_size()
    if not dry_run:
        for record in chosen_records:
            store.remove(record.fingerprint)
    with store.database.alone() as alone:
        if alone and not dry_run:
            for model in gone:
                _delete(model.path)
            if chosen_records or store.database.free_size() > _WORTH_COMPACTING * before:
                store.database.compact()
    return Pruned(chosen_records, gone if alone else [], not alone, before, store.database.file_size())


def models(store: Store) -> list[Model]:
    """Return the folders of models, the largest first."""
    uses = {record.fingerprint: record.last_used for record in store.records()}
    found = []
    for path in (*_folders(store.path / "models"), *_folders(store.path, ".")):
        size, last_used = _measure(path)
        model = Model(path, _kind(path), size, last_used)
        # Using a cross-encoder's judgments is using it.
        found.append(Model(path, model.kind, size, max(last_used, uses.get(model.fingerprint, ""))))
    return sorted(found, key=lambda model: (-model.size, model.path.name))


def _folders(parent: Path, start: str = "") -> Iterator[Path]:
    if parent.is_dir():
        yield from (path for path in parent.iterdir() if path.is_dir() and path.name.startswith(start))


def _kind(path: Path) -> str:
    kinds = {".": "leftover", _TEACHER: "cross_encoder", _STATIC: "static", _ONNX: "onnx"}
    found = (kind for start, kind in kinds.items() if path.name.startswith(start) and not path.is_symlink())
    return next(found, "other")


def _measure(folder: Path) -> tuple[int, str]:
    """Return the bytes of a folder's files and when one of them was last read or written."""
    size, moment = 0, folder.stat().st_mtime
    for path in folder.rglob("*"):
        try:
            found = path.stat()
        except FileNotFoundError:
            # Another process is at work here.
            continue
        if path.is_file():
            size += found.st_size
            moment = max(moment, found.st_mtime, found.st_atime)
    return size, datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _delete(folder: Path) -> None:
    """Delete a folder; when interrupted, none is left that looks whole."""
    aside = folder.with_name(f".pruned-{folder.name.lstrip('.')}")
    if folder != aside:
        folder.rename(aside)
    shutil.rmtree(aside)


def _days_ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")


def _resolve(given: str, known: Collection[str]) -> str:
    """Return the fingerprint that is named by its start."""
    found: Sequence[str] = [given] if given in known else sorted(name for name in known if name.startswith(given))
    if given and len(found) == 1:
        return found[0]
    if given and found:
        raise AnmiError(f'"{given}" is the start of {len(found)} fingerprints: give more of {", ".join(found[:3])}')
    raise AnmiError(f'the store has no fingerprint "{given}"; {nearest(given, sorted(known))}')
