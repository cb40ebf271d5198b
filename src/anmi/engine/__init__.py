"""Where work on many items is done: a function and its items in, results in their order out."""

from anmi.engine.shards import IN_PROCESS, EngineParams, RayParams, add_columns, make_blocks, map_blocks, map_shards

__all__ = ["IN_PROCESS", "EngineParams", "RayParams", "add_columns", "make_blocks", "map_blocks", "map_shards"]
