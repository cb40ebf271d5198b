"""Measuring the results."""
