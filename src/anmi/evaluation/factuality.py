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
from anmi.ragged import Bools, Float32s, Float64s
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
    kinds = (*FALSE_KINDS, *TRUE_KINDS)
    unknown = variants[~variants.kind.isin(kinds)]
    if len(unknown):
        raise AnmiError(
            f'a variant of document "{unknown.document_id.iloc[0]}" is of the kind'
            f' "{unknown.kind.iloc[0]}", and factuality knows {", ".join(kinds)}; make the variants'
            " again"
        )
    is_asked = qrels.query_id.isin(queries.query_id)
    labelled = qrels.loc[is_asked, ["query_id", "document_id"]]
    texts = variants[["document_id", "kind", "text"]].rename(columns={"text": "variant"})
    pairs = labelled.drop_duplicates().merge(texts, on="document_id")
    query_ids = pairs.query_id.unique()
    if most_queries is not None and len(query_ids) > most_queries:
        draws = seeds.stream(seed, "evaluation/factuality").random(len(query_ids))
        sample = query_ids[np.argsort(draws, kind="stable")[:most_queries]]
        pairs = pairs[pairs.query_id.isin(sample)]
    query_texts = queries.set_index("query_id").text
    pairs = pairs.assign(
        query=pairs.query_id.map(query_texts), own=pairs.document_id.map(documents)
    )
    return pairs[["query_id", "query", "own", "kind", "variant"]].reset_index(drop=True)


def pair_similarities(pairs: pd.DataFrame, encode: Encode) -> tuple[Float64s, Float64s]:
    """Return how similar each query is to its own document and to the variant, float64 [P].

    Parameters
    ----------
    pairs
        From :func:`factuality_pairs`.
    encode
        From texts and what they are (``query`` or ``document``) to vectors; each text is given
        once.
    """
    query_texts, query = np.unique(pairs["query"].to_numpy(object), return_inverse=True)
    both_texts = np.concatenate([pairs.own, pairs.variant]).astype(object)
    texts, document = np.unique(both_texts, return_inverse=True)
    queries = encode(query_texts.tolist(), "query")
    documents = encode(texts.tolist(), "document")
    query = np.tile(query, 2)
    cosines = np.empty(len(query), np.float64)
    for start in range(0, len(query), _BLOCK):
        rows = slice(start, start + _BLOCK)
        query_vectors = queries[query[rows]]
        document_vectors = documents[document[rows]]
        cosines[rows] = row_products(query_vectors, document_vectors)
    return cosines[: len(pairs)], cosines[len(pairs) :]


def factuality(
    pairs: pd.DataFrame,
    own_similarity: Float64s,
    variant_similarity: Float64s,
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
    own_similarity, variant_similarity
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
    >>> pairs = pd.DataFrame({"query_id": list("aab"), "own": list("AAB"), "kind": "number"})
    >>> table = factuality(pairs, np.array([0.9, 0.9, 0.8]), np.array([0.7, 0.85, 0.8]), seed=1)
    >>> table.loc["number", ["auc", "paired"]].tolist()  # 4½ of 2 · 3, and (1 + ½) / 2
    [0.75, 0.75]
    """
    kinds = pairs.kind.to_numpy()
    options = {"seed": seed, "resamples": resamples, "confidence": confidence}
    rows = {}
    for kind in (ALL, *FALSE_KINDS, *TRUE_KINDS):
        mask = ~np.isin(kinds, TRUE_KINDS) if kind == ALL else kinds == kind
        if mask.any():
            similarities = (own_similarity[mask], variant_similarity[mask])
            rows[kind] = _row(pairs[mask], *similarities, options)
    columns = []
    for score in ("auc", "paired"):
        columns += [score, f"{score}_low", f"{score}_high"]
    columns += ["queries", "variants"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.astype({"queries": int, "variants": int})


def _row(
    pairs: pd.DataFrame,
    own_similarity: Float64s,
    variant_similarity: Float64s,
    options: Mapping[str, Any],
) -> list[float]:
    query = pd.factorize(pairs.query_id)[0]
    # Every own document stands beside each of its variants, and counts once.
    is_first = ~pairs.duplicated(["query_id", "own"]).to_numpy()
    scores = np.concatenate([own_similarity[is_first], variant_similarity])
    clusters = np.concatenate([query[is_first], query])
    is_own = np.arange(len(scores)) < is_first.sum()
    area = clustered_auc(scores, is_own, clusters, confidence=options["confidence"])
    wins = (np.sign(own_similarity - variant_similarity) + 1) / 2
    shares = np.bincount(query, wins) / np.bincount(query)
    # With one query there is nothing to resample.
    paired = (float(shares[0]), 0.0, 1.0)
    if len(shares) > 1:
        paired = interval(shares, **options)
    return [*area, *paired, len(shares), len(pairs)]


# URIs of a ranking that count for its reciprocal rank.
_DEPTH: Final = 10


def uri_ranking(run: pd.DataFrame, about: Mapping[str, int]) -> pd.DataFrame:
    """Rank entities instead of documents, each where a document about it first stands.

    Entities are numbered by document id; documents that are missing or -1 are about none and passed
    over. Returns ``query_id, entity, rank``, the rank among entities, from 1.

    Examples
    --------
    >>> run = pd.DataFrame({"query_id": "q", "document_id": list("abcd"), "rank": [1, 2, 3, 4]})
    >>> uri_ranking(run, {"a": 7, "b": -1, "c": 7, "d": 2})[["entity", "rank"]].values.tolist()
    [[7, 1], [2, 2]]
    """
    table = _with_entity(run, about).sort_values(["query_id", "rank"], kind="stable")
    table = table.drop_duplicates(["query_id", "entity"], ignore_index=True)
    table["rank"] = table.groupby("query_id").cumcount() + 1
    return table[["query_id", "entity", "rank"]]


def _with_entity(pairs: pd.DataFrame, about: Mapping[str, int]) -> pd.DataFrame:
    """Return the pairs whose document is about an entity, with its number."""
    entity = pairs.document_id.map(about).fillna(-1).astype(np.int64)
    return pairs.assign(entity=entity)[entity >= 0]


def linking(
    run: pd.DataFrame,
    qrels: pd.DataFrame,
    about: Mapping[str, int],
) -> pd.DataFrame:
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
    truth = _with_entity(qrels, about)[["query_id", "entity"]].drop_duplicates()
    hits = uri_ranking(run, about).merge(truth, on=["query_id", "entity"])
    query_ids = pd.Index(truth.query_id.unique(), name="query_id")
    rank = hits.groupby("query_id")["rank"].min().reindex(query_ids)
    reciprocal = (1 / rank).where(rank <= _DEPTH, 0.0)
    return pd.DataFrame({"accuracy": (rank == 1).astype(np.float64), "mrr_10": reciprocal})


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
    numbers = pd.Index(document_ids)
    is_labelled = run.query_id.isin(qrels.query_id)
    near = run.loc[(run["rank"] <= depth) & is_labelled]
    near = near[["query_id", "document_id", "rank"]]
    near = near.sort_values(["query_id", "rank"], kind="stable", ignore_index=True)
    queries = pd.Index(near.query_id.unique())
    labels = qrels.loc[qrels.query_id.isin(queries), ["query_id", "document_id"]]
    positive = numbers.get_indexer(pd.Index(labels.document_id))
    document = numbers.get_indexer(pd.Index(near.document_id))
    labels = labels.assign(entity=graph.about[positive].astype(np.int64))
    own_entity = labels.drop_duplicates("query_id").set_index("query_id").entity
    near["own"] = near.query_id.map(own_entity).astype(np.int64)
    near["entity"] = graph.about[document].astype(np.int64)
    near["right"] = _are_among(near, labels, ["query_id", "document_id"])
    near["entails"] = False
    if len(near):
        positives = side_by_side(
            queries.get_indexer(pd.Index(labels.query_id)), positive, len(queries)
        )
        entailing = sparse.csr_array(graph.entailing(positives))
        row = queries.get_indexer(pd.Index(near.query_id))
        near["entails"] = np.asarray(entailing[row, document]).ravel() > 0
    near["same_uri"] = _are_among(near, labels[labels.entity >= 0], ["query_id", "entity"])
    return near


def _are_among(
    table: pd.DataFrame,
    pairs: pd.DataFrame,
    columns: list[str],
) -> Bools:
    """Return which rows of a table have a pair of values of another table."""
    table_pairs = pd.MultiIndex.from_frame(table[columns])
    return table_pairs.isin(pd.MultiIndex.from_frame(pairs[columns]))
