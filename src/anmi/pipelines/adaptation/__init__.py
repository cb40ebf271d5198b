"""Pseudo-queries: what the corpus itself teaches."""

from anmi.pipelines.adaptation.pipeline import create_pipeline

__all__ = ["create_pipeline"]
