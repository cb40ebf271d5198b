"""Choosing the negatives by a recipe."""

from anmi.pipelines.selection.pipeline import create_pipeline

__all__ = ["create_pipeline"]
