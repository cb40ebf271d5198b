"""How long retrieval takes by two Ray nodes, each with half of the documents, beside two worker processes.

Both nodes are sets of processes on this machine, with one CPU each, and share its cores with the driver and whatever
else runs, as do the two local workers, which have all documents mapped. So what is measured is what distribution costs,
not what it gains. By turns, after each has worked on four shards: no start of a worker is counted, but that of the two
actors that hold the documents is, as it is in each run. Medians; processor seconds are of this process and all below
it. Both write the same bytes, or it fails. It needs a data root in which ``kedro run --pipelines mining`` has run. Rows
go to benchmarks/results/speed.json.

    ANMI_DATA_ROOT=FOLDER python benchmarks/two_machines.py --times 3
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import secrets
import tempfile
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

os.environ.update(OMP_NUM_THREADS="1", RAY_AUTH_MODE="token", RAY_USAGE_STATS_ENABLED="0")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

import psutil

from speed import RESULT, ROOT, row, show, write

BENCHMARK: Final = Path(__file__).name
STORED: Final = (
    "bm25_index", "dense_index", "document_embeddings", "query_embeddings", "corpus", "queries", "qrels",
    "related_documents",
)  # fmt: skip
STATED: Final = ("recipes", "bm25", "dense", "seed")


def inputs(recipe: str, queries: int) -> dict[str, Any]:
    """Return what the node ``retrieve`` is given, with the first queries."""
    from kedro.framework.session import KedroSession
    from kedro.framework.startup import bootstrap_project

    bootstrap_project(ROOT)
    with KedroSession.create(ROOT) as session:
        catalog = session.load_context().catalog
        given = {name: catalog.load(name) for name in STORED}
        given |= {name: catalog.load(f"params:{name}") for name in STATED}
    return given | {"recipe": recipe, "queries": given["queries"].iloc[:queries]}


class Processor(threading.Thread):
    """Adds up the processor seconds of this process and of all below it, also of those that end meanwhile."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended, self._first, self._last = threading.Event(), {}, {}
        self._look()
        self._first = dict(self._last)

    def _look(self) -> None:
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with suppress(psutil.Error):
                times = process.cpu_times()
                self._last[process] = times.user + times.system

    def run(self) -> None:
        """Look ten times a second."""
        while not self._ended.wait(0.1):
            self._look()

    def end(self) -> float:
        """Return the seconds."""
        self._ended.set()
        self.join()
        self._look()
        return sum(seconds - self._first.get(process, 0.0) for process, seconds in self._last.items())


def retrieved(given: dict[str, Any], engine: Any) -> dict[str, Any]:
    """Retrieve once, as the catalog saves it."""
    from anmi.pipelines.dense.nodes import retrieve

    with tempfile.TemporaryDirectory() as folder:
        processor, start = Processor(), time.perf_counter()
        processor.start()
        retrieve(**given, engine=engine).save(Path(folder))
        seconds, cpu = time.perf_counter() - start, processor.end()
        parts = sorted(Path(folder).glob("part-*"))
        digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    return {"seconds": seconds, "processor": cpu, "digest": digest, "shards": len(parts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--recipe", default="anmi")
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--result", type=Path, default=RESULT)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    import ray
    from ray.cluster_utils import Cluster

    from anmi.engine import EngineParams, RayParams

    given = inputs(asked.recipe, asked.queries)
    node = {"num_cpus": 1, "object_store_memory": 1_000_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    on_ray = RayParams(address=cluster.address, shared_disk=True)
    engines = {
        "ray": EngineParams(kind="ray", workers=2, document_shards=2, ray=on_ray),
        "local": EngineParams(workers=2),
    }
    few = given | {"queries": given["queries"].iloc[: 4 * given["bm25"].shard]}
    for engine in engines.values():
        retrieved(few, engine)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
    for _ in range(asked.times):
        for name, engine in engines.items():
            runs[name].append(retrieved(given, engine))
            print(name, runs[name][-1], flush=True)
    if len({run["digest"] for made in runs.values() for run in made}) != 1:
        raise SystemExit("the engines wrote different bytes")
    ray.shutdown()
    cluster.shutdown()
    note = "same bytes; both nodes share two cores with the driver, so this is what distribution costs"
    rows = [
        row(f"retrieve over two Ray nodes, documents halved: {case}",
            *(median(run[name] for run in runs[kind]) for kind in engines), None, unit, note, BENCHMARK)
        for case, name, unit in (("wall", "seconds", "s"), ("processor", "processor", "processor s"))
    ]  # fmt: skip
    about = {
        "versions": {name: version(name) for name in ("ray", "numpy")}, "recipe": asked.recipe, "times": asked.times,
        "documents": len(given["corpus"]), "queries": len(given["queries"]), "shards": runs["ray"][0]["shards"],
    }  # fmt: skip
    write(rows, BENCHMARK, about, asked.result)
    show(rows)


if __name__ == "__main__":
    main()
