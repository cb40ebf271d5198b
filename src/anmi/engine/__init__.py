"""Where work on many items is done: a function and its items in, results as they are finished out."""

from anmi.engine.base import Engine, Failure, Outcome
from anmi.engine.blocks import add_columns, make_blocks, map_blocks
from anmi.engine.local import LocalEngine
from anmi.engine.params import IN_PROCESS, EngineParams, RayParams
from anmi.engine.parts import Parts
from anmi.engine.running import running

__all__ = [
    "IN_PROCESS",
    "Engine",
    "EngineParams",
    "Failure",
    "LocalEngine",
    "Outcome",
    "Parts",
    "RayParams",
    "add_columns",
    "make_blocks",
    "map_blocks",
    "running",
]
