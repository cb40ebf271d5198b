"""How time and memory grow with the number of documents: the measurements of benchmarks/scale.py on made-up corpora.

A document is four runs of 14 words from random places of real texts, 56 words as a passage of MS MARCO has. Each
measurement is a process of its own with one thread; seconds are the processor's, memory is the most it ever had above
what it had before. Vectors are random, except those that compressed vectors are compared on. Started by scale.py:

    python benchmarks/scale.py grow --texts ../shared/data/medquad --vectors DATA_ROOT
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

RUNS, RUN_WORDS, QUERY_WORDS, WIDTH = 4, 14, 6, 384
QUERIES, DEPTH, GIVEN = 48, 1000, 1086
SIZES: Final = {
    "ingest": (20_000, 80_000, 240_000),
    "bm25": (20_000, 80_000, 240_000, 1_000_000),
    "terms": (20_000, 80_000),
    "flat": (20_000, 80_000, 240_000, 1_000_000),
    "groups": (100_000, 1_000_000),
    "store": (10_000, 40_000),
}


def made_up(texts: Path, count: int, seed: int = 0) -> list[str]:
    """Return documents of RUNS runs of RUN_WORDS words each."""
    words: list[str] = []
    with (texts / "corpus.jsonl").open(encoding="utf-8") as file:
        for line in file:
            words += json.loads(line)["text"].split()
    random = np.random.default_rng(seed)
    starts = random.integers(0, len(words) - RUN_WORDS, (count, RUNS))
    return [" ".join(" ".join(words[s : s + RUN_WORDS]) for s in row) for row in starts.tolist()]


def asked(texts: list[str]) -> list[str]:
    """Return queries: some words of documents."""
    return [" ".join(text.split()[5 : 5 + QUERY_WORDS]) for text in texts[:: max(len(texts) // QUERIES, 1)]][:QUERIES]


def peak() -> int:
    """Bytes of memory that this process had at most since the last call of resident."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def resident() -> int:
    """Bytes of memory that this process has; the peak begins anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


@contextmanager
def clocked(found: dict[str, Any], name: str, per: float = 1) -> Iterator[None]:
    """Note the seconds of the processor that a block takes, by what it is divided."""
    before = time.process_time()
    yield
    found[name] = (time.process_time() - before) / per


def ingest(count: int, texts: Path, found: dict[str, Any]) -> None:
    from anmi.corpus.duplicates import normalised_forms
    from anmi.corpus.related import find_related
    from anmi.corpus.sources import fingerprint, load_collection
    from anmi.corpus.texts import document_texts

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "qrels").mkdir()
        with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
            for row, text in enumerate(made_up(texts, count)):
                file.write(json.dumps({"_id": f"d{row}", "title": "", "text": text}) + "\n")
        with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"_id": f"q{row}", "text": f"what is {row}"}) + "\n" for row in range(2000))
        labels = "".join(f"q{row}\td{row}\t1\n" for row in range(2000))
        (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + labels)
        before = resident()
        with clocked(found, "read_seconds"):
            collection = load_collection(f"beir:{folder}", language="en")
            fingerprint(collection)
        found["read_bytes"] = peak() - before
        with clocked(found, "kin_seconds"):
            find_related(collection.corpus, normalised_forms(document_texts(collection.corpus)), collection.duplicates)
        found["kin_bytes"] = peak() - before


def bm25(count: int, texts: Path, found: dict[str, Any]) -> None:
    from anmi.retrieval.bm25 import BM25Index

    documents = made_up(texts, count)
    BM25Index.build(documents[:100], language="en")
    before = resident()
    with clocked(found, "build_seconds"):
        index = BM25Index.build(documents, language="en")
    found["build_bytes"] = peak() - before
    with tempfile.TemporaryDirectory() as name:
        index.save(Path(name))
        found["file_bytes"] = sum(path.stat().st_size for path in Path(name).iterdir())
        found["postings"] = len(np.load(Path(name) / "indices.csc.index.npy", mmap_mode="r"))
    queries, random = asked(documents), np.random.default_rng(1)
    with clocked(found, "search_seconds", len(queries)):
        index.search(queries, DEPTH)
    given = random.integers(0, count, (len(queries), GIVEN)).astype(np.int32)
    with clocked(found, "rank_seconds", len(queries)):
        index.scores_and_ranks(queries, given)


def terms(count: int, texts: Path, found: dict[str, Any]) -> None:
    from anmi.retrieval.terms import Terms
    from anmi.retrieval.tokenize import tokenizer

    documents, tokenize = made_up(texts, count), tokenizer("snowball", "en")
    Terms.build(documents[:100], tokenize).prepare()
    before = resident()
    with clocked(found, "seconds"):
        made = Terms.build(documents, tokenize)
        made.prepare()
    found |= {"bytes": peak() - before, "postings": made.counts.nnz, "vocabulary": len(made.vocabulary)}
    matrices = (made.counts, made.saturated, made.unit)
    found["kept_bytes"] = made.counts.indices.nbytes + sum(matrix.data.nbytes for matrix in matrices)


def unit_vectors(count: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, WIDTH), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def flat(count: int, texts: Path, found: dict[str, Any]) -> None:
    from anmi.retrieval.dense import DenseIndex
    from anmi.retrieval.exact import similarities

    vectors = unit_vectors(count)
    index = DenseIndex.build(vectors, [str(row) for row in range(count)])
    queries = unit_vectors(QUERIES, 1)
    with clocked(found, "search_seconds", QUERIES):
        index.search(queries, 100)
    given = np.random.default_rng(2).integers(0, count, (QUERIES, GIVEN)).astype(np.int32)
    # Ranks follow from the lists; what is left is to score candidates of other sources.
    with clocked(found, "rank_seconds", QUERIES):
        similarities(queries, vectors, given)


def groups(count: int, texts: Path, found: dict[str, Any]) -> None:
    from anmi.retrieval.pool import with_duplicates

    group = np.arange(count, dtype=np.int32)
    before = resident()
    with clocked(found, "seconds_per_shard"):
        with_duplicates(np.zeros((512, 1), np.int32), group)
    found["bytes"] = peak() - before


def store(count: int, texts: Path, found: dict[str, Any]) -> None:
    from anmi.store import Store

    for name, width in (("vector", WIDTH), ("judgment", 1)):
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as opened:
            keys = [f"{name} {row}" for row in range(count)]

            def compute(batch: list[str], width: int = width) -> np.ndarray:
                return np.ones((len(batch), width), np.float32)

            before = resident()
            with clocked(found, f"{name}_write_seconds"):
                opened.vectors(name, keys, compute)
            with clocked(found, f"{name}_read_seconds"):
                opened.vectors(name, keys, compute)
            found[f"{name}_bytes"] = peak() - before
            found[f"{name}_file_bytes"] = (Path(folder) / "data.mdb").stat().st_size


PARTS: Final[dict[str, Callable[[int, Path, dict[str, Any]], None]]] = {
    "ingest": ingest, "bm25": bm25, "terms": terms, "flat": flat, "groups": groups, "store": store,
}  # fmt: skip


def quality(root: Path) -> dict[str, Any]:
    """Say how many of the 100 nearest documents compressed vectors of a run keep, over 1,000 of its queries."""
    import faiss

    from anmi.retrieval.dense import DenseIndex

    documents, queries = (
        np.load(next((root / "dense" / f"{kind}_embeddings.npy").glob(f"*/{kind}_embeddings.npy")))
        for kind in ("document", "query")
    )
    queries = queries[:: max(len(queries) // 1000, 1)][:1000]
    ids = [str(row) for row in range(len(documents))]
    exact = DenseIndex.build(documents, ids).search(queries, 100)[0]
    scale = np.abs(documents).max(axis=0) / 127

    def kept(found: np.ndarray) -> float:
        return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]) / exact.shape[1])

    def by(vectors: np.ndarray) -> float:
        return kept(DenseIndex.build(np.ascontiguousarray(vectors, np.float32), ids).search(queries, 100)[0])

    faiss.omp_set_num_threads(1)
    found: dict[str, Any] = {}
    with clocked(found, "ivfpq_build_seconds"):
        compressed = DenseIndex.build(documents, ids, "ivfpq")
    with clocked(found, "ivfpq_search_seconds", len(queries)):
        found["ivfpq"] = kept(compressed.search(queries, 100)[0])
    return found | {
        "documents": len(documents),
        "dimensions": documents.shape[1],
        "queries": len(queries),
        "float16": by(documents.astype(np.float16)),
        "int8": by(np.round(documents / scale).astype(np.int8) * scale),
    }


def grow(texts: Path) -> dict[str, list[dict[str, Any]]]:
    """Return all measurements by part."""
    one = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    result: dict[str, list[dict[str, Any]]] = {}
    for part, sizes in SIZES.items():
        for count in sizes:
            command = [sys.executable, __file__, part, str(count), str(texts)]
            ended = subprocess.run(command, capture_output=True, text=True, check=True, env=one)
            result.setdefault(part, []).append(json.loads(ended.stdout.splitlines()[-1]))
            print(part, result[part][-1], flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("documents", type=int)
    parser.add_argument("texts", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"documents": arguments.documents, "load": round(os.getloadavg()[0], 1)}
    PARTS[arguments.part](arguments.documents, arguments.texts, found)
    print(json.dumps({name: float(f"{v:.6g}") if isinstance(v, float) else v for name, v in found.items()}))


if __name__ == "__main__":
    main()
