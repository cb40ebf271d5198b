"""Measuring the mining on planted truth, before anything is trained."""

from anmi.pipelines.audit.pipeline import create_pipeline

__all__ = ["create_pipeline"]
