"""Negatives drawn in every step from several sources: random, graph, latent and edited."""

from anmi.training.mixed.sampler import MixedSampler
from anmi.training.mixed.stock import Stock

__all__ = ["MixedSampler", "Stock"]
