"""Wiring of adaptation."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.adaptation.nodes import ask_corpus
from anmi.pipelines.wiring import by_name, node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return stage(
        "adaptation",
        [
            node(
                ask_corpus,
                by_name(
                    "corpus",
                    "queries",
                    "qrels",
                    "related_documents",
                    "new_documents",
                    "terms",
                    "corpus_encoder",
                    "params:encoder",
                    "params:training",
                    "params:dense",
                    "params:recipe",
                    "params:recipes",
                    "params:seed",
                    "store",
                    info="collection_info",
                    params="params:adaptation",
                ),
                by_name("pseudo_queries", "dropped_pseudo_queries", "pseudo_query_summary"),
            ),
        ],
    )
