"""Where shards of work are done, as parameters."""

from __future__ import annotations

import os
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

_MOST_WORKERS: Final = 8


class RayParams(BaseModel):
    """How workers are asked of Ray."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = Field(
        None, description="Of the cluster, such as `auto` or `ray://host:10001`. None starts one on this machine."
    )
    gpus_per_worker: float = Field(
        0.0, ge=0, description="A fraction lets several workers share a GPU; 0, since most stages have no use for one."
    )


class EngineParams(BaseModel):
    """Where shards of mining, encoding and judging are worked on; it changes no result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["local", "ray"] = Field("local", description="Processes on this machine need nothing else.")
    workers: int = Field(
        0,
        ge=0,
        description="Processes at once; on a cluster, shards at once. 0 takes one per core, at most 8 as each holds a "
        "model, or what the cluster has room for; fewer shards than are worth the start of processes, which takes "
        "seconds, are worked on in this one.",
    )
    threads: int = Field(
        1,
        ge=1,
        description="Of each worker; it does not follow from their number, since it can change the last bits of a sum.",
    )
    ray: RayParams = Field(RayParams(), description="For the kind `ray`, which needs the extra of that name.")

    @property
    def most_workers(self) -> int:
        """Workers, resolved for this machine."""
        return self.workers or min(os.cpu_count() or 1, _MOST_WORKERS)

    @property
    def ray_gpus(self) -> bool:
        """Whether workers have a GPU that this process need not have."""
        return self.kind == "ray" and self.ray.gpus_per_worker > 0


IN_PROCESS: Final = EngineParams(workers=1)
"""Everything here, one shard after the other."""
