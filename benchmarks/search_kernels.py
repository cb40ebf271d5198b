"""How long exact search takes by ours and by its peers: FAISS flat for vectors, bm25s with and without numba for terms.

Vectors are random unit vectors of 256 dimensions in clusters, documents are of words by a power law with queries of six
words out of a document. All take one thread, so processor seconds are what is compared; each is asked once before, so
that nothing is compiled while it is timed. ``same`` is the share of the documents that the peer found as well. Ours
also answers alike whatever the blocks and threads, and equal scores stand in the order of the corpus. Rows go to
benchmarks/results/speed.json.

    python benchmarks/search_kernels.py 100000 1000000
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from speed import RESULT, row, show, write

BENCHMARK: Final = Path(__file__).name
WIDTH: Final = 256
DEPTH: Final = 100
QUERIES: Final = {"dense": 1024, "bm25": 1000}


def timed(search: Callable[[Any], Any], queries: Any) -> tuple[Any, float]:
    """Return what was found and processor milliseconds per query."""
    search(queries[:2])
    start = time.process_time()
    found = search(queries)
    return found, round(1000 * (time.process_time() - start) / len(queries), 3)


def shared(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return which share of our documents the peer found."""
    return round(
        float(np.mean([len({*a} & {*b}) / len(a) for a, b in zip(ours.tolist(), theirs.tolist(), strict=True)])), 5
    )


def dense(count: int) -> dict[str, Any]:
    """Search vectors, by FAISS and by ours."""
    import faiss

    from anmi.retrieval.exact import nearest

    random = np.random.default_rng(0)
    centres = random.standard_normal((1000, WIDTH), np.float32)
    vectors = random.standard_normal((count, WIDTH), np.float32)
    for start in range(0, count, 50_000):
        part = vectors[start : start + 50_000]
        part += centres[random.integers(0, len(centres), len(part))]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    queries = vectors[random.integers(0, count, QUERIES["dense"])] + 0.03 * random.standard_normal(WIDTH, np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    (ours, _), ours_ms = timed(lambda asked: nearest(asked, vectors, DEPTH), queries)
    index = faiss.IndexFlatIP(WIDTH)
    index.add(vectors)
    (_, theirs), faiss_ms = timed(lambda asked: index.search(asked, DEPTH), queries)
    return {"documents": count, "ours_ms": ours_ms, "faiss_flat_ms": faiss_ms, "same": shared(ours, theirs)}


def bm25(count: int) -> dict[str, Any]:
    """Search terms, by bm25s and by ours over the same index."""
    import bm25s

    from anmi.retrieval.bm25 import BM25Index
    from anmi.retrieval.terms import Terms

    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3.4, 0.4, count), 3, 200).astype(np.int64)
    tokens = np.minimum((10 * (1 - random.random(lengths.sum())) ** (-1 / 0.6)).astype(np.int64), 2 * count) - 10
    rows = np.repeat(np.arange(count), lengths)
    numbers, tokens = np.unique(tokens, return_inverse=True)
    counts = sparse.csr_matrix((np.ones(len(tokens), np.float32), (rows, tokens)), (count, len(numbers)))
    vocabulary = {f"w{number}": number for number in range(len(numbers))}
    terms = Terms._of(counts, vocabulary, lambda texts: [text.split() for text in texts], {})
    start = time.process_time()
    index = BM25Index.of_terms(terms)
    built = time.process_time() - start
    firsts = np.cumsum(lengths) - lengths
    asked = [tokens[firsts[row] : firsts[row] + 6] for row in random.integers(0, count, QUERIES["bm25"])]
    queries = [" ".join(f"w{token}" for token in row) for row in asked]
    (ours, _), ours_ms = timed(lambda some: index.search(some, DEPTH), queries)
    found = {"documents": count, "ours_ms": ours_ms, "index_seconds": round(built, 2), "postings": int(counts.nnz)}
    frequency = np.bincount(counts.indices, minlength=len(numbers))
    found["postings_per_query"] = int(np.mean([frequency[row].sum() for row in asked]))
    ids = [row.tolist() for row in asked]
    for backend in ("numba", "numpy"):
        engine = bm25s.BM25(k1=0.9, b=0.4, backend=backend)
        engine.scores, engine.vocab_dict, engine.nonoccurrence_array = index._engine.scores, vocabulary, None
        engine.unique_token_ids_set = {*range(len(numbers))}
        options: dict[str, Any] = {"k": DEPTH, "show_progress": False, "n_threads": 1, "return_as": "documents"}
        theirs, found[f"bm25s_{backend}_ms"] = timed(lambda some: engine.retrieve(some, **options), ids)  # noqa: B023
        found[f"same_{backend}"] = shared(ours, np.asarray(theirs))
    return found


def rows(count: int) -> list[dict[str, Any]]:
    """Measure one size."""
    terms, vectors = bm25(count), dense(count)
    print(terms, vectors, sep="\n", flush=True)
    size, unit = f"{count:,} documents", "processor ms a query"
    found = [(f"exact search of vectors, {size}", vectors, "faiss_flat_ms", f"FAISS flat; same {vectors['same']}")]
    for backend in ("numba", "numpy"):
        note = f"its scores in ours; same {terms[f'same_{backend}']}"
        found.append((f"BM25 beside bm25s with {backend}, {size}", terms, f"bm25s_{backend}_ms", note))
    return [row(case, each["ours_ms"], each[peer], 1.0, unit, note, BENCHMARK) for case, each, peer, note in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("documents", type=int, nargs="+")
    parser.add_argument("--result", type=Path, default=RESULT)
    asked = parser.parse_args()
    with threadpool_limits(1):
        made = [each for count in asked.documents for each in rows(count)]
    versions = {name: version(name) for name in ("numpy", "scipy", "numba", "faiss-cpu", "bm25s")}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    about = {"versions": versions, "depth": DEPTH, "queries": QUERIES, "peak_mib": peak}
    write(made, BENCHMARK, about, asked.result)
    show(made)


if __name__ == "__main__":
    main()
