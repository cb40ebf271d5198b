"""Retraining that can be left alone: a challenger is trained, compared with the champion, and promoted by rule."""

from anmi.pipelines.retrain.pipeline import create_pipeline

__all__ = ["create_pipeline"]
