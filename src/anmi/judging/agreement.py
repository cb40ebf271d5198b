"""How many independent observations a pooled preference of pointwise judges is worth.

A judge that scores single documents errs about a document, and the error returns in each of its comparisons: however
many comparisons are drawn from the same scores, they hold no more than the scores do. The number of comparisons, which
sets the errors of independent votes, then says nothing about the errors of such strengths. What does is how far the
judges disagree: the strengths move when a judge is heard more, and those moves, taken per judge over all of its
comparisons, give their variance (the sandwich of a cluster-robust estimate, Liang & Zeger 1986). That variance,
against the one that the model claims at one observation per comparison, is the number sought.

Gaps from calibrated preferences are shrunken towards zero, so the truth lies around them more widely than they scatter
around it: the variance is divided by their reliability, the share of their mean square that is not error (Kelley's
standard error of estimation).

Agreement cannot show what the judges have wrong together. ``common`` is what is assumed of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.judging import elo
from anmi.judging.preferences import sharpen, touched

_LEAST_RELIABILITY: Final = 0.05


@dataclass
class Agreement:
    """Sums over queries, from which the number of votes follows.

    Attributes
    ----------
    weights
        Of the judges, [J].
    gap, claimed
        Variance of the gaps to the positive by the judges' disagreement, and as the model claims it at one vote.
    square
        Squares of the gaps.
    """

    weights: Sequence[float]
    gap: float = 0.0
    claimed: float = 0.0
    square: float = 0.0

    @property
    def judges(self) -> float:
        """Effective number of judges, (Σw)²/Σw²."""
        return float(sum(self.weights) ** 2 / sum(w**2 for w in self.weights))

    def add(
        self,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        judged: Sequence[NDArray[np.float64]],
        pooled: NDArray[np.float64],
        slope: float,
        fitted: elo.Strengths,
        prior_precision: float,
    ) -> None:
        """Add a block of queries.

        Parameters
        ----------
        first, second
            Compared nodes, [Q, E].
        judged
            Preferences of each judge, J arrays [Q, E]; NaN where missing.
        pooled
            Their weighted mean, before it was sharpened by ``slope``, [Q, E].
        slope
            Of :func:`~anmi.judging.preferences.sharpen`.
        fitted
            The strengths at one vote per comparison.
        prior_precision
            That they were fitted with.
        """
        if self.judges <= 1:
            return
        width = fitted.elo.shape[1]
        for rows in elo.blocks(len(first), width * width):
            known = np.isfinite(pooled[rows])
            mass = sum((w * np.isfinite(j[rows]) for w, j in zip(self.weights, judged, strict=True)), np.zeros(()))
            problem = elo.Problem(first[rows], second[rows], pooled[rows], known * 1.0, width, prior_precision)
            strengths = np.nan_to_num((fitted.elo[rows] - elo.ELO_MEAN) / elo.ELO_SCALE)
            push = _push(problem, strengths, slope) / np.maximum(mass, 1e-12)
            slopes = [
                problem.spread(np.where(known & np.isfinite(j[rows]), w * (j[rows] - pooled[rows]) * push, 0.0))
                for w, j in zip(self.weights, judged, strict=True)
            ]
            moves = np.linalg.solve(problem.information(strengths), np.stack(slopes, axis=2))
            inside = touched(first[rows], second[rows], known, width)
            gap_se = fitted.gap_se[rows].astype(np.float64) / elo.ELO_SCALE
            self._sum(moves, strengths, gap_se, inside)

    def _sum(
        self,
        moves: NDArray[Any],
        strengths: NDArray[np.float64],
        gap_se: NDArray[np.float64],
        inside: NDArray[np.bool_],
    ) -> None:
        share = np.array(self.weights) / sum(self.weights)
        squares = (share**2).sum()
        # Of J judges, the moves scatter around their own mean: for equal weights the usual J/(J − 1).
        factor = squares / (share**2 * (1 - 2 * share + squares)).sum()
        # Gaps count where the positive (node 0) was compared too.
        others = inside & inside[:, :1] & (np.arange(inside.shape[1]) > 0)
        self.gap += float(factor * ((moves[:, :1] - moves)[others] ** 2).sum())
        self.claimed += float((gap_se[others] ** 2).sum())
        self.square += float(((strengths[:, :1] - strengths)[others] ** 2).sum())

    def votes(self, common: float) -> float:
        """Return the number of independent observations that a comparison of all judges counts for.

        Parameters
        ----------
        common
            Share of a judge's error variance taken to be common to all judges, in [0, 1).

        Returns
        -------
        float
            1 where judges cannot disagree (a single one), at most 100: copies of one judge know no more than it does.
        """
        if self.judges <= 1 or self.gap <= 0 or self.claimed <= 0:
            return 1.0
        widened = (1 + (self.judges - 1) * common) / (1 - common)
        reliability = max(1 - widened * self.gap / max(self.square, 1e-12), _LEAST_RELIABILITY)
        return min(reliability * self.claimed / (widened * self.gap), 100.0)


def _push(problem: elo.Problem, strengths: NDArray[np.float64], slope: float) -> NDArray[np.float64]:
    """Change of each comparison's gradient by its pooled preference, [Q, E]."""
    z = problem.z(strengths)
    sharp = sharpen(problem.share, slope)
    steep = slope * sharp * (1 - sharp) / np.maximum(problem.share * (1 - problem.share), 1e-12)
    return steep * (elo.hazard(z) + elo.hazard(-z)) / np.sqrt(2.0)
