"""Which splits a model was trained on, so that it is not evaluated on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anmi.errors import AnmiError


def trained_on(training_summary: Mapping[str, Any]) -> list[str]:
    """Return the splits that a model was trained on; one of an earlier release does not say, and knew train only."""
    return list(training_summary.get("trained_on") or ["train"])


def check_held_out(split: str, trained: Sequence[str], model: str = "the model") -> None:
    """Raise an AnmiError where a model would be evaluated on a split that it was trained on."""
    if split in trained:
        raise AnmiError(
            f"evaluation.split is {split}, which {model} was trained on by training.refit: evaluate on test, or train "
            "with training.refit=false"
        )
