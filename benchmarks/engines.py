"""What the engines cost: seconds until their workers work, and for a stage of evidence on shards of candidates.

Each shard has about 30 MB in memory. A worker reads it from its bytes, compares the embeddings of all candidates with
those of the query and of the positive, sorts, and writes three columns more; the embeddings are shared. The results of
all engines are compared byte for byte. Run from the repository's root:

    python benchmarks/engines.py --shards 64
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from anmi.candidates import Candidates, CandidateShards
from anmi.engine import EngineParams, LocalEngine, map_blocks, running

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "build" / "engines.json"
ENGINES = {
    "local, 1 worker": EngineParams(kind="local", workers=1),
    "local, 2 workers": EngineParams(kind="local", workers=2),
    "ray, 2 workers": EngineParams(kind="ray", workers=2),
}
DOCUMENTS, DIMENSION, QUERIES, DEPTH, COLUMNS = 100_000, 256, 2_500, 200, 12


class Evidence:
    """Adds what embeddings say of the candidates of a block."""

    def __init__(self, documents: np.ndarray, queries: np.ndarray) -> None:
        self.documents, self.queries = documents, queries

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with similarities to the query and the positive, and ranks."""
        rows = np.array([int(name) for name in block.query_ids])
        query, positive = self.queries[rows], self.documents[block.positives[:, 0]]
        to_query, to_positive = (np.empty(block.documents.shape, np.float32) for _ in range(2))
        # A hundred queries at once, so that their candidates' embeddings fit the cache.
        for start in range(0, len(rows), 100):
            part = slice(start, start + 100)
            found = self.documents[block.documents[part]]
            to_query[part] = np.einsum("qmd,qd->qm", found, query[part])
            to_positive[part] = np.einsum("qmd,qd->qm", found, positive[part])
        rank = np.argsort(np.argsort(-to_query, axis=1, kind="stable"), axis=1, kind="stable")
        return block.with_columns({"to_query": to_query, "to_positive": to_positive, "rank": rank})


def pid_of(_: int) -> int:
    """Return who works, after time for the others to begin."""
    time.sleep(0.2)
    return os.getpid()


def parts(number: int, distinct: int) -> list[bytes]:
    """Return the bytes of the blocks that the shards repeat."""
    random = np.random.default_rng(0)
    return [
        Candidates(
            query_ids=np.array([str(row) for row in random.integers(0, QUERIES * 4, QUERIES)]),
            positives=random.integers(0, DOCUMENTS, (QUERIES, 1)).astype(np.int32),
            documents=random.integers(0, DOCUMENTS, (QUERIES, DEPTH)).astype(np.int32),
            source=np.ones((QUERIES, DEPTH), np.uint8),
            columns={f"c{n}": random.standard_normal((QUERIES, DEPTH), np.float32) for n in range(COLUMNS)},
        ).to_bytes()
        for _ in range(min(number, distinct))
    ]


def started(params: EngineParams) -> float:
    """Return the seconds until every worker has worked; 0 for the engine that works in this process."""
    before = time.perf_counter()
    seen: set[int] = set()
    while len(seen) < params.most_workers:
        seen |= set(running(params).ordered(pid_of, range(2 * params.most_workers)))
    return time.perf_counter() - before


def worked(params: EngineParams, function: Evidence, blocks: list[bytes], shards: int) -> dict[str, Any]:
    """Return seconds and the digest of the results."""

    def source() -> Iterator[bytes]:
        return (blocks[number % len(blocks)] for number in range(shards))

    before = time.perf_counter()
    digest, size = hashlib.sha256(), 0
    for part in map_blocks(params, function, CandidateShards.of_parts(source)).parts():
        digest.update(part)
        size += len(part)
    seconds = time.perf_counter() - before
    return {"seconds": seconds, "shards": shards, "result_mb": size / 1e6, "sha256": digest.hexdigest()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--distinct", type=int, default=4, help="blocks that the shards repeat, which saves memory")
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    documents = random.standard_normal((DOCUMENTS, DIMENSION), np.float32)
    function = Evidence(documents, random.standard_normal((QUERIES * 4, DIMENSION), np.float32))
    blocks = parts(arguments.shards, arguments.distinct)
    rows = []
    for name, params in ENGINES.items():
        seconds = started(params)
        row = {"engine": name, "start_seconds": seconds} | worked(params, function, blocks, arguments.shards)
        row["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        row["load"] = os.getloadavg()[0]
        rows.append(row)
        print(row, flush=True)
        engine = running(params)
        if isinstance(engine, LocalEngine):
            engine.close(at_once=True)
        else:
            engine.close()
    document = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform()},
        "versions": {name: version(name) for name in ("ray", "numpy", "pyarrow")},
        "shard": {"part_mb": len(blocks[0]) / 1e6, "queries": QUERIES, "depth": DEPTH, "columns": COLUMNS},
        "shared_mb": documents.nbytes / 1e6,
        "engines_equal": len({row["sha256"] for row in rows}) == 1,
        "rows": rows,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not document["engines_equal"]:
        raise SystemExit("the engines' results differ")


if __name__ == "__main__":
    main()
