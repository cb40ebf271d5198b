"""What adapting to the hardness of queries brings: HANS in both directions against the same training without it.

Two collections: ``hinglish_top`` (romanised Hindi-English requests, English documents; 1,000 training queries)
and questions of ``xquad`` of which half were mixed with a translation, on English paragraphs. The rows are the same for
all: three negatives, the nearest below 95 % of the positive's similarity by the untrained static encoder. So are seeds,
epochs, batch, rate and temperature; the rate is the one of three with the best dev metric of the baseline with shared
encoders. ``matched`` has the temperature and number of negatives that HANS has on average, for all queries alike. Each
once with shared and once with two encoders. Buckets and thirds pool the queries of all seeds. Run from the repository's
root:

    python benchmarks/hans.py
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from anmi import seeds
from anmi.corpus.hardness import hardness
from anmi.corpus.splits import choose
from anmi.evaluation.buckets import by_bucket
from anmi.evaluation.metrics import evaluate, summarise
from anmi.evaluation.retrieval import run_table, search
from anmi.evaluation.significance import compare
from anmi.retrieval.encoders import load_encoder
from anmi.selection.recipe import recipe_book
from anmi.training.options import TrainingOptions
from hardness import queries, read, spliced

ROOT = Path(__file__).parents[1]
MODELS = Path(os.environ.get("ANMI_STORE", ROOT / "data" / "store")) / "models"
RESULT = ROOT / "benchmarks" / "results" / "hans.json"
SEEDS = (1, 2)
EPOCHS = 3
MOST_ROWS = 1000
RATES = (2e-3, 4e-3, 8e-3)
METRIC = "mrr@10"
OTHERS = ("ar", "de", "es", "hi", "zh")


def texts_of(collection: str, split: str) -> pd.DataFrame:
    """Return the queries of a split: ``text`` and the id of their ``document``, by id."""
    if collection == "hinglish_top":
        return queries(collection, split)
    table = queries("xquad/en", split).copy()
    for i, (query, text) in enumerate(table.text.items()):
        draw = seeds.stream(7, "hans/mix", str(query))
        other = OTHERS[int(draw.integers(len(OTHERS)))]
        if draw.random() < 0.5:
            translated = str(read(f"xquad/{other}", "queries").text[query])
            table.iloc[i, table.columns.get_loc("text")] = spliced(text, translated, draw)
    return table


def corpus_of(collection: str) -> pd.Series:
    return read("hinglish_top" if collection == "hinglish_top" else "xquad/en", "corpus").text


def training_rows(collection: str, negatives: int = 3) -> pd.DataFrame:
    """Mine as the recipe does: the nearest documents below 95 % of the positive's similarity."""
    asked, documents = texts_of(collection, "train"), corpus_of(collection)
    asked = asked[choose(asked.index.tolist(), MOST_ROWS, seed=7)]
    ids = documents.index.to_numpy()
    place = pd.Series(np.arange(len(ids)), index=ids)
    model = load_encoder("static", MODELS)
    found, scores = search(model, asked.text.tolist(), documents.tolist(), min(100, len(ids)))
    own = place[asked.document].to_numpy()
    encoded = model.encode([*asked.text, *documents[asked.document]], normalize_embeddings=True)
    positive = (encoded[: len(asked)] * encoded[len(asked) :]).sum(1)
    ceiling = positive - np.abs(positive) * 0.05
    same_text = documents.to_numpy()
    rows = []
    for i, (query, row) in enumerate(asked.iterrows()):
        good = (scores[i] < ceiling[i]) & (found[i] != own[i])
        chosen = [d for d in found[i][good].tolist() if same_text[d] != same_text[own[i]]][:negatives]
        rows.append({
            "query_id": query, "query": row.text, "positive_id": row.document, "positive": documents[row.document],
            "negative_ids": ids[chosen].tolist(), "negatives": documents.iloc[chosen].tolist(),
            "weights": [1.0] * len(chosen), "query_weight": 1.0, "positive_ids": [row.document],
        })  # fmt: skip
    return pd.DataFrame(rows)


def arms(mean_hardness: float) -> dict[str, dict[str, Any]]:
    """Return the training settings of every row of the comparison.

    HANS has a lower temperature and fewer negatives on average, in both directions; ``matched`` has that average for
    all queries alike, so that what is left is due to adapting.
    """
    book = recipe_book(yaml.safe_load((ROOT / "conf/base/recipes.yml").read_text())["recipes"])
    found = {"hans": dict(book.get("hans").training) | {"negatives": 3}}
    letter = dict(book.get("hans_as_published").training["hardness"]["hans"])
    formulas = {name: value for name, value in letter.items() if name not in ("temperature_is", "margin_on")}
    found["hans_formulas"] = found["hans"] | {"hardness": {"hans": formulas}}
    plain = {name: value for name, value in found["hans"].items() if name != "hardness"}
    matched = {
        "temperature": {"fixed": {"value": round(0.07 * (1 - mean_hardness / 2), 4)}},
        "negatives": round(1 + 2 * mean_hardness),
    }
    return {"baseline": plain, "matched": plain | matched} | found


def results_of(model: Any, collection: str, split: str) -> pd.DataFrame:
    asked, documents = texts_of(collection, split), corpus_of(collection)
    qrels = pd.DataFrame({"query_id": asked.index, "document_id": asked.document, "relevance": 1})
    found = search(model, asked.text.tolist(), documents.tolist(), 100)
    return evaluate(qrels, run_table(asked.index.tolist(), documents.index.tolist(), *found))


def fit(rows: pd.DataFrame, collection: str, settings: dict[str, Any], seed: int) -> Any:
    from anmi.training.trainer import train

    return train(
        rows,
        encoder=load_encoder("static", MODELS),
        options=TrainingOptions(epochs=EPOCHS, **settings),
        output=None,
        evaluate_dev=lambda model: float(results_of(model, collection, "dev")[METRIC].mean()),
        seed=seed,
        show_progress=False,
    )


def chosen_rate(rows: pd.DataFrame, collection: str, plain: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """Return the rate with the best dev metric of the baseline, and the metric of each."""
    found = {
        rate: fit(rows, collection, plain | {"learning_rate": rate}, SEEDS[0]).summary["best_dev_ndcg@10"]
        for rate in RATES
    }
    return max(found, key=lambda rate: found[rate]), {f"{rate:g}": round(value, 4) for rate, value in found.items()}


def rounded(table: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    return {
        str(name): {str(k): None if pd.isna(v) else round(float(v), 4) for k, v in row.items()}
        for name, row in table.iterrows()
    }


def collection_rows(collection: str) -> list[dict[str, Any]]:
    rows = training_rows(collection)
    asked = texts_of(collection, "test")
    value = pd.Series(hardness(asked.text.tolist()).value, index=asked.index)
    made = []
    settings_of = arms(float(hardness(rows["query"].tolist()).value.mean()))
    rate, rates = chosen_rate(rows, collection, settings_of["baseline"])
    for encoders in ("shared", "two"):
        means: dict[str, pd.DataFrame] = {}
        for arm, settings in settings_of.items():
            started, per_seed, logs = time.perf_counter(), [], []
            for seed in SEEDS:
                result = fit(rows, collection, settings | {"encoders": encoders, "learning_rate": rate}, seed)
                per_seed.append(results_of(result.model, collection, "test"))
                logs.append(result.log)
            scores = [float(table[METRIC].mean()) for table in per_seed]
            # Ranks are described seed by seed: their mean over seeds would be no rank.
            summary = pd.DataFrame([summarise(table) for table in per_seed]).mean()
            together = pd.concat(per_seed)
            means[arm] = together.drop(columns="rank").groupby(level=0, sort=False).mean()
            last = logs[-1].iloc[-50:]
            row = {
                "collection": collection, "encoders": encoders, "arm": arm, "seeds": list(SEEDS),
                "temperature": settings["temperature"], "learning_rate": rate, "dev_by_rate": rates,
                "seconds_per_seed": round((time.perf_counter() - started) / len(SEEDS), 1),
                "metrics": {str(k): round(float(v), 4) for k, v in summary.items()},
                f"{METRIC}_by_seed": [round(score, 4) for score in scores],
                "buckets": rounded(by_bucket(together, value)),
                "thirds": rounded(by_bucket(together, value, tuple(np.quantile(value, [1 / 3, 2 / 3])))),
                "negatives_per_row": round(float(last["negatives"].mean()), 3) if "negatives" in last else
                round(float(rows.negative_ids.map(len).clip(upper=settings["negatives"]).mean()), 3),
                "hardness_error": round(float(last["hardness_error"].mean()), 5) if "hardness_error" in last else None,
            }  # fmt: skip
            for other in [name for name in ("baseline", "matched") if name in means and name != arm]:
                found = compare(means[arm][METRIC].to_numpy(), means[other][METRIC].to_numpy(), seed=1)
                row[f"against_{other}"] = {k: round(v, 4) for k, v in found.as_dict().items()}
            made.append(row)
            print(collection, encoders, arm, rate, scores, row.get("against_baseline"), flush=True)
    return made


def main() -> None:
    """Measure all of it, or one collection, and write the result."""
    from anmi.pipelines.reporting.nodes import machine, versions

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("hinglish_top", "xquad_mix"))
    only = parser.parse_args().only
    known = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    for collection in ("hinglish_top", "xquad_mix"):
        if only in (None, collection):
            known = [row for row in known if row["collection"] != collection] + collection_rows(collection)
            document = {
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "machine": machine(),
                "versions": versions(),
                "encoder": "static",
                "epochs": EPOCHS,
                "most_training_queries": MOST_ROWS,
                "metric": METRIC,
                "rows": known,
            }
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
