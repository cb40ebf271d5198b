"""The engine applies a function to many items and returns the results in their order."""

from anmi.engine.shards import (
    IN_PROCESS,
    EngineParams,
    RayParams,
    add_columns,
    make_blocks,
    map_blocks,
    map_shards,
)

__all__ = [
    "IN_PROCESS",
    "EngineParams",
    "RayParams",
    "add_columns",
    "make_blocks",
    "map_blocks",
    "map_shards",
]
