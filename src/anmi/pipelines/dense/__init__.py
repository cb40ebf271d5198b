"""Dense index, and the merged block of candidates."""

from anmi.pipelines.dense.pipeline import create_pipeline

__all__ = ["create_pipeline"]
