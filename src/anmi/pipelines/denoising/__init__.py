"""The cross-encoder's judgment."""

from anmi.pipelines.denoising.pipeline import create_pipeline

__all__ = ["create_pipeline"]
