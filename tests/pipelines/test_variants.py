"""The node that makes variants: only for recipes that draw negatives from mixed sources, and of all positives."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd
import pytest

from anmi.corpus.knowledge import Knowledge
from anmi.corpus.types import empty
from anmi.errors import AnmiError
from anmi.pipelines.params import SelectionParams
from anmi.pipelines.selection.nodes import make_variants
from anmi.pipelines.training.params import TrainingParams
from anmi.retrieval.variants.build import VARIANT_COLUMNS
from anmi.selection.recipe import recipe_book

BOOK = recipe_book({
    "mined": {"description": "Mined.", "negatives": 2, "steps": {"random": {}}},
    "mixed": {"description": "Mixed.", "negatives": 2, "steps": {"random": {}}, "training": {"sources": "mixed"}},
})  # fmt: skip


def variants(recipe: str, selection: SelectionParams | None = None, **training: Any) -> pd.DataFrame:
    facts = pd.DataFrame(
        [("d0", "a", "colour", "red"), ("d1", "b", "colour", "blue"), ("d2", "c", "colour", "green")],
        columns=["document_id", "head", "relation", "tail"],
    )
    entities = pd.DataFrame({"uri": ["a", "b", "c"], "label": ["Ann", "Ben", "Cid"], "types": '["person"]'})
    corpus = pd.DataFrame(
        {"document_id": ["d0", "d1", "d2"], "title": "", "text": ["Ann is red", "Ben is blue", "Cid is green"]}
    )
    queries = pd.DataFrame({"query_id": ["q0", "q1"], "text": ["red", "blue"], "split": ["train", "test"]})
    qrels = pd.DataFrame({"query_id": ["q0", "q1"], "document_id": ["d0", "d1"], "relevance": 1})
    params = SelectionParams() if selection is None else selection
    return make_variants(
        corpus=corpus, queries=queries, qrels=qrels,
        knowledge=Knowledge(entities, empty("head", "relation", "tail"), facts),
        recipe=recipe, recipes=BOOK, selection=params, seed=1, **training,
    )  # fmt: skip


def test_a_recipe_of_mined_negatives_costs_nothing() -> None:
    nothing: Any = None
    found = make_variants(
        corpus=nothing, queries=nothing, qrels=nothing, knowledge=nothing, recipe="mined", recipes=BOOK,
        selection=SelectionParams(), seed=1,
    )  # fmt: skip
    assert found.columns.tolist() == list(VARIANT_COLUMNS)
    assert variants("mined").empty


def test_positives_of_all_splits_have_variants_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = variants("mixed")
    assert set(found.document_id) == {"d0", "d1"}
    assert set(found.kind) == {"swap", "counterpart"}
    assert "Ben is red" in set(found.text)
    assert "4 variants (swap) of 2 of 2 documents" in caplog.text


def test_what_a_run_overrides_counts() -> None:
    assert not variants("mined", training=TrainingParams(options={"sources": "mixed"})).empty
    assert variants("mixed", training=TrainingParams(options={"sources": "mined"})).empty


def test_the_parameters_say_how_many() -> None:
    few = SelectionParams(variants={"swaps": 1, "counterparts": 0})
    assert variants("mixed", few).kind.tolist() == ["swap", "swap"]


def test_a_generator_without_its_key_is_said_only_where_it_is_needed() -> None:
    options = {"base_url": "http://127.0.0.1:9", "model": "writer", "key_variable": "ANMI_NO_SUCH_KEY"}
    selection = SelectionParams(generator=options)
    assert selection.generator is not None and selection.generator.max_tokens == 2048
    assert variants("mined", selection).empty
    with pytest.raises(AnmiError, match="ANMI_NO_SUCH_KEY"):
        variants("mixed", selection)
