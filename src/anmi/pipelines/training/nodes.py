"""These nodes train the retriever."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from anmi.adaptation.pseudo_tests import labels_used, unlabelled_splits, with_pseudo_tests
from anmi.candidates import PADDING
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.texts import document_texts, joined_texts, normalised
from anmi.errors import AnmiError
from anmi.files import room
from anmi.pipelines.evaluation.search import encoded, untrained_sources
from anmi.pipelines.params import DenseParams, SearchParams
from anmi.pipelines.training.params import TrainingParams, estimate_tau_plus, merged_options
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import (
    OF_CORPUS,
    Encoder,
    load_encoder,
    place_of,
    save_corpus_encoder,
)
from anmi.retrieval.kinds import is_static
from anmi.retrieval.model_folder import check_base
from anmi.retrieval.pool import Positives, RelatedDocuments
from anmi.search.folder import COMPANION
from anmi.search.hybrid import best_candidates
from anmi.search.parts import BM25, NETWORK, Part
from anmi.selection.recipe import RecipeBook
from anmi.store import Store
from anmi.training.parts import GuideFilter, goes_by_dev

if TYPE_CHECKING:
    from anmi.training.batch import NegativeSampler
    from anmi.training.options import TrainingOptions
    from anmi.training.sampling import PseudoRows

log = logging.getLogger(__name__)


def check_splits(rows: pd.DataFrame, queries: pd.DataFrame) -> pd.DataFrame:
    """Return the rows, having made sure that no dev or test query is among them, under this or another id."""
    held_out = queries[queries.split.isin(("dev", "test"))]
    ids = set(rows.query_id) & set(held_out.query_id)
    known = set(map(normalised, held_out.text))
    if found := ids or {text for text in rows["query"].unique() if normalised(text) in known}:
        raise AnmiError(
            f'{len(found)} dev or test queries stand in the training rows (first: "{min(found)}"); '
            "run ingestion again and check the splits of the collection"
        )
    return rows


def train_retriever(
    *,
    rows: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: Knowledge,
    variants: pd.DataFrame,
    related_documents: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    scored_candidates: pd.DataFrame,
    new_documents: pd.DataFrame,
    corpus_encoder: Path,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    params: TrainingParams,
    dense: DenseParams,
    seed: int,
    store: Store,
    alphas: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Train the encoder on the rows of training queries; dev queries choose how much of it is kept.

    ``alphas`` are shares of the way from the start to the trained weights by kind of retriever,
    where an earlier training chose them.

    A companion, where the recipe asks for one, is trained in the same way on the same rows, and its
    folder lies in that of the first.

    Pseudo-queries are trained on beside them where the recipe says so, and stand in for dev queries
    where fewer than 20 are labelled. New documents are not seen: neither as negatives nor by the
    statistics of a sparse retriever's terms.

    What documents state, and variants of them, is read only where the recipe draws negatives from
    mixed sources.
    """
    from anmi.training.alpha import AlphaChoice
    from anmi.training.loop import CheckpointPlan, digest_tables
    from anmi.training.mixed import Stock
    from anmi.training.trainer import by_inner_products, train

    merged = merged_options(recipes.get(recipe), params)
    _check_names(merged, recipe)
    rows, queries = labels_used(check_splits(rows, queries), queries, merged.labels, seed)
    pseudo = _pseudo_rows(
        pseudo_queries,
        merged.pseudo_queries.kinds,
        corpus,
        related_documents,
        labelled=len(rows) > 0,
        asked=((params.options or {}).get("pseudo_queries") or {}).get("kinds") or (),
    )
    old = corpus[~corpus.document_id.isin(new_documents.document_id)]
    lacking = {"dev"}.intersection(unlabelled_splits(queries, qrels))
    dev_tables = with_pseudo_tests(corpus, queries, qrels, pseudo_queries, lacking)
    kind = "labels" if dev_tables[1] is queries else "pseudo_queries"
    choice = AlphaChoice.of(
        corpus,
        queries,
        qrels,
        pseudo_queries,
        new_documents,
        most_documents=params.dev_documents,
        settings=dense,
        seed=seed,
    )
    has_dev = bool(choice.dev.query_ids)
    positives = positives_in_turn(rows, qrels, old)
    tables = [
        *dev_tables[1:],
        new_documents,
        positives,
        pseudo_queries,
        scored_candidates,
        related_documents,
    ]
    stock = None
    if merged.sources.kind == "mixed":
        tables += [corpus, knowledge.graph, knowledge.entities, knowledge.facts]
        tables.append(variants)
        # What is related to a new document is new as well.
        related = related_documents[related_documents.document_id.isin(old.document_id)]
        stock = Stock.from_tables(old, knowledge, variants, related)
    facts = {
        "recipe": recipe,
        "dev documents": str(params.dev_documents),
        "dimensions": str(dense.dimensions),
        "tables": digest_tables(tables),
    }
    # Gone with this process, however that ends, if nothing takes it over.
    folder = Path(tempfile.mkdtemp(dir=room("anmi-models-")))
    results, start = [], place_of(encoder, corpus_encoder)
    chosen_for_companion = params.options.get("companion") or {}
    for planned, chosen, output in (
        (merged.alone, params.options, folder),
        (merged.companion and merged.of_companion, chosen_for_companion, folder / COMPANION),
    ):
        if not planned:
            continue
        options = planned
        if isinstance(how := getattr(planned.loss, "tau_plus", None), str):
            loss = planned.loss.model_copy(
                update={"tau_plus": estimate_tau_plus(how, rows, len(corpus))}
            )
            options = planned.model_copy(update={"loss": loss})
        log.info("Training a %s retriever", options.retriever)
        untrained = _start(start, options, dense, old, store)
        options = by_inner_products(options, untrained, chosen)
        if alphas is not None:
            options = options.model_copy(update={"alpha": alphas[options.retriever]})
        elif options.alpha is None and not has_dev:
            log.warning("No dev query chooses how much of the training is kept: all of it is")
        # A network takes minutes to encode what dev queries search.
        reads_dev = options.dev_every is not None or goes_by_dev(options.curriculum)
        is_followed = has_dev and (is_static(untrained) or reads_dev)
        result = train(
            rows,
            encoder=untrained,
            options=options,
            output=output,
            evaluate_dev=choice.dev_ndcg if is_followed else None,
            choose_alpha=choice if has_dev else None,
            seed=seed,
            checkpoints=CheckpointPlan(store.path / "checkpoints", facts),
            stock=stock,
            pseudo=pseudo,
            positives=positives,
            teacher=_teacher(corpus, scored_candidates) if options.learns_teacher else None,
            guide=_guide(options, start, encoder, dense, old, seed, store),
            dev_loss=choice.dev_loss if options.retriever == "dense" else None,
        )
        about = {
            "options": options.model_dump(),
            "alphas": choice.curve if options.alpha is None else [],
        }
        results.append((result, result.summary | about))
    trained, (summary, *others) = zip(*results, strict=True)
    summary |= {"adapted": bool(pseudo), "dev_queries": kind, "encoder": encoder, "recipe": recipe}
    summary["options"]["companion"] = merged.companion
    if others:
        summary["companion"] = others[0]
    return {
        "trained_model": folder,
        "training_log": trained[0].log,
        "drawn_negatives": trained[0].drawn,
        "latent_neighbours": trained[0].neighbours,
        "training_summary": summary,
    }


def _teacher(
    corpus: pd.DataFrame, candidates: pd.DataFrame
) -> Callable[[NegativeSampler], NegativeSampler]:
    """Return what adds scored candidates to the rows of a sampler."""
    from anmi.training.sampling import WithCandidates

    documents = corpus[corpus.document_id.isin(candidates.document_id)]
    texts = dict(zip(documents.document_id, document_texts(documents), strict=True))
    return partial(WithCandidates, candidates=candidates, texts=texts)


# Queries that are scored at a time, which bounds memory.
_QUERIES: Final = 2_000


def score_candidates(
    *,
    pseudo_queries: pd.DataFrame,
    qrels: pd.DataFrame,
    training_rows: pd.DataFrame,
    corpus: pd.DataFrame,
    related_documents: pd.DataFrame,
    new_documents: pd.DataFrame,
    bm25_index: BM25Index,
    corpus_encoder: Path,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    search: SearchParams,
    dense: DenseParams,
    store: Store,
) -> pd.DataFrame:
    """Let the search that needs no training score documents for training rows and pseudo-queries.

    Pseudo-queries are those that training uses; no candidate is new, a copy, or related to a
    positive. Without the network the encoder before training takes its place.

    Returns
    -------
    pandas.DataFrame
        ``query_id, positive_id, document_id, score``, of each positive itself and the candidates
        beside it; empty where the recipe has no ``pseudo_queries.candidates``.
    """
    from anmi.search.fit import prior

    options = merged_options(recipes.get(recipe), training)
    tables = [pd.DataFrame(columns=["query_id", "positive_id", "document_id", "score"])]
    if not options.pseudo_queries.candidates:
        return tables[0]
    queries = _queries_of_training(training_rows, pseudo_queries, options)
    texts = queries.text.tolist()
    encoders = _teaching_encoders(texts, corpus, corpus_encoder, encoder, search, dense, store)
    parts = [Part(BM25, bm25_index), *encoders]
    ids = corpus.document_id.to_numpy(object)
    place = dict(zip(ids, range(len(ids)), strict=True))
    positives = Positives(qrels, place)
    related = RelatedDocuments.from_table(related_documents, ids.tolist())
    is_first = related.first_of_text == np.arange(len(ids))
    best = partial(
        best_candidates,
        parts,
        prior([part.name for part in parts], documents=0),
        usable=is_first & ~corpus.document_id.isin(new_documents.document_id).to_numpy(),
        depth=search.depth,
        count=options.pseudo_queries.candidates,
    )
    for first in tqdm(range(0, len(queries), _QUERIES), "scoring candidates", disable=None):
        shard = queries[first : first + _QUERIES]
        positive = shard.positive_id.map(place).to_numpy(np.int32)
        relevant = np.column_stack([positive, positives.of(shard.query_id.tolist())])
        excluded = related.excluded(relevant)
        documents, scores = best(shard.text.tolist(), positive, excluded=excluded)
        places = np.nonzero(documents != PADDING)
        table = shard[["query_id", "positive_id"]].iloc[places[0]]
        tables.append(table.assign(document_id=ids[documents[places]], score=scores[places]))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def _queries_of_training(
    training_rows: pd.DataFrame, pseudo_queries: pd.DataFrame, options: TrainingOptions
) -> pd.DataFrame:
    """Return ``query_id, text, positive_id`` of the rows and pseudo-queries that are trained on."""
    is_used = pseudo_queries.kind.isin(options.pseudo_queries.kinds)
    pseudo = pseudo_queries[is_used & (pseudo_queries.split == "train")]
    # An epoch takes the next view.
    epochs = max(options.epochs, (options.companion or {}).get("epochs", 0))
    pseudo = pseudo[pseudo.groupby(["kind", "document_id"]).cumcount() < epochs]
    names = {"query": "text", "document_id": "positive_id"}
    columns = ["query_id", "text", "positive_id"]
    return pd.concat(table.rename(columns=names)[columns] for table in (training_rows, pseudo))


def _teaching_encoders(
    queries: list[str],
    corpus: pd.DataFrame,
    corpus_encoder: Path,
    encoder: str,
    search: SearchParams,
    dense: DenseParams,
    store: Store,
) -> list[Part]:
    """Return the encoders that need no training, that before training in the network's place."""
    sources, _ = untrained_sources(
        document_texts(corpus), corpus_encoder, encoder, search, dense, store, queries
    )
    if NETWORK not in sources and encoder != OF_CORPUS:
        sources[NETWORK] = dense.of(encoder)
    parts = []
    for name, settings in sources.items():
        part = encoded(name, settings, corpus, queries, store)
        # Queries of a training come again in the next one.
        parts.append(replace(part, encoder=Encoder(settings, store.path / "models", store)))
    return parts


def _check_names(options: TrainingOptions, recipe: str) -> None:
    """Refuse a recipe that is called as its companion is reported."""
    if options.companion is not None and options.of_companion.retriever == recipe:
        raise AnmiError(
            f'the companion is reported as "{recipe}", and so would be the recipe of that name:'
            " rename the recipe"
        )


def _guide(
    options: TrainingOptions,
    start: str,
    encoder: str,
    dense: DenseParams,
    corpus: pd.DataFrame,
    seed: int,
    store: Store,
) -> Any:
    """Return the frozen encoder that filters in-batch negatives, if any does."""
    if not isinstance(options.in_batch_filter, GuideFilter):
        return None
    by = options.in_batch_filter.by
    if by == "corpus" and encoder != OF_CORPUS:
        start = tempfile.mkdtemp(dir=room("anmi-models-"))
        save_corpus_encoder(joined_texts(corpus), Path(start), seed, store, dense.device)
    kept = {"retriever": "sparse" if by == "bm25" else "dense", "masked_lm": None}
    return _start(start, options.model_copy(update=kept), dense, corpus, store)


def _start(
    name: str, options: TrainingOptions, dense: DenseParams, corpus: pd.DataFrame, store: Store
) -> Any:
    """Return the untrained retriever: an encoder, or sparse weights of a masked language model or of static tables."""
    from anmi.retrieval.sparse.model import inference_free, of_masked_lm

    models = store.path / "models"
    encoder = Encoder(dense.of(name), models).trainable()
    if options.retriever == "dense":
        return encoder
    if options.masked_lm is not None:
        check_base(options.masked_lm)
        model = of_masked_lm(options.masked_lm, document_texts(corpus), str(encoder.device))
    else:
        static = (
            encoder if is_static(encoder) else load_encoder("static", models, device=dense.device)
        )
        model = inference_free(static, document_texts(corpus))
    model[0].sub_modules["query"][0].weight.requires_grad_(options.sparsity.learned_queries)
    return model


def positives_in_turn(
    rows: pd.DataFrame, qrels: pd.DataFrame, corpus: pd.DataFrame
) -> pd.DataFrame:
    """Return ``query_id, document_id, text``: the labelled documents of queries that have more of them than rows."""
    first = rows.drop_duplicates("query_id").set_index("query_id").positive_ids
    more = (
        first[first.map(len) > rows.query_id.value_counts().reindex(first.index)].map(set).to_dict()
    )
    pairs = qrels.loc[qrels.relevance > 0, ["query_id", "document_id"]]
    here = [document in more.get(query, ()) for query, document in pairs.itertuples(index=False)]
    pairs = pairs[np.array(here, bool)]
    texts = pd.Series(document_texts(corpus), index=corpus.document_id, dtype=object)
    return pairs.assign(text=texts.reindex(pairs.document_id).to_numpy()).dropna()


def _pseudo_rows(
    pseudo_queries: pd.DataFrame,
    kinds: Sequence[str],
    corpus: pd.DataFrame,
    related_documents: pd.DataFrame,
    *,
    labelled: bool,
    asked: Collection[str],
) -> PseudoRows | None:
    """Return the pseudo-queries to train on, None where the recipe asks for none.

    A kind that the collection's documents do not offer, such as titles, is left out, with a warning
    where it is one of those ``asked`` for, not one that the recipe tries. Where nothing is labelled
    either, that the recipe makes none is an error, and that none is offered leaves the encoder
    untrained.
    """
    from anmi.training.sampling import PseudoRows

    there = set(pseudo_queries.kind[pseudo_queries.split == "train"])
    found = [kind for kind in kinds if kind in there]
    if lacking := ", ".join(kind for kind in kinds if kind in asked and kind not in found):
        log.warning(
            "There is no pseudo-query of the kind %s to train on; pseudo_query_summary says why",
            lacking,
        )
    if not (kinds or labelled):
        raise AnmiError(
            "there is nothing to train on: no training query has a label, and the recipe makes no"
            " pseudo-queries; add labels, or kinds under training.options.pseudo_queries.kinds"
        )
    if not found and labelled:
        return None
    ids = corpus.document_id.tolist()
    return PseudoRows(
        pseudo_queries, found, RelatedDocuments.from_table(related_documents, ids), ids
    )
