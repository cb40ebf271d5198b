"""Wiring of denoising."""

from __future__ import annotations

from kedro.pipeline import Pipeline

from anmi.pipelines.denoising.nodes import judge_by_evidence, judge_candidates
from anmi.pipelines.wiring import by_name, node, stage


def create_pipeline() -> Pipeline:
    """Return the pipeline."""
    shared = by_name(
        "candidates",
        "corpus",
        "queries",
        "params:recipe",
        "params:recipes",
        "params:seed",
        "params:engine",
        params="params:denoising",
    )
    return stage(
        "denoising",
        [
            node(
                judge_by_evidence,
                shared
                | by_name(
                    "terms",
                    "document_embeddings",
                    "encoder_info",
                    "knowledge",
                    "params:search",
                    "params:dense",
                    "store",
                    info="collection_info",
                ),
                ["evidence", "fused_judge"],
            ),
            node(
                judge_candidates,
                shared
                | by_name(
                    "evidence",
                    "store",
                    "params:elo",
                    info="collection_info",
                ),
                ["judgments", "cross_encoder", "llm_judge"],
            ),
        ],
    )
