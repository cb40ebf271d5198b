"""Negatives drawn in every step from several sources: random, graph, latent and edited."""
