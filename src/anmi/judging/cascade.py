"""Two judges one after the other: the small one judges every pair, the larger one those that could go either way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from anmi.fingerprint import digest
from anmi.judging.calibration import Platt
from anmi.judging.pointwise import PointwiseJudge
from anmi.store import Store


class Cascade:
    """A pointwise judge made of two; its score is the log-odds of relevance by whichever of them decided.

    Parameters
    ----------
    small
        Judges every pair.
    calibration
        Of the small judge.
    large
        Judges the pairs whose probability by the small judge is within ``band`` of ``threshold``.
    threshold, band
        Probabilities.

    Attributes
    ----------
    confirmation
        Calibration of the large judge among the pairs that reach it; while None the small judge decides everything.
    seen, confirmed
        Number of pairs scored so far, and of those that the large judge decided.
    """

    def __init__(
        self, small: PointwiseJudge, calibration: Platt, large: PointwiseJudge, threshold: float, band: float
    ) -> None:
        self.small, self.calibration, self.large = small, calibration, large
        self.threshold, self.band = threshold, band
        self.confirmation: Platt | None = None
        self.seen = self.confirmed = 0

    @property
    def fingerprint(self) -> str:
        """A hash of both judges, their calibrations and the band."""
        parts = (self.calibration, self.confirmation, self.threshold, self.band)
        return digest("cascade", self.small.fingerprint, self.large.fingerprint, repr(parts)).hex()

    def confirm(self, pairs: Sequence[str], store: Store, bar: tqdm[Any] | None = None) -> NDArray[np.float32]:
        """Return the large judge's raw scores, float32 [n]; NaN where the small judge is sure of itself."""
        return self._near(pairs, self.small.score(pairs, store, bar), store)

    def _near(self, pairs: Sequence[str], raw: NDArray[np.float32], store: Store) -> NDArray[np.float32]:
        near = np.nonzero(np.abs(self.calibration(raw) - self.threshold) <= self.band)[0].tolist()
        result = np.full(len(pairs), np.nan, np.float32)
        result[near] = self.large.score([pairs[place] for place in near], store)
        return result

    def score(self, pairs: Sequence[str], store: Store, bar: tqdm[Any] | None = None) -> NDArray[np.float32]:
        """Return the log-odds of relevance, float32 [n]."""
        raw = self.small.score(pairs, store, bar)
        result = _log_odds(self.calibration, raw)
        self.seen += len(pairs)
        if self.confirmation is not None:
            second = self._near(pairs, raw, store)
            decided = np.isfinite(second)
            result[decided] = _log_odds(self.confirmation, second[decided])
            self.confirmed += int(decided.sum())
        return result

    def describe(self) -> dict[str, Any]:
        """Return both judges and how the second was calibrated."""
        confirmation = None if self.confirmation is None else asdict(self.confirmation)
        return {
            "fingerprint": self.fingerprint,
            "small": self.small.describe() | {"calibration": asdict(self.calibration)},
            "confirm": self.large.describe() | {"calibration": confirmation},
        }


def _log_odds(calibration: Platt, raw: NDArray[np.float32]) -> NDArray[np.float32]:
    """Platt scaling before its sigmoid, which would round sure pairs to 0 and 1."""
    return (calibration.slope * raw.astype(np.float64) + calibration.intercept).astype(np.float32)
