"""What the main job brings MiniLM on SciFact: BM25, zero-shot and trained. The static encoder has the ablation.

Every cell is a real ``kedro run`` in a folder of its own; embeddings and judgments are shared through one store.
Finished cells are kept, so the script may be interrupted. Run from the repository's root:

    python benchmarks/main_job.py
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.evaluation.metrics import evaluate
from anmi.evaluation.retrieval import run_table, search
from anmi.evaluation.significance import interval
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.retrieval.encoders import load_encoder
from anmi.store import Store

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "main_job.json"
METRICS = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
SCIFACT = "beir:../shared/data/scifact"
MINILM = (
    "dense.max_length=128,training.options.max_length=128,training.options.epochs=3,training.options.batch_size=32,"
    "training.options.learning_rate=5e-5,training.options.recompute=false,training.options.negatives=3"
)
MINILM_RECIPES = ("in_batch", "naive_top", "nv_retriever", "anmi_2_1", "anmi")
# (collection, encoder, recipe, extra parameters, seeds at most); MiniLM trains for a quarter of an hour a seed.
CELLS = {"minilm": [(SCIFACT, "minilm", recipe, MINILM, 1) for recipe in MINILM_RECIPES]}


def run_cell(folder: Path, collection: str, encoder: str, recipe: str, extra: str, seed: int) -> Path:
    """Run one cell unless it is finished; return its folder."""
    name = "-".join([collection.replace("/", "_").replace(":", "_").replace(".", ""), encoder, recipe, str(seed)])
    data = folder / name
    if (data / "done").exists():
        return data
    parameters = f"collection={collection},encoder={encoder},recipe={recipe},seed={seed}" + (
        f",{extra}" if extra else ""
    )
    environment = os.environ | {"ANMI_DATA_ROOT": str(data), "ANMI_STORE": str(folder / "store")}
    started = time.monotonic()
    kedro = Path(sys.executable).with_name("kedro")
    subprocess.run([str(kedro), "run", "--params", parameters], cwd=ROOT, env=environment, check=True)
    (data / "done").write_text(str(time.monotonic() - started))
    return data


def latest(data: Path, stage: str, name: str) -> pd.DataFrame:
    """Return the newest version of a table of a cell."""
    return pd.read_parquet(sorted((data / stage / name).glob("*/" + name))[-1])


def scores(data: Path) -> pd.DataFrame:
    """Return the per-query metrics of a cell, with a mark for queries all of whose positives training never saw."""
    table = latest(data, "07_model_output", "query_metrics.parquet")
    qrels = latest(data, "02_intermediate", "qrels.parquet")
    seen = set(qrels[qrels.split == "train"].document_id)
    touched = qrels[(qrels.split == "test") & qrels.document_id.isin(seen)].query_id
    return table.assign(unlabelled=~table.query_id.isin(touched))


def rows_of(
    tables: list[pd.DataFrame], collection: str, encoder: str, recipe: str, system: str
) -> list[dict[str, object]]:
    """Average one system over seeds per query, then over queries with a bootstrap interval."""
    rows: list[dict[str, object]] = []
    merged = pd.concat([table[table.system == system].assign(seed=i) for i, table in enumerate(tables)])
    for metric in METRICS:
        for suffix, part in (("", merged), (":unlabelled", merged[merged.unlabelled])):
            per_query = part.groupby("query_id")[metric].mean().to_numpy()
            if len(per_query) < 2 or (suffix and metric != "ndcg@10"):
                continue
            value, low, high = interval(per_query, seed=1)
            rows.append({
                "collection": collection, "encoder": encoder, "recipe": recipe, "seed_count": len(tables),
                "metric": metric + suffix, "value": round(value, 5), "low": round(low, 5), "high": round(high, 5),
            })  # fmt: skip
    return rows


def zero_shot(work: Path, collection: str, encoder: str, max_length: int) -> list[dict[str, object]]:
    """Measure an untrained encoder alone."""
    found = load_collection(collection)
    test = found.queries[(found.queries.split == "test") & found.queries.query_id.isin(found.qrels.query_id)]
    model = load_encoder(encoder, work / "store" / "models", max_length)
    with Store(work / "store") as store:
        ranked = search(model, test.text.tolist(), document_texts(found.corpus), 100, store=store, description=encoder)
    run = run_table(test.query_id.tolist(), found.corpus.document_id.tolist(), *ranked)
    table = evaluate(found.qrels[found.qrels.query_id.isin(test.query_id)], run).reset_index()
    table = table.assign(system="zero_shot", unlabelled=False)
    return rows_of([table], shown_name(collection), encoder, "zero_shot", "zero_shot")


def shown_name(collection: str) -> str:
    """Return the collection's name without its place."""
    return collection.removeprefix("beir:../shared/data/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="+", choices=sorted(CELLS), default=sorted(CELLS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "benchmarks" / "main_job")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    if RESULT.exists():
        old = json.loads(RESULT.read_text())["rows"]
        rows = {(r["collection"], r["encoder"], r["recipe"], r["metric"]): r for r in old}
    for group in arguments.cells:
        for collection, encoder, recipe, extra, most in CELLS[group]:
            work = arguments.work.resolve()
            seeds = range(1, min(arguments.seeds, most) + 1)
            cells = [run_cell(work, collection, encoder, recipe, extra, seed) for seed in seeds]
            tables = [scores(cell) for cell in cells]
            shown = shown_name(collection)
            for system in ("bm25", "zero_shot", recipe):
                # MiniLM is trained and searched at 128 tokens; its customary zero-shot figure is that at 256.
                label = f"{encoder}@128" if (encoder, system) == ("minilm", "zero_shot") else encoder
                for row in rows_of(tables if system == recipe else tables[:1], shown, label, system, system):
                    rows[shown, label, system, row["metric"]] = row
            if encoder == "minilm":
                for row in zero_shot(arguments.work, collection, encoder, 256):
                    rows[shown, encoder, "zero_shot", row["metric"]] = row
            RESULT.parent.mkdir(exist_ok=True)
            document = {
                "date": datetime.date.today().isoformat(),
                "machine": machine(),
                "versions": versions(),
                "rows": [rows[key] for key in sorted(rows, key=str)],
            }
            RESULT.write_text(json.dumps(document, indent=1) + "\n")
            spread = [float(t[t.system == recipe]["ndcg@10"].mean()) for t in tables]
            print(f"{shown} {encoder} {recipe}: nDCG@10 {np.mean(spread):.4f} {np.round(spread, 4)}", flush=True)


if __name__ == "__main__":
    main()
