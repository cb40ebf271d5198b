"""Which pipelines there are, and in which order they run."""

from __future__ import annotations

import importlib
from typing import Any, Final

from kedro.pipeline import Pipeline

STAGES: Final = (
    "ingestion",
    "bm25",
    "dense",
    "consistency",
    "denoising",
    "elo",
    "selection",
    "adaptation",
    "training",
    "evaluation",
    "final",
    "reporting",
)


def register_pipelines() -> dict[str, Pipeline]:
    """Return each stage as a pipeline of its own, ``mining`` (to selection), ``__default__`` (all).

    Mining asks the corpus for no pseudo-queries: it reads none, and training does.

    Besides there are ``audit``, which runs stages of its own on a collection of its own, and
    ``retrain``: all stages, the audit of the recipe, and the promotion of what was trained.

    Kedro's ``find_pipelines`` is not used: asked to run ``mining`` it would look for a folder of
    that name.
    """
    stages = {name: _module(name).create_pipeline() for name in STAGES}
    mining = STAGES[: STAGES.index("selection") + 1]
    whole = sum(stages.values(), Pipeline([]))
    audit = _module("audit")
    audited = audit.create_pipeline(judges_for="params:recipe", scored=False)
    return {
        **stages,
        "mining": sum((stages[name] for name in mining), Pipeline([])),
        "__default__": whole,
        "audit": audit.create_pipeline(),
        "retrain": whole + audited + _module("retrain").create_pipeline(),
    }


def _module(name: str) -> Any:
    return importlib.import_module(f"anmi.pipelines.{name}.pipeline")
