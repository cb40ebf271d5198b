"""Reading a collection into one schema."""

from anmi.pipelines.ingestion.pipeline import create_pipeline

__all__ = ["create_pipeline"]
