"""Elo ratings with errors."""
