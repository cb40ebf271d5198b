"""Negatives drawn in every step from several sources: random, graph, latent and edited."""

from anmi.training.mixed.latent import Stock, neighbour_table
from anmi.training.mixed.sampler import DNHSampler, Observed

__all__ = ["DNHSampler", "Observed", "Stock", "neighbour_table"]
