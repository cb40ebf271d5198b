"""Judging candidates: cross-encoders, calibration, preferences and Elo."""
