"""These nodes make pseudo-queries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.adaptation.kinds import KINDS
from anmi.adaptation.make import make_pseudo_queries
from anmi.adaptation.pseudo_tests import labels_used
from anmi.corpus.texts import normalised
from anmi.errors import AnmiError, nearest
from anmi.pipelines.params import AdaptationParams, DenseParams, WriterOptions
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.retrieval.encoders import Encoder, place_of
from anmi.retrieval.terms import Terms
from anmi.seeds import choose
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

log = logging.getLogger(__name__)
# Queries that a language model sees before it writes some.
_EXAMPLES: Final = 4


def example_queries(
    queries: pd.DataFrame, qrels: pd.DataFrame, share: float, seed: int
) -> list[str]:
    """Return training queries, four at most, of the share whose labels are trained on.

    They show a language model how people ask.

    Examples
    --------
    >>> columns = {"query_id": ["a", "b"], "text": ["x", "y"], "split": ["train", "test"]}
    >>> queries = pd.DataFrame(columns)
    >>> example_queries(queries, queries.assign(relevance=1), 1.0, 1)
    ['x']
    """
    _, used = labels_used(queries[:0], queries, share, seed)
    labelled = qrels.query_id[qrels.relevance > 0]
    texts = used.text[(used.split == "train") & used.query_id.isin(labelled)]
    return texts[choose(texts.tolist(), _EXAMPLES, seed)].tolist()


def ask_corpus(
    *,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    related_documents: pd.DataFrame,
    new_documents: pd.DataFrame,
    terms: Terms,
    corpus_encoder: Path,
    encoder: str,
    info: dict[str, Any],
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    params: AdaptationParams,
    dense: DenseParams,
    seed: int,
    store: Store,
) -> dict[str, Any]:
    """Make the pseudo-queries that the recipe trains on; none where it trains on labels alone.

    None has the text of a dev or test query: titles and templates may ask what people asked. Those
    of new documents have the split of these, and are never trained on.

    Returns
    -------
    dict
        ``pseudo_queries, dropped_pseudo_queries, pseudo_query_summary``.
    """
    chosen = recipes.get(recipe)
    options = merged_options(chosen, training)
    kinds = options.pseudo_queries.kinds
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise AnmiError(
            f'there is no kind of pseudo-queries "{unknown[0]}"; {nearest(unknown[0], KINDS)}'
        )
    writer = None
    if params.llm is not None and "llm" in kinds:
        writer = _writer(params.llm, example_queries(queries, qrels, options.labels, seed), store)
    rank = None
    if kinds and params.filters.round_trip is not None:
        settings = chosen.settings("dense", dense).of(place_of(encoder, corpus_encoder))
        start = Encoder(settings, store.path / "models", store)
        rank = _ranks(corpus, terms, start, new_documents)
    copies = frozenset(related_documents.document_id[related_documents.kind == "copy"])
    held_out = queries.text[queries.split.isin(["dev", "test"])]
    pseudo = make_pseudo_queries(
        corpus,
        kinds,
        language=info["language"],
        seed=seed,
        terms=terms,
        views=params.views,
        most_documents=params.max_documents,
        new=dict(new_documents.to_numpy().tolist()),
        copies=copies,
        held_out=frozenset(map(normalised, held_out)),
        filters=params.filters,
        question=params.question,
        writer=writer,
        rank=rank,
    )
    for kind, counts in pseudo.summary["kinds"].items():
        log.info("%s: %d pseudo-queries of %d documents", kind, counts["kept"], counts["documents"])
    return {
        "pseudo_queries": pseudo.queries,
        "dropped_pseudo_queries": pseudo.dropped,
        "pseudo_query_summary": pseudo.summary,
    }


def _ranks(
    corpus: pd.DataFrame, terms: Terms, encoder: Encoder, new_documents: pd.DataFrame
) -> Callable[..., Any]:
    from anmi.adaptation.round_trip import document_ranks

    new = new_documents.document_id
    return partial(document_ranks, corpus=corpus, terms=terms, encoder=encoder, new=new)


def _writer(options: WriterOptions, examples: list[str], store: Store) -> Any:
    from anmi.adaptation.written import Writer
    from anmi.judging.endpoint import Endpoint

    return Writer(
        Endpoint(options).ask,
        store,
        (options.model, options.base_url, str(options.max_tokens)),
        budget=options.budget,
        max_characters=options.max_characters,
        examples=examples,
    )
