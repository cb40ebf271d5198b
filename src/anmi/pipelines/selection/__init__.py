"""Choosing the negatives by a recipe."""
