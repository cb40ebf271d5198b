"""Wiring of denoising."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.denoising.nodes import judge_by_evidence, judge_candidates
from anmi.pipelines.wiring import by_name, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    shared = by_name(
        "candidates", "corpus", "queries", "params:recipe", "params:recipes", "params:seed",
        "params:engine", params="params:denoising",
    )  # fmt: skip
    return stage("denoising", [
        Node(
            judge_by_evidence,
            inputs=shared
            | by_name("terms", "document_embeddings", "encoder_info", "knowledge", info="collection_info"),
            outputs=["evidence", "fused_judge"],
            name="judge_by_evidence",
        ),
        Node(
            judge_candidates,
            inputs=shared | by_name("evidence", "store", "params:elo"),
            outputs=["judgments", "cross_encoder"],
            name="judge_candidates",
        ),
    ])  # fmt: skip
