"""Running again under the configuration of an earlier run, whatever the files say by now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from kedro.framework.context import KedroContext


@dataclass(frozen=True)
class Replay:
    """How the next run differs from what its environment says.

    Attributes
    ----------
    parameters
        Configured instead of those of the environment, runtime parameters included; None for these.
    notes
        What its manifest is to say besides: ``saved``, ``filters``, ``reused``, ``resumed_from``, ``reproduces``.
    data
        Where to put what it makes, and its manifest; None for the usual place.
    made
        Names of what it makes; all else lies in the usual place. Only with ``data``.
    absent
        Names of what was not there then, and is to be looked for where nothing is.
    tracked
        False for a run that is no result of its own.
    """

    parameters: Mapping[str, Any] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    made: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    tracked: bool = True


# Below the manifests, where no artifact ever lies.
_NOWHERE: Final = "nothing"
_ASKED: Final[ContextVar[Replay | None]] = ContextVar("anmi_replay", default=None)


@contextmanager
def replaying(replay: Replay) -> Iterator[None]:
    """Let the run inside be that of ``replay``."""
    token = _ASKED.set(replay)
    try:
        yield
    finally:
        _ASKED.reset(token)


def asked() -> Replay | None:
    """Return the replay that a run is inside of."""
    return _ASKED.get()


def configure(context: KedroContext) -> None:
    """Put the configuration of a replay in the place of that of the files; before anything reads it."""
    replay = asked()
    if replay is None:
        return
    loader = context.config_loader
    settings = loader["globals"]
    usual = str(settings.get("data", "data")).rstrip("/")
    if replay.data is not None or replay.absent:
        entries = {name: dict(entry) for name, entry in loader["catalog"].items()}
        for name in entries.keys() & replay.made if replay.data is not None else ():
            entries[name] = moved(entries[name], usual, str(replay.data))
        for name in entries.keys() & replay.absent:
            entries[name]["filepath"] = f"{usual}/runs/{_NOWHERE}/{name}"
        loader["catalog"] = entries
    if replay.data is not None:
        loader["globals"] = {**settings, "data": replay.data}
    if not replay.tracked:
        loader["mlflow"] = {"enabled": False}
    if replay.parameters is not None:
        loader["parameters"] = dict(replay.parameters)


def moved(entry: Mapping[str, Any], usual: str, data: str) -> dict[str, Any]:
    """Return a catalog entry that lies under another data root.

    Examples
    --------
    >>> moved({"filepath": "data/bm25/index"}, "data", "elsewhere")
    {'filepath': 'elsewhere/bm25/index'}
    """
    place = str(entry["filepath"])
    inside = place.removeprefix(f"{usual}/")
    return {**entry, "filepath": f"{data}/{inside}"} if inside != place else dict(entry)
