"""Lexical index and candidates."""

from anmi.pipelines.bm25.pipeline import create_pipeline

__all__ = ["create_pipeline"]
