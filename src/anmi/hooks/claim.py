"""A claim on a registered model, so that of several machines that share a tracking server only one retrains it."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from anmi.datasets.model_registry import ModelRegistry, told
from anmi.locks import has_ended

logger = logging.getLogger(__name__)

# Tags of the registered model.
CLAIM: Final = "anmi.claim"
BEAT: Final = "anmi.claim.renewed"
# How long a claim rests before it is looked at again: many times what lies between looking and claiming.
_SETTLE: Final = 0.5
_BEATS: Final = 5


class Claim:
    """A claim that renews itself while it is held.

    MLflow cannot compare and set, so a claim is written, left for a moment, and read again: of two that claim in the
    same moment the one that wrote first finds the other's and gives way.

    Parameters
    ----------
    registry
        Of the tracking server.
    name
        Of the registered model.
    minutes
        After which a claim that was not renewed counts as abandoned.
    """

    def __init__(self, registry: ModelRegistry, name: str, minutes: float) -> None:
        self._registry, self._name, self._seconds = registry, name, 60 * minutes
        self._token = ""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, holder: Mapping[str, Any]) -> dict[str, Any] | None:
        """Claim the model, or return what is known of who has.

        Parameters
        ----------
        holder
            What others are told; ``mlflow_run`` and ``process`` tell them whether it still lives.
        """
        self._registry.ensure(self._name)
        found = self._found()
        if found and not self._is_abandoned(found):
            return found
        if found:
            logger.warning('Taking over the claim on "%s" that %s left', self._name, describe(found))
            self._close_run_of(found)
        self._token = uuid.uuid4().hex
        self._set(BEAT, str(time.time()))
        self._set(CLAIM, json.dumps({**holder, "token": self._token}))
        time.sleep(_SETTLE)
        if not self.is_held():
            self._token = ""
            return self._found() or {}
        self._done.clear()
        self._thread = threading.Thread(target=self._renew, name="anmi-claim", daemon=True)
        self._thread.start()
        return None

    def is_held(self) -> bool:
        """Tell whether the claim is still ours."""
        return bool(self._token) and self._found().get("token") == self._token

    def release(self) -> None:
        """Give the claim up; without effect where it is not held. A server that is away loses only minutes by it."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
            self._thread = None
        if self._token:
            try:
                if self.is_held():
                    self._registry.client.delete_registered_model_tag(self._name, CLAIM)
            except Exception as error:
                logger.warning('The claim on "%s" could not be given up: %s', self._name, error)
            self._token = ""

    def _renew(self) -> None:
        while not self._done.wait(self._seconds / _BEATS):
            try:
                if not self.is_held():
                    logger.warning('The claim on "%s" is lost to another retraining', self._name)
                    return
                self._set(BEAT, str(time.time()))
            except Exception as error:  # whatever it is, the next attempt may succeed
                logger.warning('The claim on "%s" could not be renewed: %s', self._name, error)

    def _found(self) -> dict[str, Any]:
        tags = self._registry.model_tags(self._name)
        try:
            found = json.loads(tags.get(CLAIM) or "{}")
            beat = float(tags.get(BEAT) or 0)
        except ValueError:
            return {}
        return {**found, "renewed": beat} if isinstance(found, dict) and found else {}

    def _is_abandoned(self, found: Mapping[str, Any]) -> bool:
        if found.get("mlflow_run") == self._registry.run:
            # Tasks of a scheduler share a run, and it is this one.
            return True
        if time.time() - found["renewed"] > self._seconds or _has_ended(found):
            return True
        try:
            return bool(self._registry.client.get_run(str(found.get("mlflow_run"))).info.status != "RUNNING")
        except Exception:
            # A run that cannot be asked for may still be under way.
            return False

    def _close_run_of(self, found: Mapping[str, Any]) -> None:
        """End in the books what was killed; only where that is certain."""
        run = found.get("mlflow_run")
        if not run or run == self._registry.run or not _has_ended(found):
            return
        try:
            if self._registry.client.get_run(run).info.status == "RUNNING":
                self._registry.client.set_terminated(run, status="KILLED")
        except Exception as error:
            logger.warning("The run %s that was killed could not be closed: %s", run, error)

    def _set(self, tag: str, value: str) -> None:
        with told(self._registry.uri):
            self._registry.client.set_registered_model_tag(self._name, tag, value)


def _has_ended(holder: Mapping[str, Any]) -> bool:
    process = holder.get("process")
    return isinstance(process, Mapping) and has_ended(process)


def describe(holder: Mapping[str, Any]) -> str:
    """Say who holds a lock or a claim.

    Examples
    --------
    >>> describe({"host": "night", "pid": 7, "run_id": "r", "since": "2030-01-01T00:00:00+00:00"})
    'process 7 on night, run r, since 2030-01-01T00:00:00+00:00'
    >>> describe({})
    'another process'
    """
    if "pid" not in holder:
        return "another process"
    parts = [f"process {holder['pid']} on {holder.get('host', '?')}"]
    parts += [f"run {holder['run_id']}"] if holder.get("run_id") else []
    parts += [f"since {holder['since']}"] if holder.get("since") else []
    return ", ".join(parts)
