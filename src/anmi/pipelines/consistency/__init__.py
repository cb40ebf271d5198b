"""Which queries BM25 agrees with."""

from anmi.pipelines.consistency.pipeline import create_pipeline

__all__ = ["create_pipeline"]
