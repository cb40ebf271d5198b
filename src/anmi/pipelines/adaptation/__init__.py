"""Pseudo-queries: what the corpus itself teaches."""
