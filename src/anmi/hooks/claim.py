"""A claim on a registered model, so that of several machines that share a tracking server only one retrains it.

MLflow cannot compare and set: of two that claim in the same moment the one that wrote last holds the claim, and the
other finds out before it would promote. A scheduler that runs one retraining at a time keeps it from coming to that.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from anmi.datasets.model_registry import ModelRegistry, told
from anmi.locks import has_ended

logger = logging.getLogger(__name__)

# Tag of the registered model.
CLAIM: Final = "anmi.claim"


class Claim:
    """A claim, held until it is released, its run or process has ended, or it is too old.

    Parameters
    ----------
    registry
        Of the tracking server.
    name
        Of the registered model.
    minutes
        After which the claim of a run that is still said to be under way counts as abandoned.
    """

    def __init__(self, registry: ModelRegistry, name: str, minutes: float) -> None:
        self._registry, self._name, self._seconds = registry, name, 60 * minutes
        self._own: dict[str, Any] = {}

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
        self._own = {**holder, "claimed": time.time()}
        with told(self._registry.uri):
            self._registry.client.set_registered_model_tag(self._name, CLAIM, json.dumps(self._own))
        return None

    def is_held(self) -> bool:
        """Tell whether the claim is still ours."""
        return bool(self._own) and self._found() == self._own

    def release(self) -> None:
        """Give the claim up; without effect where it is not held. One that a server keeps ends with its run."""
        try:
            if self.is_held():
                self._registry.client.delete_registered_model_tag(self._name, CLAIM)
        except Exception as error:
            logger.warning('The claim on "%s" could not be given up: %s', self._name, error)
        self._own = {}

    def _found(self) -> dict[str, Any]:
        try:
            found = json.loads(self._registry.model_tags(self._name).get(CLAIM) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _is_abandoned(self, found: Mapping[str, Any]) -> bool:
        if found.get("mlflow_run") == self._registry.run:
            # Tasks of a scheduler share a run, and it is this one.
            return True
        if time.time() - found.get("claimed", 0.0) > self._seconds or _has_ended(found):
            return True
        return self._status(found) not in ("RUNNING", None)

    def _status(self, found: Mapping[str, Any]) -> str | None:
        try:
            return str(self._registry.client.get_run(str(found.get("mlflow_run"))).info.status)
        except Exception:
            # A run that cannot be asked for may still be under way.
            return None

    def _close_run_of(self, found: Mapping[str, Any]) -> None:
        """End in the books what was killed; only where that is certain."""
        run = found.get("mlflow_run")
        killed = run != self._registry.run and _has_ended(found)
        if killed and self._status(found) == "RUNNING":
            try:
                self._registry.client.set_terminated(run, status="KILLED")
            except Exception as error:
                logger.warning("The run %s that was killed could not be closed: %s", run, error)


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
