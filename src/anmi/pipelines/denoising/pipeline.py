"""Wiring of denoising."""

from __future__ import annotations

from kedro.pipeline import Node, Pipeline

from anmi.pipelines.denoising.nodes import judge_by_evidence, judge_candidates


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    shared = {
        **{name: name for name in ("candidates", "corpus", "queries", "mining_plan")},
        **{name: f"params:{name}" for name in ("recipe", "recipes", "seed", "engine")},
        "params": "params:denoising",
    }
    more = {name: name for name in ("terms", "document_embeddings", "encoder_info", "knowledge")}
    return Pipeline([
        Node(
            judge_by_evidence,
            inputs=shared | more | {"info": "collection_info"},
            outputs=["evidence", "fused_judge"],
            name="judge_by_evidence",
        ),
        Node(
            judge_candidates,
            inputs=shared | {"evidence": "evidence", "store": "store", "collection": "params:collection"},
            outputs=["judgments", "teacher"],
            name="judge_candidates",
        ),
    ])  # fmt: skip
