"""Whether a model holds a document to be nearer to its query than a false variant of the document.

Retrieval metrics hardly see this: a variant that names the wrong city is in no corpus. So the
held-out queries are compared with their own documents and with variants of these, one kind of
falsehood at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from scipy import sparse

from anmi import seeds
from anmi.corpus.knowledge import KnowledgeGraph
from anmi.errors import AnmiError
from anmi.evaluation.audit import clustered_auc
from anmi.evaluation.retrieval import side_by_side
from anmi.evaluation.significance import interval
from anmi.ragged import Bools, Float32s, Float64s, Int64s
from anmi.retrieval.index import row_products

FALSE_KINDS: Final = ("swap", "entity", "number", "date", "negation", "antonym", "generated")
# True statements: to prefer the own document to them is retrieval, not a matter of facts.
TRUE_KINDS: Final = ("counterpart", "neighbour")
ALL: Final = "all"
# Pairs whose vectors stand in memory at once.
_BLOCK: Final = 1 << 15

Encode = Callable[[list[str], Literal["query", "document"]], Float32s]


def factuality_pairs(
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    documents: Mapping[str, str],
    variants: pd.DataFrame,
    *,
    seed: int,
    most_queries: int | None = None,
) -> pd.DataFrame:
    """Return what a model is to tell apart.

    ``qrels`` are the own documents of held-out queries. Returns ``query_id, query, own, kind,
    variant`` (texts), a row per query, own document and variant; more queries than ``most_queries``
    are reduced to a random sample.

    Raises
    ------
    AnmiError
        A variant is of a kind that nobody knows.
    """
    strange = variants[~variants.kind.isin([*FALSE_KINDS, *TRUE_KINDS])]
    if len(strange):
        row = strange.iloc[0]
        raise AnmiError(
            f'a variant of document "{row.document_id}" is of the kind "{row.kind}", and factuality'
            " knows "
            f"{', '.join((*FALSE_KINDS, *TRUE_KINDS))}; make the variants again"
        )
    labelled = qrels.loc[
        qrels.query_id.isin(queries.query_id), ["query_id", "document_id"]
    ].drop_duplicates()
    made = variants[["document_id", "kind", "text"]].rename(columns={"text": "variant"})
    pairs = labelled.merge(made, on="document_id")
    known = pairs.query_id.unique()
    if most_queries is not None and len(known) > most_queries:
        drawn = np.argsort(
            seeds.stream(seed, "evaluation/factuality").random(len(known)), kind="stable"
        )
        pairs = pairs[pairs.query_id.isin(known[drawn[:most_queries]])]
    asked = pd.Series(queries.text.to_numpy(), index=queries.query_id.to_numpy())
    pairs = pairs.assign(query=pairs.query_id.map(asked), own=pairs.document_id.map(documents))
    return pairs[["query_id", "query", "own", "kind", "variant"]].reset_index(drop=True)


def pair_similarities(pairs: pd.DataFrame, encode: Encode) -> tuple[Float64s, Float64s]:
    """Return the similarities of each pair's query with its own document and with the variant, float64 [P].

    Parameters
    ----------
    pairs
        From :func:`factuality_pairs`.
    encode
        From texts and what they are (``query`` or ``document``) to vectors; each text is given
        once.
    """
    asked, query = np.unique(pairs["query"].to_numpy(object), return_inverse=True)
    texts, place = np.unique(
        np.concatenate([pairs.own, pairs.variant]).astype(object), return_inverse=True
    )
    queries = encode(asked.tolist(), "query")
    documents = encode(texts.tolist(), "document")
    found = []
    for document in np.split(place, 2):
        cosine = np.empty(len(pairs), np.float64)
        for start in range(0, len(pairs), _BLOCK):
            rows = slice(start, start + _BLOCK)
            cosine[rows] = row_products(queries[query[rows]], documents[document[rows]])
        found.append(cosine)
    return found[0], found[1]


def factuality(
    pairs: pd.DataFrame,
    own: Float64s,
    other: Float64s,
    *,
    seed: int,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return how well a model tells documents from false variants, over all kinds and kind by kind.

    Parameters
    ----------
    pairs
        From :func:`factuality_pairs`.
    own, other
        From :func:`pair_similarities`.
    seed, resamples, confidence
        Of the intervals, see :func:`anmi.evaluation.significance.interval`.

    Returns
    -------
    pandas.DataFrame
        Indexed by kind: ``all`` (the false ones together), those that occur, and the true ones,
        which are in no other row. ``auc`` is the area under the ROC curve over all pairs of a query
        with a text, each own document once, so it also asks whether similarities of different
        queries are on one scale; its interval takes queries for clusters
        (:func:`anmi.evaluation.audit.clustered_auc`). ``paired`` is the share of a query's variants
        that are less similar than the own document, ties counting half, averaged over the queries;
        its interval is a bootstrap over queries. Both are in [0, 1], and a model that knows nothing
        reaches a half. ``queries`` and ``variants`` count those of the row; only queries with a
        variant of the kind are in it.

    Examples
    --------
    >>> pairs = pd.DataFrame({"query_id": ["a", "a", "b"], "own": ["A", "A", "B"], "kind": "number"})
    >>> found = factuality(pairs, np.array([0.9, 0.9, 0.8]), np.array([0.7, 0.85, 0.8]), seed=1)
    >>> found.loc["number", ["auc", "paired"]].tolist()  # 4½ of 2 · 3, and (1 + ½) / 2
    [0.75, 0.75]
    """
    kinds = pairs.kind.to_numpy()
    chosen = {ALL: ~np.isin(kinds, TRUE_KINDS)} | {
        kind: kinds == kind for kind in (*FALSE_KINDS, *TRUE_KINDS)
    }
    options = {"seed": seed, "resamples": resamples, "confidence": confidence}
    rows = {
        kind: _row(pairs[mask], own[mask], other[mask], **options)
        for kind, mask in chosen.items()
        if mask.any()
    }
    columns = [
        "auc",
        "auc_low",
        "auc_high",
        "paired",
        "paired_low",
        "paired_high",
        "queries",
        "variants",
    ]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).astype(
        {"queries": int, "variants": int}
    )


def _row(
    pairs: pd.DataFrame,
    own: Float64s,
    other: Float64s,
    *,
    confidence: float,
    **options: Any,
) -> list[float]:
    query = pd.factorize(pairs.query_id)[0]
    # Every own document stands beside each of its variants, and counts once.
    once = ~pairs.duplicated(["query_id", "own"]).to_numpy()
    truth = np.concatenate([np.ones(int(once.sum()), bool), np.zeros(len(pairs), bool)])
    auc = clustered_auc(
        np.concatenate([own[once], other]),
        truth,
        np.concatenate([query[once], query]),
        confidence=confidence,
    )
    won = (own > other) + 0.5 * (own == other)
    share = np.bincount(query, won) / np.bincount(query)
    # With one query there is nothing to resample.
    paired = (
        interval(share, confidence=confidence, **options)
        if len(share) > 1
        else (float(share[0]), 0.0, 1.0)
    )
    return [*auc, *paired, len(share), len(pairs)]


# URIs of a ranking that count for its reciprocal rank.
_DEPTH: Final = 10


def uri_ranking(run: pd.DataFrame, about: Mapping[str, int]) -> pd.DataFrame:
    """Turn a ranking of documents into one of entities, each where a document about it first stands.

    Entities are numbered by document id; documents that are missing or -1 are about none and passed
    over. Returns ``query_id, entity, rank``, the rank among entities, from 1.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["a", "b", "c", "d"], "rank": [1, 2, 3, 4]})
    >>> uri_ranking(run, {"a": 7, "b": -1, "c": 7, "d": 2})[["entity", "rank"]].values.tolist()
    [[7, 1], [2, 2]]
    """
    table = run[["query_id", "rank"]].assign(
        entity=run.document_id.map(about).fillna(-1).astype(np.int64)
    )
    table = table[table.entity >= 0].sort_values(["query_id", "rank"], kind="stable")
    table = table.drop_duplicates(["query_id", "entity"], ignore_index=True)
    return table.assign(rank=table.groupby("query_id").cumcount() + 1)[
        ["query_id", "entity", "rank"]
    ]


def linking(run: pd.DataFrame, qrels: pd.DataFrame, about: Mapping[str, int]) -> pd.DataFrame:
    """Score how well a ranking names the entity that a query is about, query by query.

    The truth is the entity of a query's own document, or one of them where it has several; queries
    whose documents are about none are left out. Returns by query ``accuracy``, 1 where the first
    entity is right, else 0; and ``mrr_10``, one over the rank of the first right one, 0 beyond 10.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": ["a", "b"], "rank": [1, 2]})
    >>> qrels = pd.DataFrame({"query_id": ["q", "r"], "document_id": ["b", "c"]})
    >>> linking(run, qrels, {"a": 0, "b": 1}).to_dict("index")
    {'q': {'accuracy': 0.0, 'mrr_10': 0.5}}
    """
    truth = qrels[["query_id"]].assign(
        entity=qrels.document_id.map(about).fillna(-1).astype(np.int64)
    )
    truth = truth[truth.entity >= 0].drop_duplicates()
    found = uri_ranking(run, about).merge(truth, on=["query_id", "entity"])
    index = pd.Index(truth.query_id.unique(), name="query_id")
    rank = found.groupby("query_id")["rank"].min().reindex(index)
    scores = {
        "accuracy": (rank == 1).astype(np.float64),
        "mrr_10": (1 / rank).where(rank <= _DEPTH, 0.0),
    }
    return pd.DataFrame(scores, index=index)


def neighbours(
    run: pd.DataFrame,
    qrels: pd.DataFrame,
    graph: KnowledgeGraph,
    document_ids: Sequence[str],
    *,
    depth: int = 5,
) -> pd.DataFrame:
    """Return the nearest documents of every query, and how each is related to the query's own.

    Returns ``query_id, document_id, rank, own, entity, right, entails, same_uri``: numbers of the
    entity of the query's first own document and of the document's, -1 for none; whether it is
    labelled relevant; whether it states all facts of an own document; whether it is about an entity
    that an own document is about.
    """
    number = pd.Index(document_ids)
    near = run[(run["rank"] <= depth) & run.query_id.isin(qrels.query_id)]
    near = near[["query_id", "document_id", "rank"]].sort_values(
        ["query_id", "rank"], kind="stable"
    )
    listed = qrels[qrels.query_id.isin(near.query_id)]
    query = pd.Index(near.query_id.unique())
    row = query.get_indexer(pd.Index(near.query_id))
    document = number.get_indexer(pd.Index(near.document_id))
    labelled = query.get_indexer(pd.Index(listed.query_id))
    positive = number.get_indexer(pd.Index(listed.document_id))
    relevant = _pairs(labelled, positive, (len(query), len(number)))
    entity = graph.about[positive].astype(np.int64)
    subjects = _pairs(
        labelled[entity >= 0], entity[entity >= 0], (len(query), max(len(graph.uris), 1))
    )
    # Written backwards, so that the first of a query stays.
    first = np.full(len(query), -1)
    first[labelled[::-1]] = entity[::-1]
    about = graph.about[document].astype(np.int64)
    entails = _holds(graph.entailing(side_by_side(labelled, positive, len(query))), row, document)
    told = {
        "own": first[row],
        "entity": about,
        "right": _holds(relevant, row, document),
        "entails": entails,
    }
    return near.assign(**told, same_uri=_holds(subjects, row, about) & (about >= 0)).reset_index(
        drop=True
    )


def _pairs(rows: Int64s, columns: Int64s, shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape)


def _holds(pairs: sparse.csr_array, rows: Int64s, columns: Int64s) -> Bools:
    if not len(rows):
        return np.zeros(0, bool)
    return np.asarray(sparse.csr_array(pairs)[rows, columns]).ravel() > 0
