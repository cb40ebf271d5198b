"""Engines by their parameters, kept until this process ends: starting workers takes seconds."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Final

from anmi.engine.base import Engine
from anmi.engine.local import LocalEngine
from anmi.engine.params import EngineParams

# Shards that are worth the start of worker processes where their number was not given.
_FEW: Final = 4


@cache
def running(params: EngineParams) -> Engine:
    """Return the engine that the parameters ask for; the same one for the same parameters.

    Raises
    ------
    AnmiError
        The kind is ``ray``, and its extra is not installed or its cluster cannot be reached.
    """
    if params.kind == "ray":
        from anmi.engine.on_ray import RayEngine

        on_ray = RayEngine(params)
        atexit.register(on_ray.close)
        return on_ray
    local = LocalEngine(
        workers=params.most_workers,
        threads=params.threads,
        max_bytes=params.max_bytes,
        few=0 if params.workers else _FEW,
    )
    atexit.register(local.close, at_once=True)
    return local
