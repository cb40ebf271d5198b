"""Wiring of the final training: nodes of the stages before it, over what they held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.dense.nodes import make_corpus_encoder
from anmi.pipelines.dense.pipeline import ENCODER_MADE_OF
from anmi.pipelines.evaluation.pipeline import PARTS_MADE_OF
from anmi.pipelines.evaluation.search import make_parts
from anmi.pipelines.final import nodes
from anmi.pipelines.final.nodes import FINAL, MEASURED, if_trained_again
from anmi.pipelines.training.nodes import score_candidates, train_retriever
from anmi.pipelines.training.pipeline import SCORED_BY, TRAINED, TRAINED_ON
from anmi.pipelines.wiring import by_name, node, stage

_DEPLOYED: Final = "trained_model"
_CHOICE: Final = {"choice": f"{FINAL}.choice"}
_RELEASED: Final = {
    name: f"{FINAL}.{name}"
    for name in ("queries", "new_documents", "pseudo_queries", "training_rows")
}
_SCORED: Final = f"{FINAL}.scored_candidates"
_ENCODER: Final = {"corpus_encoder": f"{FINAL}.corpus_encoder"}
_TRAINED: Final = {name: _DEPLOYED if name == _DEPLOYED else f"{FINAL}.{name}" for name in TRAINED}


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(FINAL, [*_held_out(), *_trained_again(), *_deployed()])


def _held_out() -> list[Node]:
    shared = by_name("corpus", "queries", "qrels", "new_documents", "params:seed")
    return [
        node(
            nodes.choose_to_train_again,
            shared
            | by_name(
                "params:final",
                "training_summary",
                "metrics",
                "params:recipe",
                "params:recipes",
                "params:training",
                "params:evaluation",
            ),
            f"{FINAL}.choice",
        ),
        node(
            nodes.release_held_out,
            shared
            | _CHOICE
            | by_name(
                "selection", "pseudo_queries", "related_documents", "bm25_index", "params:dense"
            ),
            _RELEASED,
        ),
    ]


def _trained_again() -> list[Node]:
    def released(inputs: Mapping[str, str]) -> dict[str, str]:
        names = _RELEASED | _ENCODER | {"scored_candidates": _SCORED}
        return {argument: names.get(name, name) for argument, name in inputs.items()}

    measured = {f"{MEASURED}{name}": dataset for name, dataset in TRAINED.items()}
    return [
        node(
            if_trained_again(make_corpus_encoder),
            _CHOICE | released(ENCODER_MADE_OF) | {f"{MEASURED}encoder": "corpus_encoder"},
            _ENCODER["corpus_encoder"],
        ),
        node(
            if_trained_again(score_candidates),
            _CHOICE | released(SCORED_BY) | {f"{MEASURED}scored": "scored_candidates"},
            _SCORED,
        ),
        node(
            if_trained_again(train_retriever, "alphas"),
            _CHOICE | released(TRAINED_ON) | measured,
            _TRAINED,
        ),
    ]


def _deployed() -> list[Node]:
    # Scores are compared by the queries that chose the weights.
    parts_made_of = PARTS_MADE_OF | _ENCODER | {"trained_model": _DEPLOYED}
    return [
        node(
            if_trained_again(make_parts),
            _CHOICE | parts_made_of | {f"{MEASURED}search": "measured_search"},
            f"{FINAL}.search_parts",
        ),
        node(
            nodes.build_search,
            _CHOICE
            | by_name(
                "measured_search",
                "corpus",
                "params:dense",
                search_parts=f"{FINAL}.search_parts",
            ),
            "search_index",
        ),
        node(
            nodes.measure_final,
            _CHOICE
            | by_name(
                "search_index",
                "corpus",
                "queries",
                "qrels",
                "query_buckets",
                "params:encoder",
                "params:seed",
                info="collection_info",
                params="params:evaluation",
            ),
            {name: f"{FINAL}.{name}" for name in ("query_metrics", "metrics")},
        ),
    ]
