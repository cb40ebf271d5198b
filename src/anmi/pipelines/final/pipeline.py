"""Wiring of the final training: nodes of the stages before it, over what they held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.dense.nodes import make_corpus_encoder, make_corpus_part
from anmi.pipelines.dense.pipeline import ENCODER_MADE_OF
from anmi.pipelines.evaluation.pipeline import PARTS_MADE_OF
from anmi.pipelines.evaluation.search import make_parts
from anmi.pipelines.final import nodes
from anmi.pipelines.final.nodes import FINAL, MEASURED, if_trained_again
from anmi.pipelines.training.nodes import prepare_training_data, score_candidates, train_retriever
from anmi.pipelines.training.pipeline import (
    PART_MADE_OF,
    PREPARED_FROM,
    SCORED_BY,
    TRAINED,
    TRAINED_ON,
)
from anmi.pipelines.wiring import by_name, node, stage

_CHOICE: Final = {"choice": f"{FINAL}.choice"}
_RELEASED: Final = ("queries", "new_documents", "pseudo_queries", "training_rows")
# Of these the final training has its own.
_MADE_AGAIN: Final = (
    "corpus_encoder",
    "corpus_part",
    "scored_candidates",
    "training_data",
    "search_parts",
)
_OWN: Final = {name: f"{FINAL}.{name}" for name in (*_RELEASED, *_MADE_AGAIN)}
_TRAINED: Final = {name: f"{FINAL}.{name}" for name in TRAINED} | {"trained_model": "trained_model"}


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(FINAL, [*_held_out(), *_trained_again(), *_deployed()])


def _held_out() -> list[Node]:
    shared = by_name("corpus", "queries", "qrels", "new_documents", "params:seed")
    chosen_by = by_name(
        "training_summary",
        "metrics",
        "params:final",
        "params:recipe",
        "params:recipes",
        "params:training",
        "params:evaluation",
    )
    released_from = by_name(
        "selection", "pseudo_queries", "related_documents", "bm25_index", "params:dense"
    )
    return [
        node(nodes.choose_to_train_again, shared | chosen_by, f"{FINAL}.choice"),
        node(
            nodes.release_held_out,
            shared | released_from | _CHOICE,
            {name: _OWN[name] for name in _RELEASED},
        ),
    ]


def _again(
    function: Callable[..., Any],
    inputs: Mapping[str, str],
    outputs: str | Mapping[str, str],
    measured: Mapping[str, str],
    *choice_names: str,
) -> Node:
    """Return a node that reads the released inputs, and hands on the ``measured`` datasets."""
    released = {argument: _OWN.get(name, name) for argument, name in inputs.items()}
    handed_on = {f"{MEASURED}{name}": dataset for name, dataset in measured.items()}
    return node(if_trained_again(function, *choice_names), released | handed_on | _CHOICE, outputs)


def _trained_again() -> list[Node]:
    steps: dict[str, tuple[Callable[..., Any], Mapping[str, str]]] = {
        "corpus_encoder": (make_corpus_encoder, ENCODER_MADE_OF),
        "corpus_part": (make_corpus_part, PART_MADE_OF),
        "scored_candidates": (score_candidates, SCORED_BY),
        "training_data": (prepare_training_data, PREPARED_FROM),
    }
    again = [
        _again(function, inputs, _OWN[name], by_name(name))
        for name, (function, inputs) in steps.items()
    ]
    return [*again, _again(train_retriever, TRAINED_ON, _TRAINED, TRAINED, "alphas")]


def _deployed() -> list[Node]:
    # Scores are compared by the queries that chose the weights.
    parts_made_of = PARTS_MADE_OF | {
        "corpus_encoder": _OWN["corpus_part"],
        "trained_model": "trained_model",
        f"{MEASURED}search": "measured_search",
    }
    measured_by = by_name(
        "search_index",
        "corpus",
        "queries",
        "qrels",
        "query_buckets",
        "params:encoder",
        "params:seed",
        info="collection_info",
        params="params:evaluation",
    )
    return [
        node(if_trained_again(make_parts), _CHOICE | parts_made_of, _OWN["search_parts"]),
        node(
            nodes.build_search,
            [*_CHOICE.values(), _OWN["search_parts"], "measured_search", "corpus", "params:dense"],
            "search_index",
        ),
        node(
            nodes.measure_final,
            _CHOICE | measured_by,
            {name: f"{FINAL}.{name}" for name in ("query_metrics", "metrics")},
        ),
    ]
