"""The steps that recipes are made of, one module a family; importing registers them all."""

from anmi.selection.steps import elo_zones, filters, mixture, routing, samplers  # noqa: F401
from anmi.selection.steps.registry import STEPS, Context, Params, StepType, named, step

__all__ = ["STEPS", "Context", "Params", "StepType", "named", "step"]
