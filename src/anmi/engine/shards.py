"""Functions are applied to shards here, in other processes (joblib), or on a cluster (Ray)."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from anmi.candidates import Candidates, CandidateShards, Columns, ColumnShards, as_bytes, block_of
from anmi.engine.progress import Progress
from anmi.engine.threads import VARIABLES, Item, Result, in_order, in_threads, limited
from anmi.errors import AnmiError, installed
from anmi.ragged import Int64s

_WORKER_LIMIT: Final = 8
# Makes a block of whatever it is called with.
Made = Callable[[Any], Candidates]


class RayParams(BaseModel):
    """What is asked of a Ray cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = "auto"
    gpus_per_worker: float = Field(0.0, ge=0)


class EngineParams(BaseModel):
    """Where shards of mining, encoding and judging are processed; it changes no result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["local", "ray"] = "local"
    workers: int = Field(0, ge=0)
    threads: int = Field(1, ge=1)
    ray: RayParams = RayParams()

    @property
    def most_workers(self) -> int:
        """Workers, resolved for this machine."""
        return self.workers or min(os.cpu_count() or 1, _WORKER_LIMIT)

    @property
    def ray_gpus(self) -> bool:
        """Whether workers have a GPU even if this process has none."""
        return self.kind == "ray" and self.ray.gpus_per_worker > 0


IN_PROCESS: Final = EngineParams(workers=1)
"""Everything here, one shard after the other."""


# Where the number of workers was not given, fewer shards than these are not worth the start of
# processes: threads of this process work on them. torch, NumPy, SciPy, numba and FAISS let other
# threads run meanwhile.
_THREADS_BELOW: Final = 16
_IDLE_SECONDS: Final = 60
_RETRIES: Final = 3
# Bytes of a row of memory.
_ALIGNED: Final = 64
_LOST: Final = (
    "a worker was lost, most likely for want of memory: lower engine.workers, or the shard of the"
    " stage, such as bm25.shard, and go on with `kedro anmi resume`"
)


def map_shards(
    engine: EngineParams, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield the result of each item, in the order of the items; an error ends it.

    Results must not depend on the engine, on its workers, or on the order in which they finish.

    Parameters
    ----------
    engine
        Where.
    function
        A function of a module, or an instance of such a class, that two threads may call at once
        and that can be sent to other processes. It is sent once; its arrays are shared by the
        workers of a machine and cannot be written to. Each worker keeps what it makes of them at
        its first call.
    items
        Plain data. They are taken as workers get free, and two results for each worker wait for the
        caller at most.

    Raises
    ------
    AnmiError
        A worker was lost (on Ray for the fourth time), or Ray is not installed or cannot be
        reached.

    Examples
    --------
    >>> list(map_shards(EngineParams(), len, ["a", "bc"]))
    [1, 2]
    """
    if engine.kind == "ray":
        yield from _on_ray(engine, function, items)
        return
    remaining = iter(items)
    first = [] if engine.workers else list(itertools.islice(remaining, _THREADS_BELOW))
    if engine.most_workers == 1:
        for item in itertools.chain(first, remaining):
            with limited(engine.threads):
                result = function(item)
            yield result
    elif not engine.workers and len(first) < _THREADS_BELOW:
        yield from in_threads(function, first, engine.most_workers, engine.threads)
    else:
        yield from _in_processes(engine, function, itertools.chain(first, remaining))


def _in_processes(
    engine: EngineParams, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    from joblib.externals.loky import get_reusable_executor

    environment = dict.fromkeys(VARIABLES, str(engine.threads)) | {"TQDM_DISABLE": "1"}
    pool = get_reusable_executor(
        engine.most_workers, timeout=_IDLE_SECONDS, env=environment, initializer=_begin
    )
    with tempfile.TemporaryDirectory(prefix="anmi-engine-", ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "function")
        _to_file(function, path)
        try:
            yield from in_order(
                lambda item: pool.submit(_from_file, path, item), items, 2 * engine.most_workers
            )
        except BrokenProcessPool as error:
            raise AnmiError(_LOST) from error


def _begin() -> None:
    """Keep a worker that maps large arrays, which loky would count as a leak."""
    from joblib.externals.loky import process_executor

    process_executor._USE_PSUTIL = False


# What this worker was sent last: (where it came from, the function).
_held: list[Any] = [None, None]


def _to_file(function: Callable[..., Any], path: str) -> None:
    """Write a function, and its arrays behind it, where workers map them."""
    arrays: list[pickle.PickleBuffer] = []
    # joblib.dump takes up to thirty times as long, as it walks vocabularies in Python.
    head = pickle.dumps(function, protocol=5, buffer_callback=arrays.append)
    contents = [memoryview(head), *(array.raw() for array in arrays)]
    sizes = np.array([content.nbytes for content in contents], np.int64)
    np.save(f"{path}.npy", sizes)
    with Path(path).open("wb") as file:
        for content, start in zip(contents, _starts(sizes), strict=True):
            file.seek(start)
            file.write(content)


def _starts(sizes: Int64s) -> list[int]:
    """Return where contents of these sizes start in a file, each where a row of memory does."""
    rows = -(-sizes // _ALIGNED)
    return [int(start) for start in (np.cumsum(rows) - rows) * _ALIGNED]


def _from_file(path: str, item: Any) -> Any:
    """Apply the function in a file, whose arrays are mapped, in a worker process."""
    if _held[0] != path:
        sizes = np.load(f"{path}.npy")
        mapped = np.memmap(path, np.uint8, mode="r").data
        places = zip(_starts(sizes), sizes.tolist(), strict=True)
        head, *arrays = [mapped[start : start + size] for start, size in places]
        _held[:] = [path, pickle.loads(head, buffers=arrays)]
    return _held[1](item)


def _from_ray(function: list[Any], item: Any, threads: int) -> Any:
    """Apply the function that lies in Ray's object store, in a task of Ray."""
    import ray

    if _held[0] != function[0]:
        _held[:] = [function[0], ray.get(function[0])]
    with limited(threads):
        return _held[1](item)


def _on_ray(
    engine: EngineParams, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    ray = _connected(engine.ray.address)
    offered = ray.cluster_resources()
    gpus = engine.ray.gpus_per_worker
    room = min(
        offered.get("CPU", 1) / engine.threads,
        offered.get("GPU", 0) / gpus if gpus else float("inf"),
    )
    task = ray.remote(_from_ray).options(
        num_cpus=engine.threads,
        num_gpus=gpus,
        max_retries=_RETRIES,
        scheduling_strategy="SPREAD",
        runtime_env={"env_vars": dict.fromkeys(VARIABLES, str(engine.threads))},
    )
    # In a list, or Ray would fetch it for each task; without one that this process holds it would
    # be freed.
    sent = [ray.put(function)]
    under_way = engine.workers or max(2 * int(room), 2)
    try:
        yield from in_order(
            lambda item: task.remote(sent, item, engine.threads).future(), items, under_way
        )
    except ray.exceptions.RayError as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
        if isinstance(cause, ray.exceptions.RayError):
            raise AnmiError(_LOST) from error
        raise cause from error


def _connected(address: str) -> Any:
    """Return Ray, connected to its cluster."""
    ray = installed("ray", "engine `ray`", "ray", "set engine.kind to local")
    if not ray.is_initialized():
        place = urlsplit(f"//{address.rpartition('//')[2]}")
        try:
            if place.hostname and place.port:
                # Ray itself would try for minutes to reach a machine that is not there.
                socket.create_connection((place.hostname, place.port), timeout=10).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise AnmiError(
                f"no Ray can be reached at engine.ray.address {address} ({reason}): start a cluster"
                " with `ray start --head`, or set engine.kind to local"
            ) from error
    return ray


@dataclass(frozen=True)
class _Part:
    """Makes the bytes of a block, or of the columns that a function adds to it."""

    function: Made
    of: Literal["item", "block", "columns"] = "item"

    def __call__(self, item: Any) -> bytes:
        block = item if self.of == "item" else block_of(item)
        result = self.function(block)
        if self.of == "columns":
            return Columns.added(block, result).to_bytes(block)
        return result.to_bytes()

    def parts(
        self,
        engine: EngineParams,
        items: Callable[[], Iterable[Any]],
        description: str,
        total: int | None,
    ) -> Callable[[], Iterator[bytes]]:
        """Return what yields the bytes made of each item, with a progress bar."""

        def parts() -> Iterator[bytes]:
            sent: Iterable[Any] = items()
            if engine.kind == "ray" and self.of != "item":
                # Workers on other machines do not reach the files of this one.
                sent = (tuple(map(as_bytes, layers)) for layers in sent)
            with Progress(total=total, desc=description, plural="queries", unit="query") as bar:
                bar.update(0)
                for part in map_shards(engine, self, sent):
                    bar.update(pq.read_metadata(pa.BufferReader(part)).num_rows)
                    yield part

        return parts


def make_blocks(
    engine: EngineParams,
    function: Made,
    items: Iterable[Any],
    *,
    description: str = "",
    total: int | None = None,
) -> CandidateShards:
    """Return shards that an engine's workers make of the items when they are read or saved.

    Parameters
    ----------
    engine, function
        See :func:`map_shards`.
    items
        Plain data; iterated anew at each pass.
    description
        Name of the progress bar; none is drawn without.
    total
        Queries, for the bar.
    """
    return CandidateShards(_Part(function).parts(engine, lambda: items, description, total))


def map_blocks(
    engine: EngineParams, function: Made, shards: CandidateShards, description: str = ""
) -> CandidateShards:
    """Return shards on which the workers of an engine apply a function as they are read or saved.

    Parameters are those of :func:`make_blocks`, but for the shards in place of the items.
    """
    return CandidateShards(_Part(function, "block").parts(engine, shards.layers, description, None))


def add_columns(
    engine: EngineParams,
    function: Made,
    shards: CandidateShards,
    *,
    description: str = "",
    total: int | None = None,
) -> ColumnShards:
    """Return the columns that a function adds to each block, made when read or saved.

    Parameters are those of :func:`map_blocks`; the function returns the block that it is given with
    columns added.
    """
    return ColumnShards(_Part(function, "columns").parts(engine, shards.layers, description, total))
