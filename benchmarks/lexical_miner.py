"""What the lexical miner keeps of Korean pairs with three tokenisers, and how long the whole of it takes.

The consistency filter keeps a query whose positive is within the BM25 top 10 of the whole corpus. Here it is measured
on all pairs of the files, whatever their split: nothing is chosen by it. The run of the pipeline mines the training
split, as a user would. The load of the machine stands beside its time. Run from the repository's root:

    python benchmarks/lexical_miner.py --only tokenizers mining
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "lexical_miner.json"
PAIRS = "pairs:../shared/data/ko_pairs/*.jsonl"
TOKENIZERS = ("whitespace", "kiwi", "subword")
DEPTH, TOP, SHARD = 1000, 10, 512
# The share that passed in the notebook that the miner follows, on Korean data of its own.
REFERENCE_PASS_RATE = 0.325


def tokenizer_row(tokenizer: str) -> dict[str, Any]:
    """Index the corpus, search all queries and rank all positives with one tokeniser."""
    from anmi.corpus.sources import document_texts, load_collection
    from anmi.retrieval import pool
    from anmi.retrieval.bm25 import BM25Index

    found = load_collection(PAIRS)
    texts = document_texts(found.corpus)
    queries = found.queries
    position = dict(zip(found.corpus.document_id, range(len(texts)), strict=True))
    started, worked = time.perf_counter(), time.process_time()
    index = BM25Index.build(texts, found.language, kind=tokenizer)
    indexed = time.perf_counter()
    within, pairs_within, matched_any = [], [], []
    for start in range(0, len(queries), SHARD):
        part = queries.iloc[start : start + SHARD]
        positives = pool.Positives(found.qrels, position).of(part.query_id.tolist())
        result = index.retrieve(part.text.tolist(), DEPTH, positives)
        # A positive that shares no term is tied with all that share none.
        good = (result.given_scores > 0) & (result.given_ranks <= TOP)
        within.append(good.any(axis=1))
        pairs_within.append(good[positives >= 0])
        matched_any.append((result.documents >= 0).sum(axis=1))
    ended = time.perf_counter()
    return {
        "case": "consistency",
        "tokenizer": tokenizer,
        "pairs": sum(map(len, pairs_within)),
        "queries": len(queries),
        "documents": len(texts),
        "passed_queries": int(np.concatenate(within).sum()),
        "pass_rate": round(float(np.concatenate(within).mean()), 4),
        "pass_rate_pairs": round(float(np.concatenate(pairs_within).mean()), 4),
        "candidates_mean": round(float(np.concatenate(matched_any).mean()), 1),
        "index_seconds": round(indexed - started, 2),
        "search_seconds": round(ended - indexed, 2),
        "processor_seconds": round(time.process_time() - worked, 2),
        "load_average": round(os.getloadavg()[0], 2),
    }


def mining_rows() -> list[dict[str, Any]]:
    """Run the pipeline as a user would into an empty folder, then once more on the same."""
    with tempfile.TemporaryDirectory(prefix="anmi-miner-") as work:
        return [mining_row(case, Path(work)) for case in ("mining", "mining_again")]


def mining_row(case: str, work: Path) -> dict[str, Any]:
    """Time one run of the pipeline; with an empty store, which is the rule, it distils the encoder as well."""
    store = os.environ.get("ANMI_STORE", str(work / "store"))
    environment = os.environ | {"ANMI_DATA_ROOT": str(work / "data"), "ANMI_STORE": store}
    parameters = f"collection={PAIRS},recipe=bm25_random"
    load, before, started = os.getloadavg()[0], os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kedro", "run", "--pipelines", "mining", "--params", parameters],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    seconds, after = time.perf_counter() - started, os.times()
    manifest = json.loads(next((work / "data" / "runs").glob("*/run.json")).read_text())
    row: dict[str, Any] = {
        "case": case,
        "store": "given" if "ANMI_STORE" in os.environ else "empty",
        "seconds": round(seconds, 1),
        "processor_seconds": round(sum(after[2:4]) - sum(before[2:4]), 1),
        "load_average_before": round(load, 2),
        "load_average_after": round(os.getloadavg()[0], 2),
    }
    if case == "mining":
        nodes = {node["node"]: node["seconds"] for node in manifest["nodes"]}
        return row | {"peak_mib": max(node["peak_mib"] for node in manifest["nodes"]), "nodes": nodes}
    assert "Nothing to mine" in done.stdout, done.stdout + done.stderr
    return row


def save(rows: list[dict[str, Any]]) -> None:
    """Write the rows; those of cases that were not measured stay."""
    from anmi.pipelines.reporting.nodes import machine, versions

    known = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    key = {(row["case"], row.get("tokenizer")): row for row in [*known, *rows]}
    document = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "collection": PAIRS,
        "top": TOP,
        "reference_pass_rate": REFERENCE_PASS_RATE,
        "rows": list(key.values()),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Measure the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=("tokenizers", "mining"), default=["tokenizers", "mining"])
    asked = parser.parse_args().only
    os.chdir(ROOT)
    if "tokenizers" in asked:
        for tokenizer in TOKENIZERS:
            row = tokenizer_row(tokenizer)
            save([row])
            print(row, flush=True)
    if "mining" in asked:
        rows = mining_rows()
        save(rows)
        print(*rows, sep="\n", flush=True)


if __name__ == "__main__":
    main()
