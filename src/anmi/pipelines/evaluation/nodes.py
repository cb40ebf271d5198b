"""Nodes of evaluation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anmi.errors import AnmiError
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.evaluation.params import EvaluationParams
from anmi.retrieval.bm25 import BM25Index
from anmi.store import Store


def run_systems(
    bm25_index: BM25Index,
    trained_model: Path,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    encoder: str,
    recipe: str,
    params: EvaluationParams,
    dense: DenseParams,
    store: Store,
) -> pd.DataFrame:
    """Rank the whole corpus for every held-out query by BM25, the untrained and the trained encoder."""
    from anmi.corpus.texts import document_texts
    from anmi.evaluation.retrieval import run_table, search
    from anmi.retrieval.encoders import load_encoder

    asked = queries[(queries.split == params.split) & queries.query_id.isin(qrels.query_id)]
    if asked.empty:
        raise AnmiError(f'the collection has no "{params.split}" queries with a relevant document to evaluate on')
    texts, ids = asked.text.tolist(), asked.query_id.tolist()
    documents, document_ids = document_texts(corpus), corpus.document_id.tolist()
    depth = max(params.cutoffs)
    runs = {"bm25": run_table(ids, document_ids, *bm25_index.search(texts, depth))}
    for system, name in (("zero_shot", encoder), (recipe, str(trained_model))):
        model = load_encoder(name, store.path / "models", dense.max_length)
        found = search(
            model,
            texts,
            documents,
            depth,
            # A trained model is seen once; keeping its vectors would only fill the store.
            store=store if system == "zero_shot" else None,
            precision=dense.precision,
            prompts=(dense.prompt_query, dense.prompt_document),
            batch_size=dense.batch_size,
            description=system,
        )
        runs[system] = run_table(ids, document_ids, *found)
    return pd.concat([run.assign(system=system) for system, run in runs.items()], ignore_index=True)


def score_runs(
    runs: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame, params: EvaluationParams
) -> pd.DataFrame:
    """Return every metric of every held-out query and system."""
    from anmi.evaluation.metrics import evaluate

    asked = queries[(queries.split == params.split) & queries.query_id.isin(qrels.query_id)]
    truth = qrels[qrels.query_id.isin(asked.query_id)]
    tables = [
        evaluate(truth, run, params.cutoffs).reset_index().assign(system=system)
        for system, run in runs.groupby("system", sort=False)
    ]
    return pd.concat(tables, ignore_index=True)


def describe_hardness(scores: pd.DataFrame, queries: pd.DataFrame, params: EvaluationParams) -> dict[str, Any]:
    """Return the results of every system by the hardness of queries: in buckets, and one metric in equal groups."""
    from anmi.corpus.hardness import hardness
    from anmi.evaluation.buckets import by_bucket, profile

    asked = queries[queries.query_id.isin(scores.query_id)]
    value = pd.Series(hardness(asked.text.tolist(), params.hardness).value, index=asked.query_id)
    metric = "ndcg@10" if "ndcg@10" in scores else f"ndcg@{max(params.cutoffs)}"
    buckets, groups = [], []
    for system, table in scores.groupby("system", sort=False):
        per_query = table.set_index("query_id").drop(columns="system")
        buckets.append(by_bucket(per_query, value).reset_index().assign(system=system))
        groups.append(profile(per_query, value, metric).assign(system=system))
    found = {name: pd.concat(parts).to_dict("records") for name, parts in (("buckets", buckets), ("profile", groups))}
    return {"metric": metric} | {
        name: [{k: None if pd.isna(v) else v for k, v in row.items()} for row in rows] for name, rows in found.items()
    }


def compare_systems(
    scores: pd.DataFrame, info: dict[str, Any], encoder: str, recipe: str, params: EvaluationParams, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, float]]:
    """Average the metrics with intervals, and test the differences to both baselines."""
    from anmi.evaluation.metrics import summarise
    from anmi.evaluation.significance import compare, interval

    metrics = [column for column in scores.columns if "@" in column]
    tables = {
        str(system): table.set_index("query_id").drop(columns="system")
        for system, table in scores.groupby("system", sort=False)
    }
    rows, comparisons, flat = [], [], {}
    settings: dict[str, Any] = {"seed": seed, "resamples": params.resamples, "confidence": params.confidence}
    for system, table in tables.items():
        for metric in metrics:
            value, low, high = interval(table[metric].to_numpy(), **settings)
            rows.append({
                "collection": info["collection"], "encoder": encoder, "recipe": system, "seed_count": 1,
                "metric": metric, "value": value, "low": low, "high": high,
            })  # fmt: skip
            flat[f"{system}.{metric}"] = value
        flat |= {f"{system}.{k}": v for k, v in summarise(table).items() if "@" not in k}
    for system, baseline in ((recipe, "zero_shot"), (recipe, "bm25"), ("bm25", "zero_shot")):
        for metric in ("ndcg@10", "mrr@10", "recall@10", "recall@100"):
            if metric not in metrics:
                continue
            a, b = (tables[name][metric].to_numpy() for name in (system, baseline))
            found = asdict(compare(a, b, **settings))
            comparisons.append({"system": system, "baseline": baseline, "metric": metric, **found})
    flat = {name: float(value) for name, value in flat.items() if np.isfinite(value)}
    return pd.DataFrame(rows), pd.DataFrame(comparisons), flat
