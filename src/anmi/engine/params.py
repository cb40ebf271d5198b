"""Where shards of work are done, as parameters."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_MOST_WORKERS: Final = 8


class RayParams(BaseModel):
    """How workers are asked of Ray."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = Field(
        None, description="Of the cluster, such as `auto` or `ray://host:10001`. None starts one on this machine."
    )
    cpus_per_worker: float = Field(1.0, gt=0, description="One, since a worker runs one shard on one thread.")
    gpus_per_worker: float = Field(
        0.0, ge=0, description="A fraction lets several workers share a GPU; 0, since most stages have no use for one."
    )
    shared_disk: bool = Field(
        False,
        description="Whether all machines of a cluster see the data root under one path, as a network drive. Workers "
        "read and write shards there themselves, as they do in a bucket; False, since otherwise they could not.",
    )
    retries: int = Field(
        3, ge=0, description="How often a shard is tried again after its worker was lost, before the run fails."
    )


class EngineParams(BaseModel):
    """Where shards of mining, encoding and judging are worked on; it changes no result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["local", "ray"] = Field("local", description="Processes on this machine need nothing else.")
    workers: int = Field(
        0,
        ge=0,
        description="Processes at once. 0 takes one per core, at most 8 as each holds a model, and does what is less "
        "than four shards in this process, eight of a network and 64 of retrieval, evidence and selection in threads "
        "of it, since starting others takes seconds.",
    )
    document_shards: int = Field(
        1,
        ge=1,
        description="Ranges into which retrieval cuts the documents. 1, since vectors and postings of millions fit one "
        "machine, and merging costs; with several, workers on a cluster hold none of them, each machine its share.",
    )
    threads: int = Field(
        1,
        ge=1,
        description="Of each worker; it does not follow from their number, since it can change the last bits of a sum.",
    )
    max_bytes: int = Field(
        1 << 30,
        ge=1 << 20,
        description="Results that may wait to be written; when writing is slower than working, workers wait. 1 GiB.",
    )
    ray: RayParams = Field(RayParams(), description="For the kind `ray`, which needs the extra of that name.")

    @model_validator(mode="before")
    @classmethod
    def _by_kind_alone(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

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
