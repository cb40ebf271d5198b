"""Nodes that make the search of its parts and let every system rank the corpus."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
# What a search takes over from that of all parts, and what is known of it.
_TAKEN_OVER: Final = ("zero_shot", "trained", "left_out")
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
    is_asked = (queries.split == split) & queries.query_id.isin(qrels.query_id)
    return Split(corpus, queries[is_asked], qrels)


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
    is_dev = (dev.queries.split == "dev") & dev.queries.query_id.isin(dev.qrels.query_id)
    return dev._replace(queries=dev.queries[is_dev])


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
    parts = [Part(BM25, bm25_index)]
    for name, settings in sources.items():
        parts.append(encoded(name, settings, corpus, dev_texts, store))
    left_out = {NETWORK: reason} if reason else {}
    about = {"zero_shot": zero_shot, "trained": trained, "left_out": left_out}
    return HybridSearch.build(parts, corpus, depth=search.depth, about=about)


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
    reason = network.reason
    if network.name is not None:
        settings = dense.as_saved(network.name, attention=None, model_kwargs={}, dimensions=None)
        seconds = 0.0
        if device(settings.device) == "cpu":
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
    encoder = Encoder(settings, models, None if name in TRAINED else store)
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
    depth = max(params.cutoffs) if params.ranked == "cutoffs" else len(corpus)
    over_test = changed(search_parts, terms, corpus, test.corpus)
    return {
        "dev_part_runs": runs_of_parts(over_dev, dev, min(fusion_depth, DEPTH)),
        "part_runs": runs_of_parts(over_test, test, max(depth, fusion_depth)),
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
    lists = search.lists(split.queries.text.tolist(), depth, None, ranking.own)
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
    from anmi.search.fit import fit_on_dev, unfitted

    unchanged = training_summary.get("unchanged")
    # An encoder that is as before learned of no label.
    share = 0.0 if unchanged else labelled_share(training_summary)
    _, trained = labels_used(queries[:0], queries[queries.split == "train"], share, seed)
    is_labelled = qrels.query_id.isin(trained.query_id)
    labelled_ids = qrels.document_id[is_labelled & (qrels.relevance > 0)]
    positives = set(hits_of(corpus)[corpus.document_id.isin(labelled_ids)])
    dev = dev_split(corpus, queries, qrels, pseudo_queries, training_summary, seed)
    # Pseudo-queries have the words of their document, and would give BM25 most of the weight.
    dev = dev._replace(queries=dev.queries[dev.queries.query_id.isin(queries.query_id)])

    def fit_of(names: Sequence[str]) -> dict[str, Any]:
        if search.method == "rrf":
            return unfitted(names, 0) | {"weights": equal(dict.fromkeys(names))}
        return fit_on_dev(
            dev_part_runs,
            *dev,
            names=names,
            positives=positives,
            depth=min(search.depth, DEPTH),
            seed=seed,
        )

    names = deployable(search_parts, search)
    if unchanged and search_parts.settings["zero_shot"] in names:
        # The encoder that was to be trained is a part already.
        names = [name for name in names if name != "dense" or search.weights]
    fit = None if search.weights else fit_of(names)
    weights = fit["weights"] if fit else weights_by_hand(search, names)
    untrained = [name for name in (BM25, NETWORK) if name in search_parts.parts]
    weighted = [name for name, weight in weights.items() if weight]
    about = {
        "collection": info["collection"],
        "language": info["language"],
        "recipe": recipe,
        "unchanged": unchanged,
        **{name: search_parts.settings[name] for name in _TAKEN_OVER},
        "untrained": fit_of(untrained)["weights"] if NETWORK in untrained else None,
        "fit": fit,
    }
    return HybridSearch.build(
        [deployed(search_parts.parts[name], corpus, dense.index) for name in weighted],
        corpus,
        weights={name: weights[name] for name in weighted},
        method=search.method,
        depth=search.depth,
        about=about,
    )


def deployable(search_parts: HybridSearch, search: SearchParams) -> list[str]:
    """Return the names of the parts that the search may have, what was trained by its kinds."""
    wanted = {*search.parts, *(TRAINED if "trained" in search.parts else ())}
    names = [name for name in search_parts.parts if name in wanted]
    if not names:
        reasons = "; ".join(
            f"{name}: {why}" for name, why in search_parts.settings["left_out"].items()
        )
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


def deployed(part: Part, corpus: pd.DataFrame, kind: str) -> Part:
    """Return a part with the index that is deployed; what is measured is ranked by exact ones."""
    if part.kind != "dense" or kind == "flat":
        return part
    vectors = part.index.vectors()
    return replace(part, index=build_index(vectors, corpus.document_id.tolist(), kind))


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

    trained = (training_summary.get("options") or {}).get("dimensions")
    split = queries_of_split(corpus, queries, qrels, pseudo_queries, params.split)
    held_out = without_pseudo_queries(split.queries, pseudo_queries)
    if not trained or held_out.empty:
        return {}
    part = changed(search_parts, terms, corpus, split.corpus).parts["dense"]
    assert part.encoder is not None
    documents = np.asarray(part.index.vectors())
    vectors = np.asarray(part.encode(held_out.text.tolist()))
    ranking = Ranking.of(held_out, split.qrels, split.corpus, CUT)
    truth = of_documents(split.qrels[split.qrels.query_id.isin(held_out.query_id)], corpus)
    means = {}
    for size in (size for size in trained if size <= documents.shape[1]):
        prefixes = (part.encoder.prefix(block, size) for block in (vectors, documents))
        run = ranking.run(search_vectors(*prefixes))
        scores = evaluate(truth, run, (CUT,))
        means[str(size)] = float(scores[f"ndcg@{CUT}"].mean())
    return means


def time_parts(search_parts: HybridSearch, corpus: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the ``milliseconds`` of a query by part, the median; the first words of documents ask."""
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
    part_runs: pd.DataFrame,
    measured_search: HybridSearch,
    *,
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
    depth = max(params.cutoffs) if params.ranked == "cutoffs" else len(corpus)
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
    asked = given_runs[given_runs.query_id.isin(ranking.query_ids)]
    for system, rows in asked.groupby("system", sort=False):
        runs[str(system)] = ranking.given(rows, split.corpus).groupby("query_id").head(depth)
    # A part that finds nothing has no run.
    order = [name for name in dict.fromkeys((BM25, ZERO_SHOT, recipe, *runs)) if name in runs]
    return pd.concat([runs[system].assign(system=system) for system in order], ignore_index=True)


def changed(
    search: HybridSearch, terms: Terms, before: pd.DataFrame, after: pd.DataFrame
) -> HybridSearch:
    """Return the search over documents of which some have another text; only these are encoded."""
    other = _other(before, after)
    if not len(other):
        return search
    parts = []
    for part in search.parts.values():
        if isinstance(part.index, BM25Index):
            index: Any = reindexed(part.index, terms, before, after)
        else:
            index = _index_of_changed(part, after, other)
        parts.append(replace(part, index=index))
    return HybridSearch(parts, after, search.settings)


def _index_of_changed(part: Part, after: pd.DataFrame, other: Int64s) -> Any:
    # Rows of a sparse matrix cannot be replaced in place, and encode fast.
    texts = document_texts(after if part.kind == "sparse" else after.iloc[other])
    assert part.encoder is not None
    encoded = part.encoder.encode(texts, "document", "encoding what changed")
    if part.kind == "dense":
        replaced = np.array(part.index.vectors())
        replaced[other] = encoded
        encoded = replaced
    return build_index(encoded, after.document_id.tolist())


def reindexed(
    index: BM25Index, terms: Terms, before: pd.DataFrame, after: pd.DataFrame
) -> BM25Index:
    """Return an index with the same settings of documents of which some have another text; only these are cut."""
    settings = index.settings
    rows = _other(before, after)
    own = terms.changed(rows, document_texts(after.iloc[rows]))
    formula = (settings["engine"], settings["k1"], settings["b"], settings["epsilon"])
    return BM25Index.of_terms(own, *formula)


def _other(before: pd.DataFrame, after: pd.DataFrame) -> Int64s:
    """Return which documents have another text."""
    return np.flatnonzero((before.title != after.title) | (before.text != after.text))
