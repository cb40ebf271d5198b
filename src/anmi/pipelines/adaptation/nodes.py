"""Nodes of adaptation."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pandas as pd

from anmi.pipelines.adaptation.params import AdaptationParams
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

if TYPE_CHECKING:
    from anmi.adaptation.written import Writer

log = logging.getLogger(__name__)


def kinds_of(recipe: str, recipes: RecipeBook, training: TrainingParams) -> list[str]:
    """Return the kinds of pseudo-queries that a recipe trains on; under the name ``*`` those of all recipes."""
    names = recipes.names() if recipe == recipes.every else [recipe]
    options = [merged_options(recipes.get(name), training) for name in names]
    return list(dict.fromkeys(kind for each in options for kind in each.pseudo_queries.kinds))


def ask_corpus(
    *,
    corpus: pd.DataFrame,
    related_documents: pd.DataFrame,
    info: dict[str, Any],
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    params: AdaptationParams,
    seed: int,
    store: Store,
) -> dict[str, Any]:
    """Make the pseudo-queries that the recipe trains on; none where it trains on labels alone.

    Returns
    -------
    dict
        ``pseudo_queries, dropped_pseudo_queries, pseudo_query_summary``.
    """
    from anmi.adaptation.make import make_pseudo_queries

    kinds = kinds_of(recipe, recipes, training)
    copies = frozenset(related_documents.document_id[related_documents.kind == "copy"])
    made = make_pseudo_queries(
        corpus, kinds, language=info["language"], seed=seed, views=params.views, held_out=params.held_out,
        most_documents=params.max_documents, copies=copies, filters=params.filters,
        question=params.question, writer=_writer(params, store, seed) if "llm" in kinds else None,
    )  # fmt: skip
    for kind, counts in made.summary["kinds"].items():
        log.info("%s: %d pseudo-queries of %d documents", kind, counts["kept"], counts["documents"])
    return {
        "pseudo_queries": made.kept,
        "dropped_pseudo_queries": made.dropped,
        "pseudo_query_summary": made.summary,
    }


def _writer(params: AdaptationParams, store: Store, seed: int) -> Writer | None:
    """Return the language model that writes queries, if there is one."""
    from anmi.adaptation.written import Writer
    from anmi.judging.endpoint import Endpoint

    options = params.llm
    if options is None:
        return None
    model = (options.model, options.base_url, str(options.max_tokens))
    return Writer(
        Endpoint(options, seed).ask, store, model, budget=options.budget, max_characters=options.max_characters,
        queries=params.views,
    )  # fmt: skip
