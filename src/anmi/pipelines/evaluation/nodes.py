"""These nodes measure every system on the test queries."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain, product
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
from anmi.pipelines.evaluation.search import labelled_share, queries_of_split
from anmi.pipelines.params import DenseParams, EvaluationParams
from anmi.retrieval.encoders import Encoder, place_of
from anmi.retrieval.kinds import EncoderSettings
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

    _, held_out, qrels = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    if held_out.empty:
        label = pd.DataFrame({"query_id": ["none"], "document_id": "none", "relevance": 1})
        return evaluate(label, runs, params.cutoffs).reset_index().assign(system="")[:0]
    labels = qrels[qrels.query_id.isin(held_out.query_id)]
    truth = of_documents(labels, corpus)
    systems = runs.system.unique().tolist()
    if recipe is not None:
        without_hybrid = [name for name in systems if name != HYBRID]
        systems = ["bm25", "zero_shot", recipe, *without_hybrid, HYBRID]
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
    for metric in _HEADLINE:
        is_same = (
            np.allclose(table.get(metric, 0), plain[system].get(metric, 0))
            for system, table in scores.items()
        )
        if all(is_same):
            continue
        for system, table in scores.items():
            table[f"plain_{metric}"] = plain[system][metric]
        means = ", ".join(
            f"{system} {table[metric].mean():.3f} ({plain[system][metric].mean():.3f})"
            for system, table in scores.items()
        )
        log.info(
            "%s with each text counted once, and as BEIR counts (in brackets): %s", metric, means
        )


def describe_hardness(
    scores: pd.DataFrame,
    queries: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    params: EvaluationParams,
) -> dict[str, Any]:
    """Return the results of systems by the hardness of queries, in groups of equal size."""
    from anmi.evaluation.metrics import profile

    columns = ["query_id", "text"]
    scored = pd.concat([queries[columns], pseudo_queries[columns]])
    scored = without_pseudo_queries(scored[scored.query_id.isin(scores.query_id)], pseudo_queries)
    scores = scores[scores.query_id.isin(scored.query_id)]
    texts = scored.text.tolist()
    query_hardness = pd.Series(hardness(texts, params.hardness.code_mix), index=scored.query_id)
    metric = "ndcg@10" if "ndcg@10" in scores else f"ndcg@{max(params.cutoffs)}"
    profiles = [
        profile(table, query_hardness, metric).assign(system=system)
        for system, table in by_system(scores).items()
    ]
    return {"metric": metric, "profile": _records(profiles)}


def _records(tables: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """Return the rows of tables as JSON knows them."""
    records = chain.from_iterable(table.to_dict("records") for table in tables)
    return [
        {str(name): None if pd.isna(value) else value for name, value in record.items()}
        for record in records
    ]


def bucket_queries(
    *,
    query_metrics: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    training_rows: pd.DataFrame,
    training_summary: Mapping[str, Any],
    new_documents: pd.DataFrame,
    seed: int,
) -> pd.DataFrame:
    """Return ``query_id, bucket, asked_by`` of every query that was scored.

    The bucket says what training saw of its relevant documents; pseudo-queries beside labelled
    queries are the bucket ``pseudo``. ``asked_by`` is the document that a pseudo-query was made of,
    and else the query itself.
    """
    from anmi.evaluation.metrics import of_documents

    share = labelled_share(training_summary)
    _, used_queries = labels_used(training_rows[:0], queries, share, seed)
    positive_ids = trained_positives(used_queries, qrels, ("train",), training_rows)
    hits = hits_of(corpus)
    positives = set(hits[corpus.document_id.isin(positive_ids)])
    new_hits = set(hits[corpus.document_id.isin(new_documents.document_id)])
    _, _, qrels = with_pseudo_tests(
        corpus, queries, qrels, pseudo_queries, unlabelled_splits(queries, qrels)
    )
    present = of_documents(qrels[qrels.document_id.isin(corpus.document_id)], corpus)
    table = buckets(query_metrics.query_id.unique(), present, positives, new_hits).reset_index()
    is_asked = table.query_id.isin(without_pseudo_queries(table, pseudo_queries).query_id)
    table["bucket"] = table.bucket.where(is_asked, PSEUDO)
    document_of = dict(zip(corpus.document_id, documents_of(corpus), strict=True))
    documents = pseudo_queries.document_id.map(document_of)
    asked_by = table.query_id.map(dict(zip(pseudo_queries.query_id, documents, strict=True)))
    return table.assign(asked_by=asked_by.fillna(table.query_id))


def compare_systems(
    *,
    query_metrics: pd.DataFrame,
    query_buckets: pd.DataFrame,
    info: Mapping[str, Any],
    encoder: str,
    recipe: str,
    params: EvaluationParams,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, dict[str, float]]]:
    """Average the metrics with intervals, and test differences to baselines and parts.

    All of it over all queries but the bucket ``pseudo``; the headline metrics and the differences
    of nDCG@10 also by what training saw. The headline metrics come a third time, by bucket and
    system, for MLflow: the others would hide them.
    """
    if query_metrics.empty:
        return pd.DataFrame(), pd.DataFrame(), {}
    rows = average_systems(query_metrics, info, query_buckets, encoder, params=params, seed=seed)
    tables = by_system(query_metrics)
    pairs = _pairs(tables, recipe)
    comparisons: list[dict[str, Any]] = []
    for bucket, ids in ids_by_bucket(query_buckets).items():
        metrics = [
            metric
            for metric in (_HEADLINE if bucket == ALL else _HEADLINE[:1])
            if metric in query_metrics
        ]
        scores = {
            system: table.loc[ids, metrics].to_numpy(np.float64).T
            for system, table in tables.items()
        }
        differences = [scores[system] - scores[baseline] for system, baseline in pairs]
        groups = query_buckets.set_index("query_id").asked_by[ids].to_numpy()
        tests = []
        if metrics:
            stacked = np.concatenate(differences)
            tests = compare_all(stacked, seed=seed, **params.draws, groups=groups)
        for ((system, baseline), metric), test in zip(product(pairs, metrics), tests, strict=True):
            facts = {"bucket": bucket, "queries": len(ids), "metric": metric}
            compared = {"system": system, "baseline": baseline}
            comparisons.append(compared | facts | test._asdict())
    return rows, pd.DataFrame(comparisons), _flat(rows, query_buckets, tables)


def _pairs(systems: Collection[str], recipe: str) -> list[tuple[str, str]]:
    """Return which systems are compared with which baselines."""
    baselines = ["zero_shot", "bm25"]
    companions = [name for name in systems if name not in (*baselines, recipe, HYBRID)]
    pairs = [*product((recipe, *companions), baselines), ("bm25", "zero_shot")]
    if HYBRID in systems:
        pairs += product([HYBRID], [*baselines, recipe, *companions])
    return pairs


def _flat(
    rows: pd.DataFrame, query_buckets: pd.DataFrame, tables: Mapping[str, pd.DataFrame]
) -> dict[str, dict[str, float]]:
    """Return the headline metrics, and other counts of all queries, by bucket and system."""
    from anmi.evaluation.metrics import summarise

    headline = rows[rows.metric.isin(_HEADLINE)]
    names = headline.recipe + "." + headline.metric
    figures = list(zip(headline.bucket, names, headline.value, strict=True))
    everyone = ids_by_bucket(query_buckets)[ALL]
    for system, table in tables.items():
        for name, value in summarise(table.loc[everyone]).items():
            if "@" not in name:
                figures.append((ALL, f"{system}.{name}", value))
    flat: dict[str, dict[str, float]] = {ALL: {}}
    for bucket, name, value in figures:
        of_bucket = flat.setdefault(bucket, {})
        if np.isfinite(value):
            of_bucket[name] = float(value)
    return flat


def average_systems(
    query_metrics: pd.DataFrame,
    info: Mapping[str, Any],
    query_buckets: pd.DataFrame,
    encoder: str,
    *,
    params: EvaluationParams,
    seed: int,
) -> pd.DataFrame:
    """Return the means of metrics by system, those of the headline also by bucket."""
    metrics = [column for column in query_metrics.columns if "@" in column]
    headline = [metric for metric in _HEADLINE if metric in metrics]
    groups = query_buckets.set_index("query_id").asked_by
    systems = by_system(query_metrics)
    rows: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    for bucket, ids in ids_by_bucket(query_buckets).items():
        names = metrics if bucket == ALL else headline
        # Queries are drawn once for all systems.
        scores = [table.loc[ids, names].to_numpy(np.float64).T for table in systems.values()]
        bounds = intervals(
            np.concatenate(scores), seed=seed, **params.draws, groups=groups[ids].to_numpy()
        )
        figures = zip(product(systems, names), *(bound.tolist() for bound in bounds), strict=True)
        for (system, metric), value, low, high in figures:
            facts = {
                "collection": info["collection"],
                "encoder": encoder,
                "recipe": system,
                "seed_count": 1,
                "bucket": bucket,
                "queries": len(ids),
            }
            bounded = {"metric": metric, "value": value, "low": low, "high": high}
            rows[system].append(facts | bounded)
    return pd.DataFrame(chain.from_iterable(rows.values()))


def by_system(query_metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the metrics of queries, by their ids, of each system."""
    return {
        str(system): table.set_index("query_id").drop(columns="system")
        for system, table in query_metrics.groupby("system", sort=False)
    }


def ids_by_bucket(query_buckets: pd.DataFrame) -> dict[str, pd.Index]:
    """Return the ids of all queries that people asked, and of each bucket that has some."""
    bucket_of = query_buckets.set_index("query_id").bucket
    ids = {ALL: bucket_of.index[bucket_of != PSEUDO]}
    ids |= {name: bucket_of.index[bucket_of == name] for name in BUCKETS}
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
    """Measure which entities both encoders find, and whether they tell facts from false ones.

    The second result is what the trained one takes for near. Both are empty, at once, where the
    collection names no entities or its documents state no facts. Without variants only entities are
    linked.
    """
    if knowledge.entities.empty or knowledge.facts.empty or runs.empty:
        return {}, {}
    from anmi.evaluation.factuality import factuality_pairs, neighbours

    corpus, held_out, qrels = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    held_out = without_pseudo_queries(held_out, pseudo_queries)
    ids = corpus.document_id.tolist()
    truth = qrels[qrels.query_id.isin(held_out.query_id) & qrels.document_id.isin(ids)]
    # Variants of a document that was trained on were perhaps trained on, too.
    is_trained_on = qrels.query_id.isin(queries.query_id[queries.split == "train"])
    unseen = truth[~truth.document_id.isin(qrels.document_id[is_trained_on])]
    texts = dict(zip(ids, document_texts(corpus), strict=True))
    count = params.factuality_queries
    pairs = factuality_pairs(held_out, unseen, texts, variants, seed=seed, most_queries=count)
    graph = knowledge.of(ids)
    about = dict(zip(ids, graph.about.tolist(), strict=True))
    draws = {"seed": seed, **params.draws}
    encoders = {
        "zero_shot": dense.of(place_of(encoder, corpus_encoder)),
        recipe: dense.as_saved(str(trained_model)),
    }
    metrics: dict[str, Any] = {}
    for system, settings in encoders.items():
        metrics[system] = _linked(runs[runs.system == system], truth, about, draws)
        if len(pairs):
            metrics[system] |= _told_apart(pairs, system, settings, store, draws)
    depth = params.neighbours
    near = neighbours(runs[runs.system == recipe], truth, graph, ids, depth=depth)
    return metrics, {
        "depth": depth,
        "queries": int(near.query_id.nunique()),
        "shares": {name: float(near[name].mean()) for name in ("right", "entails", "same_uri")},
    }


def _linked(
    run: pd.DataFrame, truth: pd.DataFrame, about: Mapping[str, int], draws: Mapping[str, Any]
) -> dict[str, Any]:
    """Return whether a run finds the entity that each query is about, with intervals."""
    from anmi.evaluation.factuality import linking

    table = linking(run, truth, about)
    left_out = truth.query_id.nunique() - len(table)
    linked: dict[str, Any] = {"linking_queries": len(table), "linking_left_out": left_out}
    # One query cannot be resampled.
    for metric in table.columns if len(table) > 1 else ():
        bounds = interval(table[metric].to_numpy(), **draws)
        names = (f"linking_{metric}", f"linking_{metric}_low", f"linking_{metric}_high")
        linked |= zip(names, bounds, strict=True)
    return linked


def _told_apart(
    pairs: pd.DataFrame,
    system: str,
    settings: EncoderSettings,
    store: Store,
    draws: Mapping[str, Any],
) -> dict[str, Any]:
    """Return how often facts are nearer than false ones, over all pairs and by kind."""
    from anmi.evaluation import factuality

    # As with runs, the vectors of a model that is seen once are not kept.
    vectors = store if system == "zero_shot" else None
    opened = Encoder(settings, store.path / "models", vectors)
    encode = partial(opened.encode, description=f"encoding variants for {system}")
    similarities = factuality.pair_similarities(pairs, encode)
    table = factuality.factuality(pairs, *similarities, **draws)
    rows = {str(kind): row for kind, row in table.to_dict("index").items()}
    overall = rows.pop(factuality.ALL, {})
    return {f"factuality_{name}": value for name, value in overall.items()} | {"factuality": rows}
