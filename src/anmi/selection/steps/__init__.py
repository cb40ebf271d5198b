"""The steps that recipes are made of, one module a family; importing this package registers them all."""

from anmi.selection.steps import (  # noqa: F401
    back_off,
    ceilings,
    elo_zones,
    filters,
    guard,
    mixture,
    routing,
    samplers,
    simans,
    weighters,
)
from anmi.selection.steps.registry import STEPS, Context, Params, StepType, step

__all__ = ["STEPS", "Context", "Params", "StepType", "step"]
