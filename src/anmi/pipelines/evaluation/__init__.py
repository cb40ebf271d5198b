"""Measuring the results."""

from anmi.pipelines.evaluation.pipeline import create_pipeline

__all__ = ["create_pipeline"]
