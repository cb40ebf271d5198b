"""These nodes train the retriever."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from anmi.adaptation.pseudo_tests import labels_used, unlabelled_splits
from anmi.candidates import PADDING
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.texts import document_texts, joined_texts, normalised
from anmi.errors import AnmiError
from anmi.files import room
from anmi.pipelines.evaluation.search import encoded, untrained_sources
from anmi.pipelines.params import DenseParams, SearchParams
from anmi.pipelines.training.data import TrainingData
from anmi.pipelines.training.params import (
    TrainingParams,
    estimate_tau_plus,
    merged_options,
    retrievers_of,
)
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
    from anmi.training.mixed import Stock
    from anmi.training.options import TrainingOptions
    from anmi.training.trainer import TrainingResult

log = logging.getLogger(__name__)
# Queries that are scored at a time, which bounds memory.
_QUERIES: Final = 2_000


def check_splits(rows: pd.DataFrame, queries: pd.DataFrame) -> None:
    """Refuse rows of a dev or test query, under its own or another id."""
    held_out = queries[queries.split.isin(("dev", "test"))]
    texts = set(map(normalised, held_out.text))
    leaked = set(rows.query_id) & set(held_out.query_id)
    leaked = leaked or {text for text in rows["query"].unique() if normalised(text) in texts}
    if leaked:
        raise AnmiError(
            f"{len(leaked)} dev or test queries stand in the training rows (first:"
            f' "{min(leaked)}"); run ingestion again and check the splits of the collection'
        )


def prepare_training_data(
    *,
    training_rows: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    new_documents: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    seed: int,
) -> TrainingData:
    """Check the rows, and return what is trained on beside them and what chooses how much is kept.

    Pseudo-queries are trained on where the recipe says so, and stand in for dev queries where fewer
    than 20 are labelled. New documents are no positives.
    """
    from anmi.training.alpha import dev_tables

    options = merged_options(recipes.get(recipe), training)
    retrievers = retrievers_of(options)
    if any(companion.retriever == recipe for companion in retrievers[1:]):
        raise AnmiError(
            f'the companion is reported as "{recipe}", and so would be the recipe of that name:'
            " rename the recipe"
        )
    check_splits(training_rows, queries)
    rows, queries = labels_used(training_rows, queries, options.labels, seed)
    lacks_dev = "dev" in unlabelled_splits(queries, qrels)
    stand_in = lacks_dev and (pseudo_queries.split == "dev").any()
    is_old = ~corpus.document_id.isin(new_documents.document_id)
    kinds = _pseudo_kinds(options, training, pseudo_queries, is_labelled=len(rows) > 0)
    is_used = (pseudo_queries.split == "train") & pseudo_queries.kind.isin(kinds or ())
    tau_plus_settings = {getattr(retriever.loss, "tau_plus", None) for retriever in retrievers}
    collection = (corpus, queries, qrels, pseudo_queries, new_documents)
    return TrainingData(
        queries.loc[queries.split == "train", ["query_id"]],
        positives_in_turn(rows, qrels, corpus[is_old]),
        pseudo_queries[is_used],
        *dev_tables(*collection, most_documents=training.dev_documents, seed=seed),
        facts={
            "pseudo_kinds": kinds,
            "dev_queries": "pseudo_queries" if stand_in else "labels",
            "tau_plus": {
                basis: estimate_tau_plus(basis, rows, len(corpus))
                for basis in sorted(basis for basis in tau_plus_settings if isinstance(basis, str))
            },
        },
    )


def positives_in_turn(
    rows: pd.DataFrame, qrels: pd.DataFrame, corpus: pd.DataFrame
) -> pd.DataFrame:
    """Return the labelled documents of queries that have more of them than rows.

    The columns are ``query_id, document_id, text``.
    """
    positives = rows.drop_duplicates("query_id").set_index("query_id").positive_ids
    row_counts = rows.query_id.value_counts().reindex(positives.index)
    positives = positives[positives.map(len) > row_counts]
    listed = set(positives.explode().items())
    pairs = qrels.loc[qrels.relevance > 0, ["query_id", "document_id"]]
    is_listed = [pair in listed for pair in pairs.itertuples(index=False, name=None)]
    pairs = pairs[np.array(is_listed, bool)]
    texts = pd.Series(document_texts(corpus), index=corpus.document_id, dtype=object)
    return pairs.assign(text=texts.reindex(pairs.document_id).to_numpy()).dropna()


def _pseudo_kinds(
    options: TrainingOptions,
    params: TrainingParams,
    pseudo_queries: pd.DataFrame,
    *,
    is_labelled: bool,
) -> list[str] | None:
    """Return the kinds of pseudo-queries to train on, None where labels alone are trained on.

    A kind that no document offers, such as titles, is left out, with a warning if the run itself
    asks for it. Without labels: raise if the recipe asks for no kinds; return [] if none is
    offered, which leaves the encoder untrained.
    """
    kinds = options.pseudo_queries.kinds
    offered = set(pseudo_queries.kind[pseudo_queries.split == "train"])
    by_run = (params.options.get("pseudo_queries") or {}).get("kinds") or ()
    if lacking := ", ".join(kind for kind in kinds if kind in by_run and kind not in offered):
        log.warning(
            "There is no pseudo-query of the kind %s to train on; pseudo_query_summary says why",
            lacking,
        )
    if not (kinds or is_labelled):
        raise AnmiError(
            "there is nothing to train on: no training query has a label, and the recipe makes no"
            " pseudo-queries; add labels, or kinds under training.options.pseudo_queries.kinds"
        )
    usable = [kind for kind in kinds if kind in offered]
    return usable or (None if is_labelled else [])


def train_retriever(
    *,
    training_data: TrainingData,
    training_rows: pd.DataFrame,
    corpus: pd.DataFrame,
    knowledge: Knowledge,
    variants: pd.DataFrame,
    related_documents: pd.DataFrame,
    scored_candidates: pd.DataFrame,
    new_documents: pd.DataFrame,
    corpus_encoder: Path,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    dense: DenseParams,
    seed: int,
    store: Store,
    alphas: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Train the encoder on the rows of training queries; dev queries choose how much of it is kept.

    ``alphas`` are shares of the way from the start to the trained weights by kind of retriever,
    where an earlier training chose them. A companion, where the recipe asks for one, is trained in
    the same way on the same rows, and its folder lies in that of the first.

    What documents state, and variants of them, is read only where the recipe draws negatives from
    mixed sources. New documents are not seen: neither as negatives nor by the statistics of a
    sparse retriever's terms.
    """
    options = merged_options(recipes.get(recipe), training)
    is_old = ~corpus.document_id.isin(new_documents.document_id)
    untrained = _UntrainedRetrievers(
        place_of(encoder, corpus_encoder), encoder, dense, corpus[is_old], seed, store
    )
    stock = None
    tables = [*training_data.tables.values(), new_documents, scored_candidates, related_documents]
    if options.sources.kind == "mixed":
        stock = _stock(untrained.documents, knowledge, variants, related_documents)
        tables += [corpus, knowledge.graph, knowledge.entities, knowledge.facts, variants]
    learns_teacher = options.pseudo_queries.candidates > 0
    session = _Session(
        training_data,
        training_rows[training_rows.query_id.isin(training_data.train_queries.query_id)],
        untrained,
        stock,
        _pseudo_rows(training_data, corpus, related_documents),
        _teacher(corpus, scored_candidates) if learns_teacher else None,
        _checkpoints(recipe, training, dense, tables, store),
        alphas,
    )
    about = {"encoder": encoder, "recipe": recipe}
    return session.train_all(options, training.options, about)


def _stock(
    documents: pd.DataFrame,
    knowledge: Knowledge,
    variants: pd.DataFrame,
    related_documents: pd.DataFrame,
) -> Stock:
    """Return what negatives of mixed sources are drawn from."""
    from anmi.training.mixed import Stock

    # What is related to a new document is new as well.
    is_old = related_documents.document_id.isin(documents.document_id)
    return Stock.from_tables(documents, knowledge, variants, related_documents[is_old])


def _pseudo_rows(
    training_data: TrainingData, corpus: pd.DataFrame, related_documents: pd.DataFrame
) -> Any:
    from anmi.training.sampling import PseudoRows

    kinds = training_data.facts["pseudo_kinds"]
    if kinds is None:
        return None
    ids = corpus.document_id.tolist()
    related = RelatedDocuments.from_table(related_documents, ids)
    return PseudoRows(training_data.pseudo_queries, kinds, related, ids)


def _checkpoints(
    recipe: str,
    training: TrainingParams,
    dense: DenseParams,
    tables: list[pd.DataFrame],
    store: Store,
) -> Any:
    """Return where checkpoints of the same training on the same tables lie."""
    from anmi.training.loop import CheckpointPlan, digest_tables

    facts = {
        "recipe": recipe,
        "dev documents": str(training.dev_documents),
        "dimensions": str(dense.dimensions),
        "tables": digest_tables(tables),
    }
    return CheckpointPlan(store.path / "checkpoints", facts)


def _teacher(
    corpus: pd.DataFrame, scored_candidates: pd.DataFrame
) -> Callable[[NegativeSampler], NegativeSampler]:
    """Return what adds scored candidates to the rows of a sampler."""
    from anmi.training.sampling import WithCandidates

    documents = corpus[corpus.document_id.isin(scored_candidates.document_id)]
    texts = dict(zip(documents.document_id, document_texts(documents), strict=True))
    return partial(WithCandidates, candidates=scored_candidates, texts=texts)


@dataclass(frozen=True)
class _Session:
    """Trains retrievers on the same data; see :func:`anmi.training.trainer.train`."""

    training_data: TrainingData
    rows: pd.DataFrame
    untrained: _UntrainedRetrievers
    stock: Stock | None
    pseudo: Any
    teacher: Callable[[NegativeSampler], NegativeSampler] | None
    checkpoints: Any
    alphas: Mapping[str, float] | None

    def train_all(
        self, options: TrainingOptions, chosen: Mapping[str, Any], about: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the outputs of :func:`train_retriever`; ``chosen`` are the options of the run."""
        # Gone with this process, however that ends, if nothing takes it over.
        folder = Path(tempfile.mkdtemp(dir=room("anmi-models-")))
        retriever, *companions = retrievers_of(options)
        result, summary = self.train(retriever, chosen, folder)
        dev_queries = self.training_data.facts["dev_queries"]
        summary |= {"adapted": bool(self.pseudo), "dev_queries": dev_queries, **about}
        summary["options"]["companion"] = options.companion
        for companion in companions:
            of_companion = chosen.get("companion") or {}
            summary["companion"] = self.train(companion, of_companion, folder / COMPANION)[1]
        return {
            "trained_model": folder,
            "training_log": result.log,
            "drawn_negatives": result.drawn,
            "latent_neighbours": result.neighbours,
            "training_summary": summary,
        }

    def train(
        self, options: TrainingOptions, chosen: Mapping[str, Any], output: Path
    ) -> tuple[TrainingResult, dict[str, Any]]:
        """Return what training one retriever gave, and its summary."""
        from anmi.training.alpha import AlphaChoice
        from anmi.training.trainer import by_inner_products, train

        untrained = self.untrained
        tau_plus = self.training_data.facts["tau_plus"].get(getattr(options.loss, "tau_plus", None))
        if tau_plus is not None:
            loss = options.loss.model_copy(update={"tau_plus": tau_plus})
            options = options.model_copy(update={"loss": loss})
        log.info("Training a %s retriever", options.retriever)
        encoder = untrained.retriever(options)
        options = by_inner_products(options, encoder, chosen)
        choice = AlphaChoice.of(*self.training_data.dev_tables, untrained.dense, untrained.seed)
        has_dev = bool(choice.dev.query_ids)
        if self.alphas is not None:
            options = options.model_copy(update={"alpha": self.alphas[options.retriever]})
        elif options.alpha is None and not has_dev:
            log.warning("No dev query chooses how much of the training is kept: all of it is")
        # A network takes minutes to encode what dev queries search.
        reads_dev = options.dev_every is not None or goes_by_dev(options.curriculum)
        is_followed = has_dev and (is_static(encoder) or reads_dev)
        result = train(
            self.rows,
            encoder=encoder,
            options=options,
            output=output,
            evaluate_dev=choice.dev_ndcg if is_followed else None,
            choose_alpha=choice if has_dev else None,
            seed=untrained.seed,
            checkpoints=self.checkpoints,
            stock=self.stock,
            pseudo=self.pseudo,
            positives=self.training_data.positives,
            teacher=self.teacher if options.learns_teacher else None,
            guide=untrained.guide(options),
            documents=untrained.frozen(encoder, options),
            dev_loss=choice.dev_loss if options.retriever == "dense" else None,
        )
        summary = {"options": options.model_dump(), "alphas": choice.curve}
        return result, result.summary | summary


@dataclass(frozen=True)
class _UntrainedRetrievers:
    """Makes retrievers as they are before training.

    ``model_path`` is the encoder's name or folder, ``encoder_param`` the parameter ``encoder``;
    ``documents`` are all but new ones.
    """

    model_path: str
    encoder_param: str
    dense: DenseParams
    documents: pd.DataFrame
    seed: int
    store: Store

    def retriever(self, options: TrainingOptions) -> Any:
        """Return an encoder, or sparse weights of a masked language model or of static tables."""
        from anmi.retrieval.sparse.model import inference_free, of_masked_lm

        models = self.store.path / "models"
        encoder = Encoder(self.dense.of(self.model_path), models).trainable()
        if options.retriever == "dense":
            return encoder
        texts = document_texts(self.documents)
        if options.masked_lm is not None:
            check_base(options.masked_lm)
            model = of_masked_lm(options.masked_lm, texts, str(encoder.device))
        elif is_static(encoder):
            model = inference_free(encoder, texts)
        else:
            static = load_encoder("static", models, device=self.dense.device)
            model = inference_free(static, texts)
        model[0].sub_modules["query"][0].weight.requires_grad_(options.sparsity.learned_queries)
        return model

    def frozen(self, encoder: Any, options: TrainingOptions) -> Encoder | None:
        """Return what encodes documents, with the store, where only queries are trained."""
        if options.encoders != "query_only":
            return None
        return Encoder.of(encoder, self.dense.of(self.model_path, dimensions=None), self.store)

    def guide(self, options: TrainingOptions) -> Any:
        """Return the frozen encoder that filters in-batch negatives, if any does."""
        if not isinstance(options.in_batch_filter, GuideFilter):
            return None
        basis = options.in_batch_filter.by
        model_path = self.model_path
        if basis == "corpus" and self.encoder_param != OF_CORPUS:
            model_path = tempfile.mkdtemp(dir=room("anmi-models-"))
            texts = joined_texts(self.documents)
            save_corpus_encoder(texts, Path(model_path), self.seed, self.store, self.dense.device)
        retriever = "sparse" if basis == "bm25" else "dense"
        frozen = options.model_copy(update={"retriever": retriever, "masked_lm": None})
        return replace(self, model_path=model_path).retriever(frozen)


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
    numbers = dict(zip(ids, range(len(ids)), strict=True))
    positives = Positives(qrels, numbers)
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
    for start in tqdm(range(0, len(queries), _QUERIES), "scoring candidates", disable=None):
        shard = queries[start : start + _QUERIES]
        shard_positives = shard.positive_id.map(numbers).to_numpy(np.int32)
        labelled = positives.of(shard.query_id.tolist())
        excluded = related.excluded(np.column_stack([shard_positives, labelled]))
        documents, scores = best(shard.text.tolist(), shard_positives, excluded=excluded)
        cells = np.nonzero(documents != PADDING)
        table = shard[["query_id", "positive_id"]].iloc[cells[0]]
        tables.append(table.assign(document_id=ids[documents[cells]], score=scores[cells]))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def _queries_of_training(
    training_rows: pd.DataFrame, pseudo_queries: pd.DataFrame, options: TrainingOptions
) -> pd.DataFrame:
    """Return ``query_id, text, positive_id`` of the rows and pseudo-queries that are trained on."""
    is_used = pseudo_queries.kind.isin(options.pseudo_queries.kinds)
    pseudo = pseudo_queries[is_used & (pseudo_queries.split == "train")]
    # Epoch i uses each document's i-th pseudo-query of a kind.
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
