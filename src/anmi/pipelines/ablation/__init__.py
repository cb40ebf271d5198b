"""Recipes × seeds × collections, and what the differences between recipes are worth."""

from anmi.pipelines.ablation.pipeline import create_pipeline

__all__ = ["create_pipeline"]
