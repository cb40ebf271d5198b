"""Wiring of denoising."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.denoising.nodes import judge_by_evidence, judge_candidates


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    return Pipeline([
        Node(
            judge_by_evidence,
            inputs=[
                "candidates", "bm25_index", "document_embeddings", "encoder_info", "corpus", "queries", "graph",
                "params:recipe", "params:recipes", "params:denoising", "params:seed", "params:engine", "changes",
                "earlier_fused_judge", "collection_info",
            ],
            outputs=["evidence_candidates", "fused_judge"],
            name="judge_by_evidence",
        ),
        Node(
            judge_candidates,
            inputs=[
                "evidence_candidates", "fused_judge", "corpus", "queries", "params:recipe", "params:recipes",
                "params:denoising", "params:seed", "store", "params:engine", "params:collection", "earlier_teacher",
                "params:keep_judges", "changes",
            ],
            outputs=["judged_candidates", "teacher"],
            name="judge_candidates",
        ),
    ])  # fmt: skip
