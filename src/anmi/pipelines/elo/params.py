"""Parameters of the Elo ratings."""

from __future__ import annotations

from anmi.judging.rating import RatingOptions


class EloParams(RatingOptions):
    """Judges, comparison graph and prior."""
