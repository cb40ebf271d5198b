"""These nodes measure every system on the test queries."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.adaptation.pseudo_tests import (
    labels_used,
    unlabelled_splits,
    with_pseudo_tests,
    without_pseudo_queries,
)
from anmi.corpus.hardness import hardness
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.related import documents_of, hits_of
from anmi.corpus.texts import document_texts
from anmi.evaluation.generalisation import ALL, BUCKETS, PSEUDO, buckets, trained_positives
from anmi.evaluation.significance import compare_all, interval, intervals
from anmi.pipelines.evaluation.search import queries_of_split
from anmi.pipelines.params import DenseParams, EvaluationParams
from anmi.retrieval.encoders import Encoder, place_of
from anmi.search.hybrid import HYBRID
from anmi.store import Store

log = logging.getLogger(__name__)
# The first is the one that is compared by bucket.
_HEADLINE: Final = ("ndcg@10", "mrr@10", "recall@10", "recall@100")


def score_runs(
    runs: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    pseudo_queries: pd.DataFrame | None,
    params: EvaluationParams,
    recipe: str | None = None,
) -> pd.DataFrame:
    """Return every metric of every held-out query and system; one that finds nothing scores 0.

    Documents of one text count once; where that makes a difference, ``plain_…`` are the headline
    metrics as BEIR counts them. Relevant documents that the corpus lacks count as not found.
    """
    from anmi.evaluation.metrics import evaluate, of_documents, with_copies

    _, asked, qrels = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    if asked.empty:
        label = pd.DataFrame({"query_id": ["none"], "document_id": "none", "relevance": 1})
        return evaluate(label, runs, params.cutoffs).reset_index().assign(system="")[:0]
    labels = qrels[qrels.query_id.isin(asked.query_id)]
    truth = of_documents(labels, corpus)
    systems = runs.system.unique().tolist()
    if recipe is not None:
        systems = [
            "bm25",
            "zero_shot",
            recipe,
            *(name for name in systems if name != HYBRID),
            HYBRID,
        ]
    # Runs are without queries that are documents already, and ids that coincide mean nothing.
    runs_by_system = {system: runs[runs.system == system] for system in dict.fromkeys(systems)}
    scores = {
        system: evaluate(truth, run, params.cutoffs) for system, run in runs_by_system.items()
    }
    if "copy_of" in corpus:
        every_copy = of_documents(labels, corpus.drop(columns="copy_of"))
        plain = {
            system: evaluate(every_copy, with_copies(run, corpus), params.cutoffs)
            for system, run in runs_by_system.items()
        }
        _add_plain(scores, plain)
    tables = [table.assign(system=system).reset_index() for system, table in scores.items()]
    return pd.concat(tables, ignore_index=True)


def _add_plain(scores: dict[str, pd.DataFrame], plain: Mapping[str, pd.DataFrame]) -> None:
    """Add the headline metrics as BEIR counts them, copies by themselves, where they differ."""
    for name in _HEADLINE:
        if all(
            np.allclose(table.get(name, 0), plain[s].get(name, 0)) for s, table in scores.items()
        ):
            continue
        for system, table in scores.items():
            table[f"plain_{name}"] = plain[system][name]
        means = ", ".join(
            f"{system} {table[name].mean():.3f} ({plain[system][name].mean():.3f})"
            for system, table in scores.items()
        )
        log.info(
            "%s with each text counted once, and as BEIR counts (in brackets): %s", name, means
        )


def describe_hardness(
    scores: pd.DataFrame,
    queries: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    params: EvaluationParams,
) -> dict[str, Any]:
    """Return the results of every system by the hardness of queries: in buckets, and one metric in equal groups."""
    from anmi.evaluation.metrics import by_bucket, profile

    asked = pd.concat([queries[["query_id", "text"]], pseudo_queries[["query_id", "text"]]])
    asked = without_pseudo_queries(asked[asked.query_id.isin(scores.query_id)], pseudo_queries)
    scores = scores[scores.query_id.isin(asked.query_id)]
    value = pd.Series(hardness(asked.text.tolist(), params.hardness.code_mix), index=asked.query_id)
    metric = "ndcg@10" if "ndcg@10" in scores else f"ndcg@{max(params.cutoffs)}"
    found: dict[str, list[dict[Any, Any]]] = {"buckets": [], "profile": []}
    for system, table in scores.groupby("system", sort=False):
        per_query = table.set_index("query_id").drop(columns="system")
        groups = by_bucket(per_query, value).reset_index(), profile(per_query, value, metric)
        for rows, group in zip(found.values(), groups, strict=True):
            records = group.assign(system=system).to_dict("records")
            rows += [
                {name: None if pd.isna(each) else each for name, each in row.items()}
                for row in records
            ]
    return {"metric": metric, **found}


def bucket_queries(
    *,
    scores: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    training_rows: pd.DataFrame,
    training_summary: Mapping[str, Any],
    new_documents: pd.DataFrame,
    seed: int,
) -> pd.DataFrame:
    """Tell for every query that was scored what training saw of its relevant documents, and who asked it.

    Returns ``query_id, bucket, asked_by``: the document that a pseudo-query was made of, and else
    the query itself. Pseudo-queries beside labelled queries are the bucket ``pseudo``.
    """
    from anmi.evaluation.metrics import of_documents

    labels = (training_summary.get("options") or {}).get("labels", 1.0)
    _, known = labels_used(training_rows[:0], queries, labels, seed)
    positives = trained_positives(known, qrels, ("train",), training_rows)
    positives, new = (
        set(hits_of(corpus)[corpus.document_id.isin(ids)])
        for ids in (positives, new_documents.document_id)
    )
    _, _, qrels = with_pseudo_tests(
        corpus, queries, qrels, pseudo_queries, unlabelled_splits(queries, qrels)
    )
    present = of_documents(qrels[qrels.document_id.isin(corpus.document_id)], corpus)
    table = buckets(scores.query_id.unique(), present, positives, new).reset_index()
    is_asked = table.query_id.isin(without_pseudo_queries(table, pseudo_queries).query_id)
    table["bucket"] = table.bucket.where(is_asked, PSEUDO)
    documents = pseudo_queries.document_id.map(
        dict(zip(corpus.document_id, documents_of(corpus), strict=True))
    )
    asked_by = table.query_id.map(dict(zip(pseudo_queries.query_id, documents, strict=True)))
    return table.assign(asked_by=asked_by.fillna(table.query_id))


def compare_systems(
    scores: pd.DataFrame,
    info: dict[str, Any],
    *,
    query_buckets: pd.DataFrame,
    encoder: str,
    recipe: str,
    params: EvaluationParams,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, dict[str, float]]]:
    """Average the metrics with intervals; test the differences to the baselines, and the hybrid's to its parts.

    All of it over all queries but the bucket ``pseudo``; the headline metrics and the differences
    of nDCG@10 also by what training saw. The headline metrics come a third time, by bucket and
    system, for MLflow: the others would hide them.
    """
    from anmi.evaluation.metrics import summarise

    if scores.empty:
        return pd.DataFrame(), pd.DataFrame(), {}
    rows = average_systems(scores, info, query_buckets, encoder, params=params, seed=seed)
    metrics = [column for column in scores.columns if "@" in column]
    tables = by_system(scores)
    comparisons = []
    settings: dict[str, Any] = {
        "seed": seed,
        "resamples": params.resamples,
        "confidence": params.confidence,
    }
    known = query_buckets.set_index("query_id")
    asked = ids_by_bucket(query_buckets)
    headline = rows[rows.metric.isin(_HEADLINE)]
    names = headline.recipe + "." + headline.metric
    flat = list(zip(headline.bucket, names, headline.value, strict=True))
    for system, table in tables.items():
        flat += [
            (ALL, f"{system}.{name}", value)
            for name, value in summarise(table.loc[asked[ALL]]).items()
            if "@" not in name
        ]
    companions = [name for name in tables if name not in ("bm25", "zero_shot", recipe, HYBRID)]
    pairs = [
        (name, baseline) for name in (recipe, *companions) for baseline in ("zero_shot", "bm25")
    ]
    pairs += [("bm25", "zero_shot")]
    pairs += [
        (HYBRID, baseline)
        for baseline in ("zero_shot", "bm25", recipe, *companions)
        if HYBRID in tables
    ]
    for bucket, ids in asked.items():
        named = [
            name for name in (_HEADLINE if bucket == ALL else _HEADLINE[:1]) if name in metrics
        ]
        of = {
            system: table.loc[ids, named].to_numpy(np.float64).T for system, table in tables.items()
        }
        differences = [of[system] - of[baseline] for system, baseline in pairs]
        groups = known.asked_by[ids].to_numpy()
        tests = compare_all(np.concatenate(differences), **settings, groups=groups) if named else []
        for ((system, baseline), metric), test in zip(product(pairs, named), tests, strict=True):
            comparisons.append(
                {
                    "system": system,
                    "baseline": baseline,
                    "bucket": bucket,
                    "queries": len(ids),
                    "metric": metric,
                    **test._asdict(),
                }
            )
    finite: dict[str, dict[str, float]] = {ALL: {}}
    for bucket, name, value in flat:
        finite.setdefault(bucket, {}).update({name: float(value)} if np.isfinite(value) else {})
    return rows, pd.DataFrame(comparisons), finite


def average_systems(
    scores: pd.DataFrame,
    info: Mapping[str, Any],
    query_buckets: pd.DataFrame,
    encoder: str,
    *,
    params: EvaluationParams,
    seed: int,
) -> pd.DataFrame:
    """Return the means of metrics by system, those of the headline also by bucket."""
    metrics = [column for column in scores.columns if "@" in column]
    groups = query_buckets.set_index("query_id").asked_by
    rows = []
    for system, table in by_system(scores).items():
        for bucket, ids in ids_by_bucket(query_buckets).items():
            names = metrics if bucket == ALL else [name for name in _HEADLINE if name in metrics]
            bounds = intervals(
                table.loc[ids, names].to_numpy(np.float64).T,
                seed=seed,
                resamples=params.resamples,
                confidence=params.confidence,
                groups=groups[ids].to_numpy(),
            )
            facts = {
                "collection": info["collection"],
                "encoder": encoder,
                "recipe": system,
                "seed_count": 1,
                "bucket": bucket,
                "queries": len(ids),
            }
            ends = zip(names, *(part.tolist() for part in bounds), strict=True)
            for metric, value, low, high in ends:
                rows.append(facts | {"metric": metric, "value": value, "low": low, "high": high})
    return pd.DataFrame(rows)


def by_system(scores: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the metrics of queries, by their ids, of each system."""
    return {
        str(system): table.set_index("query_id").drop(columns="system")
        for system, table in scores.groupby("system", sort=False)
    }


def ids_by_bucket(query_buckets: pd.DataFrame) -> dict[str, pd.Index]:
    """Return the ids of all queries that people asked, and of those of each bucket that has some."""
    buckets = query_buckets.set_index("query_id").bucket
    ids = {ALL: buckets.index[buckets != PSEUDO]}
    ids |= {name: buckets.index[buckets == name] for name in BUCKETS}
    return {name: members for name, members in ids.items() if len(members)}


def measure_knowledge(
    *,
    runs: pd.DataFrame,
    trained_model: Path,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: Knowledge,
    variants: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    corpus_encoder: Path,
    encoder: str,
    recipe: str,
    params: EvaluationParams,
    dense: DenseParams,
    seed: int,
    store: Store,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure which entity both encoders find, whether they tell facts from false ones, and what they take for near.

    Both results are empty, at once, where the collection names no entities or its documents state
    no facts. Without variants only entities are linked.
    """
    if knowledge.entities.empty or knowledge.facts.empty or runs.empty:
        return {}, {}
    from anmi.evaluation.factuality import (
        ALL,
        factuality,
        factuality_pairs,
        linking,
        neighbours,
        pair_similarities,
    )

    corpus, asked, qrels = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    asked = without_pseudo_queries(asked, pseudo_queries)
    training = queries[queries.split == "train"]
    ids = corpus.document_id.tolist()
    truth = qrels[qrels.query_id.isin(asked.query_id) & qrels.document_id.isin(ids)]
    texts = dict(zip(ids, document_texts(corpus), strict=True))
    # Variants of a document that was trained on were perhaps trained on, too.
    held_out = truth[
        ~truth.document_id.isin(qrels.document_id[qrels.query_id.isin(training.query_id)])
    ]
    pairs = factuality_pairs(
        asked, held_out, texts, variants, seed=seed, most_queries=params.factuality_queries
    )
    known = knowledge.of(ids)
    about = dict(zip(ids, known.about.tolist(), strict=True))
    metrics: dict[str, Any] = {}
    settings: dict[str, Any] = {
        "seed": seed,
        "resamples": params.resamples,
        "confidence": params.confidence,
    }

    def linked(run: pd.DataFrame) -> dict[str, Any]:
        found = linking(run, truth, about)
        result: dict[str, Any] = {"linking_queries": len(found)}
        result["linking_left_out"] = truth.query_id.nunique() - len(found)
        # One query cannot be resampled.
        for name in found.columns if len(found) > 1 else ():
            ends = interval(found[name].to_numpy(), **settings)
            result |= zip(
                (f"linking_{name}", f"linking_{name}_low", f"linking_{name}_high"),
                ends,
                strict=True,
            )
        return result

    for system, encoder_settings in (
        ("zero_shot", dense.of(place_of(encoder, corpus_encoder))),
        (recipe, dense.as_saved(str(trained_model))),
    ):
        metrics[system] = linked(runs[runs.system == system])
        if len(pairs):
            # As with runs, the vectors of a model that is seen once are not kept.
            kept = store if system == "zero_shot" else None
            opened = Encoder(encoder_settings, store.path / "models", kept)
            encode = partial(opened.encode, description=f"encoding variants for {system}")
            found = factuality(pairs, *pair_similarities(pairs, encode), **settings)
            rows = {str(kind): row for kind, row in found.to_dict("index").items()}
            overall = {f"factuality_{name}": value for name, value in rows.pop(ALL, {}).items()}
            metrics[system] |= overall | {"factuality": rows}
    near = neighbours(runs[runs.system == recipe], truth, known, ids, depth=params.neighbours)
    shares = {name: float(near[name].mean()) for name in ("right", "entails", "same_uri")}
    return metrics, {
        "depth": params.neighbours,
        "queries": int(near.query_id.nunique()),
        "shares": shares,
    }
