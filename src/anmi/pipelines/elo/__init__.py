"""Elo ratings with errors."""

from anmi.pipelines.elo.pipeline import create_pipeline

__all__ = ["create_pipeline"]
