"""What each recipe brings where the truth is known: WebNLG, whose documents entail each other's facts.

All recipes choose from the same rated candidates of 3,000 training queries, all train the static encoder with their own
loss and temperature, and each is measured on the test queries by the original labels and by the completed ones: a
document that states all facts of a query's own document is relevant, too. Nothing was chosen by these test figures.
Run from the repository's root: ``python benchmarks/recipes.py --seeds 2``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anmi.candidates import CandidateShards
from anmi.corpus.texts import document_texts
from anmi.evaluation.diagnostics import gap, leak
from anmi.evaluation.metrics import evaluate
from anmi.evaluation.retrieval import run_table, search
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.pipelines.selection.nodes import make_training_rows, select_negatives
from anmi.pipelines.training.params import TrainingParams, complete_options, merged_options
from anmi.retrieval.encoders import load_encoder
from anmi.training.trainer import train

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "recipes.json"
DATA = Path(os.environ.get("ANMI_DATA") or ROOT.parent / "shared" / "data")
WORK = ROOT / "data" / "benchmarks" / "recipes"
RECIPES = (
    "in_batch", "random", "bm25_random", "naive_top", "shift", "nv_retriever", "simans", "progcl_mix", "rocketqa",
    "clean_top", "anmi_2_0", "anmi_2_1", "anmi",
)  # fmt: skip


def mine(queries: int) -> Path:
    """Rate the candidates by the project's command, once."""
    data = WORK / f"kg_webnlg-{queries}"
    if not (data / "selection").exists():
        parameters = f"collection=beir:{DATA}/kg_webnlg/beir_en,recipe=anmi,encoder=static"
        command = [str(Path(sys.executable).with_name("kedro")), "run", "--pipelines", "mining"]
        environment = os.environ | {"ANMI_DATA_ROOT": str(data), "ANMI_STORE": str(WORK / "store")}
        given = ["--params", f"{parameters},ingestion.max_queries={queries}"]
        subprocess.run([*command, *given], cwd=ROOT, env=environment, check=True)
    return data


def newest(data: Path, stage: str, name: str) -> Path:
    return max((data / stage / name).glob(f"*/{name}"))


def recipes_of() -> Any:
    import yaml

    from anmi.selection.recipe import recipe_book

    return recipe_book(
        yaml.safe_load((ROOT / "conf/base/parameters_recipes.yml").read_text(encoding="utf-8"))["recipes"]
    )


def measure(data: Path, name: str, book: Any, tables: dict[str, pd.DataFrame], seeds: int) -> dict[str, Any]:
    """Select, train and search with one recipe."""
    rated = CandidateShards.read(sorted(newest(data, "elo", "rated_candidates").glob("*.parquet")))
    corpus, queries, qrels, equivalents = (tables[key] for key in ("corpus", "queries", "qrels", "equivalents"))
    selection = select_negatives(rated, tables["consistency"], name, book, seed=1)
    rows = make_training_rows(selection, corpus, queries, tables["kin"], tables["duplicates"], name, book)
    labelled = rows[rows.origin == "qrels"]
    asked = queries[(queries.split == "test") & queries.query_id.isin(qrels.query_id)]
    own = qrels[qrels.query_id.isin(asked.query_id)]
    known = equivalents[equivalents.query_id.isin(asked.query_id)].assign(relevance=1, split="test")
    completed = pd.concat([own, known[own.columns]]).drop_duplicates(["query_id", "document_id"])
    texts, found = document_texts(corpus), []
    for seed in range(1, seeds + 1):
        encoder = load_encoder("static", WORK / "store" / "models", 256)
        options = merged_options(book.get(name), TrainingParams())
        options = complete_options(options, rows, len(corpus))
        model = train(rows, encoder=encoder, options=options, output=None, seed=seed, show_progress=False).model
        run = run_table(
            asked.query_id.tolist(), corpus.document_id.tolist(), *search(model, asked.text.tolist(), texts, 10)
        )
        found.append([float(evaluate(truth, run, (10,))["ndcg@10"].mean()) for truth in (own, completed)])
    means, spread = np.mean(found, axis=0), np.ptp(found, axis=0)
    return {
        "collection": "kg_webnlg/beir_en", "encoder": "static", "recipe": name, "seed_count": seeds,
        "rows": len(labelled),
        "promoted": len(rows) - len(labelled), "ndcg@10": round(float(means[0]), 4),
        "ndcg@10 completed": round(float(means[1]), 4),
        "spread": round(float(spread[0]), 4),
        "spread completed": round(float(spread[1]), 4),
        "leak": leak(labelled, equivalents, qrels)["share"], "gap": gap(selection, "dense").get("mean"),
        "coverage": float((labelled.negative_ids.map(len) >= book.get(name).negatives).mean()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--queries", type=int, default=3000)
    parser.add_argument(
        "--recipes", nargs="+", choices=RECIPES, default=RECIPES, help="rows of others stay as they are"
    )
    arguments = parser.parse_args()
    data = mine(arguments.queries)
    tables = {key: pd.read_parquet(newest(data, "ingestion", f"{key}.parquet")) for key in (
        "corpus", "queries", "qrels", "equivalents", "kin", "duplicates")}  # fmt: skip
    tables["consistency"] = pd.read_parquet(newest(data, "consistency", "consistency.parquet"))
    old = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
    book, rows = recipes_of(), [row for row in old if row["recipe"] not in arguments.recipes]
    for name in arguments.recipes:
        rows.append(measure(data, name, book, tables, arguments.seeds))
        print(rows[-1], flush=True)
        saved = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine(), "versions": versions(), "training_queries": arguments.queries, "rows": rows,
        }  # fmt: skip
        RESULT.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
