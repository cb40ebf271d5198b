"""These nodes cut the corpus into terms and index them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from anmi.corpus.texts import document_texts
from anmi.pipelines.params import BM25Params
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.terms import Terms
from anmi.selection.recipe import RecipeBook


def cut_terms(
    corpus: pd.DataFrame, info: dict[str, Any], recipe: str, recipes: RecipeBook, params: BM25Params
) -> Terms:
    """Cut the documents into terms, once for all stages that read them."""
    params = recipes.get(recipe).settings("bm25", params)
    return Terms.cut(document_texts(corpus), info["language"], params.tokenizer)


def build_bm25_index(
    terms: Terms, recipe: str, recipes: RecipeBook, params: BM25Params
) -> BM25Index:
    """Index the terms of the corpus."""
    params = recipes.get(recipe).settings("bm25", params)
    return BM25Index.of_terms(terms, params.engine, params.k1, params.b, params.epsilon)
