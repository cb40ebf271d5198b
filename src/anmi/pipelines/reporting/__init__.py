"""The report and the results."""

from anmi.pipelines.reporting.pipeline import create_pipeline

__all__ = ["create_pipeline"]
