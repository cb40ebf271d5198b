"""Nodes that make the search of its parts and let every system rank the corpus."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from anmi.adaptation.pseudo_tests import (
    labels_used,
    unlabelled_splits,
    with_pseudo_tests,
    without_pseudo_queries,
)
from anmi.corpus.related import hits_of
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.pipelines.params import DenseParams, EvaluationParams, SearchParams
from anmi.ragged import Int64s
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import OF_CORPUS, Encoder, place_of
from anmi.retrieval.fusion import DEPTH, equal
from anmi.retrieval.index import build_index, spread_of_scores
from anmi.retrieval.kinds import EncoderSettings, device
from anmi.retrieval.model_folder import is_sparse_folder
from anmi.retrieval.spelling import network_for
from anmi.retrieval.terms import Terms
from anmi.search import HybridSearch, Part
from anmi.search.folder import companion_of
from anmi.search.hybrid import HYBRID, shares
from anmi.search.parts import BM25, CORPUS, NETWORK, TRAINED
from anmi.store import Store

log = logging.getLogger(__name__)

ZERO_SHOT: Final = "zero_shot"
# The simplest search that needs no training; every run is compared with it.
BM25_AND_NETWORK: Final = "bm25_and_network"
# What a search takes over from that of all parts.
_TAKEN_OVER: Final = ("zero_shot", "trained", "left_out")
# What is known of a search beside how it fuses.
ABOUT_THE_FIT: Final = (
    "collection",
    "language",
    "recipe",
    "unchanged",
    *_TAKEN_OVER,
    "untrained",
    "fit",
)
# Queries by which the time of a part is measured.
_TIMED: Final = 20


class Split(NamedTuple):
    """The queries of a split that have a label, the corpus that they ask, and all labels."""

    corpus: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame


def queries_of_split(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame | None,
    split: str,
) -> Split:
    """Return corpus, queries of a split that have a label, and all labels.

    Where too few have one, queries made of the documents new for the split are among them, and the
    corpus is without what these were made of.
    """
    if pseudo_queries is not None and split in unlabelled_splits(queries, qrels):
        corpus, queries, qrels = with_pseudo_tests(corpus, queries, qrels, pseudo_queries, [split])
    return Split(corpus, labelled_queries(queries, qrels, split), qrels)


def labelled_queries(queries: pd.DataFrame, qrels: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the queries of a split that have a label."""
    return queries[(queries.split == split) & queries.query_id.isin(qrels.query_id)]


def dev_split(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    training_summary: Mapping[str, Any],
    seed: int,
) -> Split:
    """Return the labelled dev queries, on which the trained retrievers were not trained.

    Where too few are labelled, pseudo-queries are among them.
    """
    _, labelled = labels_used(queries[:0], queries, labelled_share(training_summary), seed)
    lacking = ["dev"] if training_summary.get("dev_queries") == "pseudo_queries" else []
    dev = Split(*with_pseudo_tests(corpus, labelled, qrels, pseudo_queries, lacking))
    return dev._replace(queries=labelled_queries(dev.queries, dev.qrels, "dev"))


def labelled_share(training_summary: Mapping[str, Any]) -> float:
    """Return the share of labels that a training used."""
    return float((training_summary.get("options") or {}).get("labels", 1.0))


def make_parts(
    *,
    trained_model: Path,
    corpus_encoder: Path,
    bm25_index: BM25Index,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    training_summary: Mapping[str, Any],
    encoder: str,
    seed: int,
    search: SearchParams,
    dense: DenseParams,
    store: Store,
) -> HybridSearch:
    """Return all that may be parts, with exact indexes, and the encoder before training.

    ``settings`` say which part the encoder before training is (``zero_shot``), and by name why
    others are ``left_out``.
    """
    texts = document_texts(corpus)
    dev = dev_split(corpus, queries, qrels, pseudo_queries, training_summary, seed)
    untrained_parts, reason = untrained_sources(
        texts, corpus_encoder, encoder, search, dense, store
    )
    # What is trained is called by its kind.
    sources = {
        "sparse" if is_sparse_folder(model) else "dense": dense.as_saved(str(model))
        for model in (trained_model, *companion_of(trained_model))
    }
    trained = [*sources]
    sources |= untrained_parts
    untrained = dense.of(place_of(encoder, corpus_encoder))
    same = (name for name, settings in sources.items() if settings == untrained)
    zero_shot = next(same, ZERO_SHOT)
    sources.setdefault(zero_shot, untrained)
    dev_texts = dev.queries.text.tolist()
    parts = [encoded(name, source, corpus, dev_texts, store) for name, source in sources.items()]
    left_out = {NETWORK: reason} if reason else {}
    about = {"zero_shot": zero_shot, "trained": trained, "left_out": left_out}
    return HybridSearch.build(
        [Part(BM25, bm25_index), *parts], corpus, depth=search.depth, about=about
    )


def untrained_sources(
    texts: Sequence[str],
    corpus_encoder: Path,
    encoder: str,
    search: SearchParams,
    dense: DenseParams,
    store: Store,
    queries: Sequence[str] = (),
) -> tuple[dict[str, EncoderSettings], str]:
    """Return by name the encoders that need no training, and why the network is left out.

    See :func:`network_settings`.
    """
    network, reason = network_settings(texts, search, dense, store, queries)
    sources = {}
    # Its folder is empty where nobody wants it.
    if any(corpus_encoder.iterdir()) and (CORPUS in search.parts or encoder == OF_CORPUS):
        cut = dense.dimensions if encoder == OF_CORPUS else None
        sources[CORPUS] = dense.as_saved(str(corpus_encoder), dimensions=cut)
    if network is not None:
        sources[NETWORK] = network
    return sources, reason


def network_settings(
    texts: Sequence[str],
    search: SearchParams,
    dense: DenseParams,
    store: Store,
    queries: Sequence[str] = (),
) -> tuple[EncoderSettings | None, str]:
    """Return the packaged network, or None and why it is left out.

    It may where passages, and queries if they are given, are encoded in time.
    """
    if NETWORK not in search.parts:
        return None, "search.parts does not name it"
    network = network_for(texts, store.path / "models", search.network)
    if network.name is None:
        log.warning("The network is no part of the search: %s", network.reason)
        return None, network.reason
    settings = dense.as_saved(network.name, attention=None, model_kwargs={}, dimensions=None)
    if device(settings.device) != "cpu":
        return settings, ""
    encoder = Encoder(settings, store.path / "models", store)
    seconds = encoder.seconds(texts, "document") + encoder.seconds(queries, "query")
    log.info("Encoding by the network takes about %.0f seconds", seconds)
    if seconds <= 60 * search.minutes:
        return settings, ""
    reason = (
        f"encoding {len(texts):,} passages would take {seconds / 60:.0f} minutes on this"
        f" processor, more than search.minutes={search.minutes:g}"
    )
    log.warning("The network is no part of the search: %s", reason)
    return None, reason


def encoded(
    name: str, settings: EncoderSettings, corpus: pd.DataFrame, dev_texts: list[str], store: Store
) -> Part:
    """Encode the corpus by a retriever; the store keeps the vectors of untrained ones."""
    models = store.path / "models"
    encoder = Encoder(settings, models, store, only_known=name in TRAINED)
    description = f"encoding documents for the part {name}"
    documents = encoder.encode(document_texts(corpus), "document", description)
    spread = spread_of_scores(encoder.encode(dev_texts, "query"), documents)
    index = build_index(documents, corpus.document_id.tolist())
    # A query of a search is computed, not stored.
    return Part(name, index, Encoder(settings, models), spread)


def rank_by_parts(
    *,
    search_parts: HybridSearch,
    terms: Terms,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    training_summary: Mapping[str, Any],
    params: EvaluationParams,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Rank the corpus by each part for dev queries and for held-out ones."""
    fusion_depth = search_parts.settings["depth"]
    dev = dev_split(corpus, queries, qrels, pseudo_queries, training_summary, seed)
    over_dev = changed(search_parts, terms, corpus, dev.corpus)
    test = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    over_test = changed(search_parts, terms, corpus, test.corpus)
    depth = max(params.depth_of(corpus), fusion_depth)
    return {
        "dev_part_runs": runs_of_parts(over_dev, dev, min(fusion_depth, DEPTH)),
        "part_runs": runs_of_parts(over_test, test, depth),
    }


def runs_of_parts(search: HybridSearch, split: Split, depth: int) -> pd.DataFrame:
    """Return what parts rank for the queries of a split, see :func:`anmi.search.fit.part_table`.

    A query that is a document is not among what it finds.
    """
    from anmi.evaluation.retrieval import Ranking
    from anmi.search.fit import PART_COLUMNS, part_table

    if split.queries.empty:
        return pd.DataFrame(PART_COLUMNS, index=[])
    ranking = Ranking.of(split.queries, split.qrels, split.corpus, depth)
    lists = search.lists(split.queries.text.tolist(), depth, None, ranking.selves)
    return part_table(lists, ranking.query_ids, ranking.document_ids)


def fit_search(
    *,
    search_parts: HybridSearch,
    dev_part_runs: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    training_summary: Mapping[str, Any],
    info: Mapping[str, Any],
    recipe: str,
    search: SearchParams,
    dense: DenseParams,
    seed: int,
) -> HybridSearch:
    """Return the search that is measured: the parts that dev queries give a weight.

    ``settings`` have the ``fit``, and the weights of BM25 and the network alone, ``untrained``.
    """
    dev = dev_split(corpus, queries, qrels, pseudo_queries, training_summary, seed)
    # Pseudo-queries have the words of their document, and would give BM25 most of the weight.
    dev = dev._replace(queries=dev.queries[dev.queries.query_id.isin(queries.query_id)])
    unchanged = training_summary.get("unchanged")
    # An encoder that is as before learned of no label.
    share = 0.0 if unchanged else labelled_share(training_summary)
    _, trained = labels_used(queries[:0], queries[queries.split == "train"], share, seed)
    is_label = qrels.query_id.isin(trained.query_id) & (qrels.relevance > 0)
    positives = set(hits_of(corpus)[corpus.document_id.isin(qrels.document_id[is_label])])
    fit_of = partial(_fit_of, dev_part_runs, dev, positives, search, seed)

    names = deployable(search_parts, search)
    if unchanged and search_parts.settings["zero_shot"] in names and not search.weights:
        # The encoder that was to be trained is a part already.
        names = [name for name in names if name != "dense"]
    fit = None if search.weights else fit_of(names)
    weights = fit["weights"] if fit else weights_by_hand(search, names)
    weights = {name: weight for name, weight in weights.items() if weight}
    untrained = [name for name in (BM25, NETWORK) if name in search_parts.parts]
    about = {
        "collection": info["collection"],
        "language": info["language"],
        "recipe": recipe,
        "unchanged": unchanged,
        **{name: search_parts.settings[name] for name in _TAKEN_OVER},
        "untrained": fit_of(untrained)["weights"] if NETWORK in untrained else None,
        "fit": fit,
    }
    settings = {"weights": weights, "method": search.method, "depth": search.depth}
    return deployed_search(search_parts, corpus, dense.index, settings, about)


def _fit_of(
    dev_part_runs: pd.DataFrame,
    dev: Split,
    positives: set[str],
    search: SearchParams,
    seed: int,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the fit of some parts: ``weights``, and what they were fitted by."""
    from anmi.search.fit import fit_on_dev, unfitted

    if search.method == "rrf":
        return unfitted(names, 0) | {"weights": equal(dict.fromkeys(names))}
    depth = min(search.depth, DEPTH)
    return fit_on_dev(dev_part_runs, *dev, names=names, positives=positives, depth=depth, seed=seed)


def deployed_search(
    search_parts: HybridSearch,
    corpus: pd.DataFrame,
    index_kind: str,
    settings: Mapping[str, Any],
    about: Mapping[str, Any],
) -> HybridSearch:
    """Return the search of the parts that have a weight, with the indexes that are deployed.

    What is measured is ranked by exact ones.
    """
    parts = []
    for name in settings["weights"]:
        part = search_parts.parts[name]
        if part.kind == "dense" and index_kind != "flat":
            ids = corpus.document_id.tolist()
            part = replace(part, index=build_index(part.index.vectors(), ids, index_kind))
        parts.append(part)
    return HybridSearch.build(parts, corpus, about=about, **settings)


def deployable(search_parts: HybridSearch, search: SearchParams) -> list[str]:
    """Return the names of the parts that the search may have, what was trained by its kinds."""
    allowed = {*search.parts, *(TRAINED if "trained" in search.parts else ())}
    names = [name for name in search_parts.parts if name in allowed]
    if not names:
        left_out = search_parts.settings["left_out"].items()
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out)
        raise AnmiError(
            f"the search has none of the parts in search.parts ({reasons}): name others"
        )
    return names


def weights_by_hand(search: SearchParams, names: Sequence[str]) -> dict[str, float]:
    """Return ``search.weights`` by part; what was trained shares one."""
    weights = dict(search.weights or {})
    if not any(weights.get("trained" if name in TRAINED else name) for name in names):
        raise AnmiError(
            f"search.weights gives none of the parts that the search has ({', '.join(names)}) a"
            " weight: weigh one of them"
        )
    trained = [name for name in names if name in TRAINED]
    weights |= dict.fromkeys(trained, weights.pop("trained", 0.0) / max(len(trained), 1))
    return shares(weights, dict.fromkeys(names))


def measure_dimensions(
    *,
    search_parts: HybridSearch,
    terms: Terms,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    training_summary: Mapping[str, Any],
    params: EvaluationParams,
) -> dict[str, float]:
    """Return nDCG@10 of held-out queries by each trained number of dimensions in use."""
    from anmi.evaluation.metrics import evaluate, of_documents
    from anmi.evaluation.retrieval import Ranking, search_vectors
    from anmi.search.fit import CUT

    sizes = (training_summary.get("options") or {}).get("dimensions")
    split = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    held_out = without_pseudo_queries(split.queries, pseudo_queries)
    if not sizes or held_out.empty:
        return {}
    part = changed(search_parts, terms, corpus, split.corpus).parts["dense"]
    assert part.encoder is not None
    documents = np.asarray(part.index.vectors())
    vectors = np.asarray(part.encode(held_out.text.tolist()))
    ranking = Ranking.of(held_out, split.qrels, split.corpus, CUT)
    truth = of_documents(split.qrels[split.qrels.query_id.isin(held_out.query_id)], corpus)
    means = {}
    for size in sizes:
        if size <= documents.shape[1]:
            prefixes = (part.encoder.prefix(block, size) for block in (vectors, documents))
            scores = evaluate(truth, ranking.run(search_vectors(*prefixes)), (CUT,))
            means[str(size)] = float(scores[f"ndcg@{CUT}"].mean())
    return means


def time_parts(search_parts: HybridSearch, corpus: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the median ``milliseconds`` of a query by part; the first words of documents ask."""
    texts = [" ".join(text.split()[:10]) for text in document_texts(corpus[:_TIMED])]
    medians = {}
    for name in search_parts.parts:
        # The first question loads the model.
        search_parts.lists(texts[:1], 1, [name])
        times = []
        for text in texts:
            start = time.perf_counter()
            search_parts.lists([text], search_parts.settings["depth"], [name])
            times.append(1000 * (time.perf_counter() - start))
        medians[name] = round(float(np.median(times)), 2)
    return {"milliseconds": medians}


def run_systems(
    *,
    part_runs: pd.DataFrame,
    measured_search: HybridSearch,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    given_runs: pd.DataFrame,
    recipe: str,
    params: EvaluationParams,
) -> pd.DataFrame:
    """Return what every system ranks for the held-out queries.

    These are BM25, the encoder before training (``zero_shot``), what was trained (the first of it
    called as the recipe, a companion by its kind), the other parts, ``bm25_and_network``, and the
    search that is measured (``hybrid``); a given run is called by its file. Where fewer than 20
    queries of the split have a label, pseudo-queries are among them; where nothing is asked, no
    rows are returned.
    """
    from anmi.evaluation.retrieval import Ranking
    from anmi.search.fit import fused_run

    split = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    if split.queries.empty:
        return part_runs.drop(columns=["part", "spread"]).assign(system="")
    settings = measured_search.settings
    depth = params.depth_of(corpus)
    names = {settings["zero_shot"]: ZERO_SHOT, settings["trained"][0]: recipe}
    runs = {
        names.get(part, part): run.drop(columns=["part", "spread"])
        for part, run in part_runs[part_runs["rank"] <= depth].groupby("part", sort=False)
    }
    if settings["untrained"]:
        simple = settings | {"weights": settings["untrained"]}
        runs[BM25_AND_NETWORK] = fused_run(part_runs, *split, simple, depth)
    runs[HYBRID] = fused_run(part_runs, *split, settings, depth)
    ranking = Ranking.of(split.queries, split.qrels, split.corpus, depth)
    given_rows = given_runs[given_runs.query_id.isin(ranking.query_ids)]
    for system, rows in given_rows.groupby("system", sort=False):
        runs[str(system)] = ranking.of_documents(rows, split.corpus).groupby("query_id").head(depth)
    # A part that finds nothing has no run.
    order = [name for name in dict.fromkeys((BM25, ZERO_SHOT, recipe, *runs)) if name in runs]
    return pd.concat([runs[system].assign(system=system) for system in order], ignore_index=True)


def changed(
    search: HybridSearch, terms: Terms, before: pd.DataFrame, after: pd.DataFrame
) -> HybridSearch:
    """Return the search over documents of which some have another text; only these are encoded."""
    rows = np.flatnonzero((before.title != after.title) | (before.text != after.text))
    if not len(rows):
        return search
    parts = []
    for part in search.parts.values():
        if isinstance(part.index, BM25Index):
            index: Any = _reindexed(part.index, terms, after, rows)
        else:
            index = _index_of_changed(part, after, rows)
        parts.append(replace(part, index=index))
    return HybridSearch(parts, after, search.settings)


def _reindexed(index: BM25Index, terms: Terms, after: pd.DataFrame, rows: Int64s) -> BM25Index:
    """Return an index with the same settings, for which only the changed rows are cut."""
    settings = index.settings
    terms = terms.changed(rows, document_texts(after.iloc[rows]))
    formula = (settings["engine"], settings["k1"], settings["b"], settings["epsilon"])
    return BM25Index.of_terms(terms, *formula)


def _index_of_changed(part: Part, after: pd.DataFrame, rows: Int64s) -> Any:
    # Rows of a sparse matrix cannot be replaced in place, and encode fast.
    texts = document_texts(after if part.kind == "sparse" else after.iloc[rows])
    assert part.encoder is not None
    vectors = part.encoder.encode(texts, "document", "encoding what changed")
    if part.kind == "dense":
        documents = np.array(part.index.vectors())
        documents[rows] = vectors
        vectors = documents
    return build_index(vectors, after.document_id.tolist())
