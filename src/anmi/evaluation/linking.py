"""Which entity a ranking of documents names, and what stands near a query beside the right document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi import seeds
from anmi.corpus.knowledge import KnowledgeGraph
from anmi.evaluation.retrieval import side_by_side

# URIs of a ranking that count for its reciprocal rank.
_DEPTH: Final = 10
_LONGEST: Final = 160
_NO_TYPE: Final = "no type"


def uri_ranking(run: pd.DataFrame, about: Mapping[str, int]) -> pd.DataFrame:
    """Turn a ranking of documents into one of entities, each where a document about it first stands.

    Entities are numbered by document id; documents that are missing or -1 are about none and passed over. Returns
    ``query_id, entity, rank``, the rank among entities, from 1.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["a", "b", "c", "d"], "rank": [1, 2, 3, 4]})
    >>> uri_ranking(run, {"a": 7, "b": -1, "c": 7, "d": 2})[["entity", "rank"]].values.tolist()
    [[7, 1], [2, 2]]
    """
    table = run[["query_id", "rank"]].assign(entity=run.document_id.map(about).fillna(-1).astype(np.int64))
    table = table[table.entity >= 0].sort_values(["query_id", "rank"], kind="stable")
    table = table.drop_duplicates(["query_id", "entity"])
    return table.assign(rank=table.groupby("query_id").cumcount() + 1)[["query_id", "entity", "rank"]].reset_index(
        drop=True
    )


def linking(run: pd.DataFrame, qrels: pd.DataFrame, about: Mapping[str, int]) -> pd.DataFrame:
    """Score how well a ranking names the entity that a query is about, query by query.

    The truth is the entity of a query's own document, or one of them where it has several; queries whose documents are
    about none are left out. Returns by query ``accuracy``, 1 where the first entity is right, else 0; and ``mrr_10``,
    one over the rank of the first right one, 0 beyond 10.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["a", "b"], "rank": [1, 2]})
    >>> qrels = pd.DataFrame({"query_id": ["q", "r"], "document_id": ["b", "c"]})
    >>> linking(run, qrels, {"a": 0, "b": 1}).to_dict("index")
    {'q': {'accuracy': 0.0, 'mrr_10': 0.5}}
    """
    truth = qrels[["query_id"]].assign(entity=qrels.document_id.map(about).fillna(-1).astype(np.int64))
    truth = truth[truth.entity >= 0].drop_duplicates()
    found = uri_ranking(run, about).merge(truth, on=["query_id", "entity"])
    index = pd.Index(truth.query_id.unique(), name="query_id")
    rank = found.groupby("query_id")["rank"].min().reindex(index)
    return pd.DataFrame(
        {"accuracy": (rank == 1).astype(np.float64), "mrr_10": (1 / rank).where(rank <= _DEPTH, 0.0)}, index=index
    )


def neighbours(
    run: pd.DataFrame,
    qrels: pd.DataFrame,
    graph: KnowledgeGraph,
    document_ids: Sequence[str],
    *,
    depth: int = 5,
) -> pd.DataFrame:
    """Return the nearest documents of every query, and how each is related to the query's own.

    Returns ``query_id, document_id, rank, own, entity, right, entails, same_uri``: numbers of the entity of the query's
    first own document and of the document's, -1 for none; whether it is labelled relevant; whether it states all facts
    of an own document; whether it is about an entity that an own document is about.
    """
    number = pd.Index(document_ids)
    near = run[(run["rank"] <= depth) & run.query_id.isin(qrels.query_id)]
    near = near[["query_id", "document_id", "rank"]].sort_values(["query_id", "rank"], kind="stable")
    listed = qrels[qrels.query_id.isin(near.query_id)]
    query = pd.Index(near.query_id.unique())
    row, document = query.get_indexer(pd.Index(near.query_id)), number.get_indexer(pd.Index(near.document_id))
    labelled, positive = query.get_indexer(pd.Index(listed.query_id)), number.get_indexer(pd.Index(listed.document_id))
    relevant = _pairs(labelled, positive, (len(query), len(number)))
    entity = graph.about[positive].astype(np.int64)
    subjects = _pairs(labelled[entity >= 0], entity[entity >= 0], (len(query), max(len(graph.uris), 1)))
    # Written backwards, so that the first of a query stays.
    first = np.full(len(query), -1)
    first[labelled[::-1]] = entity[::-1]
    about = graph.about[document].astype(np.int64)
    return near.assign(
        own=first[row],
        entity=about,
        right=_holds(relevant, row, document),
        entails=_holds(graph.entailing(side_by_side(labelled, positive, len(query))), row, document),
        same_uri=_holds(subjects, row, about) & (about >= 0),
    ).reset_index(drop=True)


def confusions(near: pd.DataFrame, types: Sequence[str], most: int = 15) -> list[dict[str, Any]]:
    """Count which types of entity stand near queries about which others, the most frequent first.

    Of rows of :func:`neighbours` those that are right, entail or are about the same entity are no confusion. Returns
    ``own, retrieved, count, share``, the share of all confusions.

    Examples
    --------
    >>> near = pd.DataFrame({"own": [0, 0, 0], "entity": [1, 1, 0], "right": [False, False, True],
    ...     "entails": [False, False, True], "same_uri": [False, False, True]})
    >>> confusions(near, ["Airport", "City"])
    [{'own': 'Airport', 'retrieved': 'City', 'count': 2, 'share': 1.0}]
    """
    wrong = near[~(near.right | near.entails | near.same_uri)]
    names = np.array([*types, _NO_TYPE], object)
    # -1, no entity, takes the last.
    table = pd.DataFrame({"own": names[wrong.own.to_numpy()], "retrieved": names[wrong.entity.to_numpy()]})
    counts = table.value_counts(sort=False).reset_index(name="count")
    counts = counts.sort_values(["count", "own", "retrieved"], ascending=[False, True, True]).head(most)
    return [
        {"own": own, "retrieved": retrieved, "count": int(count), "share": count / len(wrong)}
        for own, retrieved, count in counts.itertuples(index=False)
    ]


def first_types(entities: pd.DataFrame) -> list[str]:
    """Return the type that the source names first for each entity, without the path of its URI.

    Examples
    --------
    >>> first_types(pd.DataFrame({"types": ['["http://dbpedia.org/ontology/City", "Place"]', "[]"]}))
    ['City', 'no type']
    """
    lists = [json.loads(text) for text in entities.types]
    return [str(names[0]).rstrip("/").rsplit("/", 1)[-1].rsplit("#", 1)[-1] if names else _NO_TYPE for names in lists]


def neighbour_examples(
    near: pd.DataFrame,
    queries: pd.DataFrame,
    texts: Mapping[str, str],
    graph: KnowledgeGraph,
    count: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return the nearest documents of a random sample of queries, for people to look at.

    The same queries are drawn for every model. Returns ``query_id, query, uri, label`` and under ``documents``
    ``document_id, text, uri, label, right, entails, same_uri``, nearest first; texts are shortened, and an entity that
    there is not is None.
    """
    ids = near.query_id.unique()
    draws = seeds.stream(seed, "evaluation/neighbours").random(len(ids))
    chosen = near[near.query_id.isin(ids[np.argsort(draws, kind="stable")[:count]])]
    asked = dict(zip(queries.query_id, queries.text, strict=True))
    found = []
    for query_id, rows in chosen.groupby("query_id", sort=False):
        documents = [
            {
                "document_id": row["document_id"],
                "text": _shortened(texts[row["document_id"]]),
                **_entity(graph, row["entity"]),
                **{name: bool(row[name]) for name in ("right", "entails", "same_uri")},
            }
            for row in rows.to_dict("records")
        ]
        own = _entity(graph, int(rows.own.iloc[0]))
        found.append({"query_id": query_id, "query": asked[str(query_id)], **own, "documents": documents})
    return found


def _entity(graph: KnowledgeGraph, number: int) -> dict[str, str | None]:
    return {
        "uri": graph.uris[number] if number >= 0 else None,
        "label": graph.labels[number] if number >= 0 else None,
    }


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _pairs(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape)


def _holds(pairs: sparse.csr_array, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(rows):
        return np.zeros(0, bool)
    found: NDArray[np.bool_] = np.asarray(sparse.csr_array(pairs)[rows, columns]).ravel() > 0
    return found
