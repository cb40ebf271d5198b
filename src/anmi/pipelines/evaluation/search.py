"""Nodes that make the search and let every system rank the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.adaptation.pseudo_tests import least_queries, unlabelled_splits, with_pseudo_tests
from anmi.corpus.texts import document_texts
from anmi.pipelines.params import DenseParams, EvaluationParams
from anmi.ragged import Int64s
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import load_encoder, place_of
from anmi.retrieval.fusion import Ranked
from anmi.retrieval.index import build_index, spread_of_scores
from anmi.retrieval.terms import Terms
from anmi.search import HybridSearch
from anmi.search.hybrid import Encoded, companion_of
from anmi.store import Store

Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def queries_of_split(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame | None,
    split: str,
) -> Tables:
    """Return corpus, queries of a split that have a label, and all labels.

    Where too few have one, queries made of the documents new for the split are among them, and the
    corpus is without what these were made of.
    """
    if pseudo_queries is not None and split in unlabelled_splits(queries, qrels):
        corpus, queries, qrels = with_pseudo_tests(corpus, queries, qrels, pseudo_queries, [split])
    return corpus, queries[(queries.split == split) & queries.query_id.isin(qrels.query_id)], qrels


HYBRID: Final = "hybrid"


def build_search(
    *,
    trained_model: Path,
    bm25_index: BM25Index,
    terms: Terms,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    dev_run: pd.DataFrame,
    training_summary: Mapping[str, Any],
    info: Mapping[str, Any],
    recipe: str,
    params: EvaluationParams,
    dense: DenseParams,
    seed: int,
    store: Store,
) -> HybridSearch:
    """Put BM25 and the trained retrievers together, with the weights that dev queries choose.

    Dev queries are those that retrievers were not trained on when they were asked, see the artifact
    ``dev_run``.
    """
    from anmi.evaluation.retrieval import vectors
    from anmi.search.fit import fit_on_dev

    how: dict[str, Any] = {"precision": dense.precision, "batch_size": dense.batch_size}
    kind = training_summary.get("dev_queries", "labels")
    dev = with_pseudo_tests(
        corpus, queries, qrels, pseudo_queries, ["dev"] if kind == "pseudo_queries" else []
    )
    asked = dev[1].text[dev[1].query_id.isin(dev_run.query_id)].tolist()
    texts = document_texts(corpus)
    parts = []
    for folder in (trained_model, *companion_of(trained_model)):
        model = load_encoder(str(folder), store.path / "models", dense.max_length)
        found = vectors(model, texts, "document", description=f"encoding for {recipe}", **how)
        parts.append(
            Encoded(folder, found, spread_of_scores(vectors(model, asked, "query", **how), found))
        )
    search = HybridSearch.build(
        bm25_index,
        corpus,
        parts,
        encoder={"max_length": dense.max_length, **how},
        method=params.hybrid.method,
        depth=params.hybrid.depth,
        index=dense.index,
        about={
            "collection": info["collection"],
            "language": info["language"],
            "recipe": recipe,
            "unchanged": training_summary.get("unchanged"),
            "fit": None,
        },
    )
    if params.hybrid.weight is not None:
        each = params.hybrid.weight / len(parts)
        search.settings["weights"] = {"bm25": 1 - params.hybrid.weight} | dict.fromkeys(
            search.retrievers, each
        )
    elif params.hybrid.method == "convex":
        trained = set(queries.query_id[queries.split == "train"])
        fitted = fit_on_dev(
            dev_run if "retriever" in dev_run else dev_run.assign(retriever=search.main.kind),
            bm25_index if dev[0] is corpus else reindexed(bm25_index, terms, corpus, dev[0]),
            *dev,
            positives=set(qrels.document_id[qrels.query_id.isin(trained) & (qrels.relevance > 0)]),
            spreads=search.settings["spreads"],
            depth=params.hybrid.depth,
            seed=seed,
            least=least_queries(kind),
        )
        search.settings |= {"weights": fitted["weights"], "fit": fitted | {"of": kind}}
    return search


def run_systems(
    *,
    search_index: HybridSearch,
    terms: Terms,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    given_runs: pd.DataFrame,
    corpus_encoder: Path,
    encoder: str,
    recipe: str,
    params: EvaluationParams,
    dense: DenseParams,
    store: Store,
) -> pd.DataFrame:
    """Rank the whole corpus for every held-out query by BM25, the untrained encoder, what was trained, and the hybrid.

    The first of the trained retrievers is called as the recipe, a companion by its kind, and a
    given run by its file. A query that is a document is not among what it finds. Where no query of
    the split has a label, pseudo-queries stand in for them; where nothing is asked, no rows are
    returned.
    """
    from anmi.evaluation.retrieval import Ranking, ranked, run_table

    searched, asked, labels = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    if asked.empty:
        return pd.DataFrame(
            {"query_id": "", "document_id": "", "score": 0.0, "rank": 0, "system": ""}, index=[]
        )
    search = (
        search_index
        if searched is corpus
        else changed(search_index, terms, corpus, searched, dense, store)
    )
    depth = max(params.cutoffs) if params.ranked == "cutoffs" else len(corpus)
    ranking = Ranking.of(asked, labels, searched, depth)
    exact_search = with_exact_indexes(search, searched)
    lists = exact_search.lists(
        asked.text.tolist(), max(depth, search.settings["depth"]), excluded=ranking.own
    )
    fused = exact_search.fused(lists, depth)
    names: dict[str, str] = {search.main.kind: recipe}
    systems = {names.get(part, part): ranked for part, ranked in lists.documents.items()}
    systems[HYBRID] = Ranked(fused.documents, fused.scores)
    runs = {
        system: run_table(ranking.query_ids, ranking.document_ids, *ranked.top(depth))
        for system, ranked in systems.items()
    }
    model = load_encoder(
        place_of(encoder, corpus_encoder), store.path / "models", dense.max_length, dense.prompts
    )
    # A trained model is seen once; keeping its vectors would only fill the store.
    runs["zero_shot"] = ranked(
        model,
        asked,
        labels,
        searched,
        depth,
        store=store,
        precision=dense.precision,
        batch_size=dense.batch_size,
        description="zero_shot",
    )
    for system, rows in given_runs[given_runs.query_id.isin(ranking.query_ids)].groupby(
        "system", sort=False
    ):
        runs[str(system)] = ranking.given(rows, searched).groupby("query_id").head(depth)
    order = dict.fromkeys(("bm25", "zero_shot", *systems, *runs))
    return pd.concat([runs[system].assign(system=system) for system in order], ignore_index=True)


def with_exact_indexes(search: HybridSearch, corpus: pd.DataFrame) -> HybridSearch:
    """Return the search with exact indexes, whatever it is deployed with.

    An approximate index would count against the trained retrievers alone.
    """
    retrievers = [
        replace(retriever, index=build_index(retriever.index.vectors(), search.document_ids))
        if retriever.index.settings["kind"] == "hnsw"
        else retriever
        for retriever in search.retrievers.values()
    ]
    return HybridSearch(search.bm25, retrievers, corpus, search.settings)


def changed(
    search: HybridSearch,
    terms: Terms,
    before: pd.DataFrame,
    after: pd.DataFrame,
    dense: DenseParams,
    store: Store,
) -> HybridSearch:
    """Return the search over documents of which some have another text; only these are encoded."""
    from anmi.evaluation.retrieval import vectors

    other = _other(before, after)
    retrievers = []
    if not len(other):
        return search
    for retriever in search.retrievers.values():
        # Rows of a sparse matrix cannot be replaced in place, and encode fast.
        texts = document_texts(after if retriever.kind == "sparse" else after.iloc[other])
        # The trained model has in its folder what it was trained with.
        model = load_encoder(str(retriever.model), store.path / "models", dense.max_length)
        how: dict[str, Any] = {"precision": dense.precision, "batch_size": dense.batch_size}
        made = vectors(model, texts, "document", description="encoding what changed", **how)
        found = made if retriever.kind == "sparse" else np.array(retriever.index.vectors())
        if retriever.kind == "dense":
            found[other] = made
        retrievers.append(replace(retriever, index=build_index(found, search.document_ids)))
    return HybridSearch(
        reindexed(search.bm25, terms, before, after), retrievers, after, search.settings
    )


def reindexed(
    index: BM25Index, terms: Terms, before: pd.DataFrame, after: pd.DataFrame
) -> BM25Index:
    """Return an index with the same settings of documents of which some have another text; only these are cut."""
    how = index.settings
    rows = _other(before, after)
    own = terms.changed(rows, document_texts(after.iloc[rows]))
    return BM25Index.of_terms(own, how["engine"], how["k1"], how["b"], how["epsilon"])


def _other(before: pd.DataFrame, after: pd.DataFrame) -> Int64s:
    """Return which documents have another text."""
    return np.flatnonzero((before.title != after.title) | (before.text != after.text))
