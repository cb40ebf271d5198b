"""The size of the house, and whether it mines what it mined before it was made small.

Six recipes mine four collections with the code of an earlier commit and with that which is checked out. Training rows
are compared by query and positive: negatives in order, weights within 1e-5. Run from the repository's root, with the
real collections beside it; rows of an earlier run under build/house are not mined again.

    python benchmarks/house.py --before ba1245f
    python benchmarks/house.py --tests        # runs `make test` besides, on an idle machine
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "house.json"
DATA = Path(os.environ.get("ANMI_DATA", ROOT.parent / "shared" / "data")).resolve()
WORK = ROOT / "build" / "house"
COLLECTIONS = {
    "api_docs": "api_docs",
    "scifact": f"beir:{DATA}/scifact",
    "xquad_de": f"beir:{DATA}/xquad/de",
    "sae4k_ko": f"beir:{DATA}/sae4k_ko",
}
# Where a cross-encoder judges, a small one and fewer queries: two cores train it in a minute.
JUDGED = (
    "ingestion.max_queries=200,denoising.cross_encoder.layers=1,denoising.cross_encoder.folds=2,"
    "denoising.cross_encoder.max_pairs=64,denoising.cross_encoder.max_length=64,denoising.depth=20,elo.depth=20"
)
MOST = "ingestion.max_queries=2000"
RECIPES = {
    "anmi": MOST, "nv_retriever": MOST, "hans": MOST, "bm25_random": MOST, "anmi_2_0": JUDGED, "anmi_2_1": JUDGED,
}  # fmt: skip
CONCEPTS = [
    "incremental mining (update, keep_judges, MiningPlan, MiningRecord, kept rows, earlier_* artifacts)",
    "reuse between runs (reuse, force), skipping an unchanged mining, replay, again, reproduce, compare, side by side",
    "process pool, Ray actors, document shards, transport and shared disk of our own",
    "checkpoint format and multi-device training of our own; mining anew inside training; weights between two models",
    "lock files of our own", "config loader of our own, renamed parameters, generator of parameter comments",
    "node class of our own, recipe settings injected into other parameters",
    "MLflow in threads, signal handling, traces of chats", "ONNX Runtime, its chooser and parity check",
    "token tables for static encoders", "edits by rule (dates, numbers, negation, lexicon, known)",
    "ablation pipeline with schedules, sets and cells", "pages for drift, ablation, audit and hardening",
    "wizard, printers, task and package commands; Databricks, systemd and Airflow templates", "41 recipes",
]  # fmt: skip


def rows_of(source: Path, place: Path, collection: str, recipe: str) -> pd.DataFrame:
    """Return the training rows that the code in ``source`` mines, from an earlier run where there was one."""
    kept = place / f"{collection}_{recipe}.parquet"
    if not kept.exists():
        data = place / "data" / kept.stem
        environment = os.environ | {
            "ANMI_DATA_ROOT": str(data), "ANMI_STORE": str(place / "store"), "PYTHONPATH": str(source / "src"),
            "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1",
        }  # fmt: skip
        settings = f"collection={COLLECTIONS[collection]},recipe={recipe},{RECIPES[recipe]}"
        command = [sys.executable, "-m", "kedro", "run", "--pipelines", "mining", "--params", settings]
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{kept.stem} failed in {source}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        (found,) = data.glob("*/training_rows.parquet/*/training_rows.parquet")
        found.rename(kept)
    return pd.read_parquet(kept)


def compare(before: pd.DataFrame, now: pd.DataFrame) -> tuple[int, int]:
    """Return how many rows either has, and how many of them are equal."""
    tables = [rows[rows.split == "train"].set_index(["query_id", "positive_id"]) for rows in (before, now)]
    first, second = (rows[~rows.index.duplicated()] for rows in tables)
    common = first.index.intersection(second.index)
    pairs = zip(first.loc[common].itertuples(), second.loc[common].itertuples(), strict=True)
    equal = sum(
        list(one.negative_ids) == list(other.negative_ids) and np.allclose(one.weights, other.weights, atol=1e-5)
        for one, other in pairs
    )
    return len(first.index.union(second.index)), equal


def rows_compared(before: str) -> Iterator[dict[str, Any]]:
    """Mine with both commits, and yield a row of the result for each collection and recipe, and one for all."""
    earlier, same, whole = WORK / "earlier", 0, 0
    if not earlier.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(earlier), before], cwd=ROOT, check=True)
    for place in ("before", "now"):
        (WORK / place).mkdir(parents=True, exist_ok=True)
    for collection in COLLECTIONS:
        for recipe in RECIPES:
            rows, equal = compare(
                rows_of(earlier, WORK / "before", collection, recipe), rows_of(ROOT, WORK / "now", collection, recipe)
            )
            whole, same = whole + 1, same + (rows == equal)
            print(f"{collection} {recipe}: {equal} of {rows} rows equal", flush=True)
            yield {"case": f"equal_rows_{collection}_{recipe}", "value": equal, "unit": f"of {rows} rows"}
    note = f"recipes on collections whose training rows are all equal to those of {before}"
    yield {"case": "training_rows_equal", "value": same, "unit": f"of {whole}", "note": note}


def main() -> None:
    """Measure, and write the result beside this script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="ba1245f", help="commit of the house as it was")
    parser.add_argument("--tests", action="store_true", help="run `make test` and note its seconds")
    given = parser.parse_args()
    known = {row["case"]: row for row in json.loads(RESULT.read_text())["rows"]} if RESULT.exists() else {}
    budget = dict(runpy.run_path(str(ROOT / "tests" / "test_budget.py"))["measured"]())
    rows = [
        {"case": name.replace("lines of code", "code_lines").replace(" ", "_"), "value": value}
        for name, value in budget.items()
    ]
    if given.tests:
        started = time.monotonic()
        done = subprocess.run(["make", "test"], cwd=ROOT, check=False)
        seconds = round(time.monotonic() - started)
        rows.append(
            {"case": "make_test_seconds", "value": seconds, "unit": "s", "note": f"exit code {done.returncode}"}
        )
    elif "make_test_seconds" in known:
        rows.append(known["make_test_seconds"])
    rows += rows_compared(given.before)
    rows.append({"case": "concepts_removed", "value": CONCEPTS})
    packages = ("anmi", "kedro", "numpy", "pyarrow", "torch")
    result = {
        "machine": {"cores": os.cpu_count()},
        "versions": {name: version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
