"""Two finished runs side by side: parameters, metrics with their significance, training rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.datasets.files import plain
from anmi.errors import AnmiError
from anmi.evaluation.generalisation import ALL, BUCKETS
from anmi.evaluation.significance import compare_all
from anmi.report.inputs import HEADLINE_METRICS
from anmi.runs.manifests import versions_of
from anmi.runs.record import flatten, of_this_run

# What the trained system is called, since the two runs may name it by different recipes.
TRAINED: Final = "trained"
READ: Final = ("query_metrics", "query_buckets", "queries", "pseudo_queries", "qrels", "training_rows")


def side_by_side(context: Any, manifests: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Compare two runs.

    Parameters
    ----------
    context
        Of the project.
    manifests
        Of the two; differences are of the second minus the first.
    seed
        Of the resampling.

    Returns
    -------
    dict
        For JSON: ``runs``; ``same_collection``, whether they read the same bytes; ``parameters`` that differ, by name;
        ``queries``, how many of both could be paired; ``metrics``, a row per system, bucket and metric;
        ``training_rows``.

    Raises
    ------
    AnmiError
        One has not finished.
    """
    for manifest in manifests:
        if manifest["status"] != "finished":
            raise AnmiError(
                f"run {manifest['run_id']} is {manifest['status']}: two finished runs are compared; "
                "`kedro anmi runs` lists all"
            )
    one, other = (_tables(context, manifest) for manifest in manifests)
    same = paired_queries(one, other)
    digests = [(manifest.get("collection") or {}).get("digest") for manifest in manifests]
    return {
        "runs": [_named(manifest) for manifest in manifests],
        "same_collection": digests[0] == digests[1],
        "parameters": changed_parameters(*manifests),
        "queries": {"same": len(same), "first": _asked(one), "second": _asked(other)},
        # Of a single query there is no interval.
        "metrics": plain(metric_rows(one, other, same, seed)),
        "training_rows": row_differences(one.get("training_rows"), other.get("training_rows")),
    }


def _named(manifest: Mapping[str, Any]) -> dict[str, Any]:
    given = manifest.get("parameters") or {}
    return {"run_id": manifest["run_id"], **{name: given.get(name) for name in ("collection", "recipe", "encoder")}}


def _tables(context: Any, manifest: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Return the tables of a run that are there, the trained system under one name."""
    known = versions_of(manifest)
    versions: dict[str, str] = {name: known[name] for name in READ if name in known}
    catalog = context._get_catalog(load_versions=versions)
    found = {name: catalog.load(name) for name in versions if catalog.exists(name)}
    if "query_metrics" in found:
        recipe = (manifest.get("parameters") or {}).get("recipe")
        scores = found["query_metrics"]
        found["query_metrics"] = scores.assign(system=scores["system"].replace({recipe: TRAINED}))
    return found


def changed_parameters(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the parameters that differ, by name, with both values; None where a run has none of the name.

    Examples
    --------
    >>> first, second = ({"parameters": {"seed": seed, "bm25": {"k1": 0.9}}} for seed in (1, 2))
    >>> changed_parameters(first, second)
    {'seed': [1, 2]}
    """
    first, second = (flatten(of_this_run(manifest.get("parameters") or {})) for manifest in (one, other))
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return {name: [first.get(name), second.get(name)] for name in names}


def _asked(tables: Mapping[str, pd.DataFrame]) -> int:
    return int(tables["query_metrics"]["query_id"].nunique()) if "query_metrics" in tables else 0


def paired_queries(one: Mapping[str, pd.DataFrame], other: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the queries that both runs were measured on: the same id, text and labels; sorted."""
    if not all("query_metrics" in side for side in (one, other)):
        return []
    signs = [_signs(side) for side in (one, other)]
    return sorted(query for query in signs[0].keys() & signs[1].keys() if signs[0][query] == signs[1][query])


def _signs(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return by its id what makes a query what it is."""
    texts: dict[str, str] = {}
    labels: dict[str, set[tuple[str, int]]] = {query: set() for query in tables["query_metrics"]["query_id"]}
    # Pseudo-queries are asked where nobody labelled a query; what one was made of is its label.
    for name in ("pseudo_queries", "queries"):
        if name in tables:
            texts |= dict(zip(tables[name]["query_id"], tables[name]["text"], strict=True))
    for name in ("pseudo_queries", "qrels"):
        if name in tables:
            table = tables[name] if "relevance" in tables[name] else tables[name].assign(relevance=1)
            table = table[table["query_id"].isin(labels.keys())]
            for query, *label in table[["query_id", "document_id", "relevance"]].itertuples(index=False):
                labels[query].add(tuple(label))
    return {query: (texts.get(query), labels[query]) for query in labels}


def metric_rows(
    one: Mapping[str, pd.DataFrame], other: Mapping[str, pd.DataFrame], same: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """Return both means of each metric by system and bucket, and the paired difference where queries are the same.

    A query counts in a bucket where it is in that bucket in both runs. Without a query that both have, each mean is
    over the run's own queries, and there is no difference.
    """
    if not all("query_metrics" in side for side in (one, other)):
        return []
    names = [dict.fromkeys(side["query_metrics"]["system"]) for side in (one, other)]
    rows = []
    for bucket, ids in _buckets(one, other, same).items():
        for system in (name for name in names[1] if name in names[0]):
            first, second = (_values(side["query_metrics"], system, ids) for side in (one, other))
            tests = [test.as_dict() for test in compare_all((second - first).T, seed=seed)] if ids else []
            rows += [
                {"system": system, "bucket": bucket, "queries": len(ids), "metric": metric}
                | {
                    "first": float(first[:, k].mean()),
                    "second": float(second[:, k].mean()),
                    **(tests[k] if ids else {}),
                }
                for k, metric in enumerate(HEADLINE_METRICS)
            ]
    return rows


def _values(scores: pd.DataFrame, system: str, ids: Sequence[str]) -> Any:
    """Return the headline metrics of these queries, of all where none is named, [queries, metrics]."""
    table = scores[scores["system"] == system].set_index("query_id")[list(HEADLINE_METRICS)]
    return (table.loc[list(ids)] if ids else table).to_numpy(np.float64)


def _buckets(
    one: Mapping[str, pd.DataFrame], other: Mapping[str, pd.DataFrame], same: Sequence[str]
) -> dict[str, list[str]]:
    found = {ALL: list(same)}
    if not all("query_buckets" in side for side in (one, other)):
        return found
    first, second = (side["query_buckets"].set_index("query_id")["bucket"] for side in (one, other))
    for name in BUCKETS:
        ids = [query for query in same if first.get(query) == name == second.get(query)]
        if ids:
            found[name] = ids
    return found


def row_differences(one: pd.DataFrame | None, other: pd.DataFrame | None) -> dict[str, int]:
    """Count how training rows differ; a row is told by its query and positive. Empty where a run has none.

    Examples
    --------
    >>> rows = pd.DataFrame({"query_id": ["a", "b"], "positive_id": ["x", "y"], "negative_ids": [["n"], ["m"]]})
    >>> row_differences(rows, rows.tail(1).assign(negative_ids=[["k"]]))
    {'first': 2, 'second': 1, 'only_first': 1, 'only_second': 0, 'other_negatives': 1, 'same': 0}
    """
    if one is None or other is None:
        return {}
    columns = ["query_id", "positive_id", "negative_ids"]
    first, second = (
        {(query, positive): tuple(negatives) for query, positive, negatives in rows[columns].itertuples(index=False)}
        for rows in (one, other)
    )
    both = first.keys() & second.keys()
    same = sum(first[row] == second[row] for row in both)
    only = {"only_first": len(first.keys() - both), "only_second": len(second.keys() - both)}
    return {"first": len(one), "second": len(other), **only, "other_negatives": len(both) - same, "same": same}
