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
        Configured instead of those of the environment, runtime parameters included.
    notes
        What its manifest is to say besides: ``filters``, ``reused``, ``resumed_from``, ``reproduces``.
    data
        Where to put what it makes, and its manifest; None for the usual place.
    made
        Names of what it makes; all else lies in the usual place. Only with ``data``.
    tracked
        False for a run that is no result of its own.
    """

    parameters: Mapping[str, Any]
    notes: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    made: frozenset[str] = frozenset()
    tracked: bool = True


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
    if replay.data is not None:
        settings = loader["globals"]
        usual = str(settings.get("data", "data")).rstrip("/")
        entries = {
            name: moved(entry, usual, replay.data) if name in replay.made else entry
            for name, entry in loader["catalog"].items()
        }
        loader["globals"] = {**settings, "data": replay.data}
        loader["catalog"] = entries
    if not replay.tracked:
        loader["mlflow"] = {"enabled": False}
    loader["parameters"] = dict(replay.parameters)


def moved(entry: Mapping[str, Any], usual: str, data: str) -> dict[str, Any]:
    """Return a catalog entry that lies under another data root.

    Examples
    --------
    >>> moved({"filepath": "data/bm25/index"}, "data", "/tmp/x")
    {'filepath': '/tmp/x/bm25/index'}
    """
    place = str(entry["filepath"])
    inside = place.removeprefix(f"{usual}/")
    return {**entry, "filepath": f"{data}/{inside}"} if inside != place else dict(entry)
