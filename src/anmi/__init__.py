"""ANMI: hard and clean negatives for training retrievers."""

__version__ = "0.1.0"
