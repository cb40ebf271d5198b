"""Which share of chosen documents a judge expects to be relevant, and between what bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.ragged import Float64s

# By how much the odds may be wrong as a whole: on collections whose truth had no part in the
# coefficients a judge was up to sixteen times too cautious, and 2.6 times too bold
# (benchmarks/calibration.py).
_FACTORS: Final = np.array([1 / 20, 1.0, 3.0])
_NORMAL: Final = 1.96


@dataclass
class ExpectedShare:
    """Adds up the probabilities of chosen documents, one block after the other.

    The lower bound is that of a 95 % interval were the odds a twentieth, the upper one were they
    three times as large. It allows for chance (documents of probabilities p are relevant or not, Σ
    p(1−p)) and for queries being different: the variance of a ratio over queries (Cochran 1977,
    §6.4). Documents of one query that are relevant together beyond what their probabilities say
    make it too narrow.

    Examples
    --------
    >>> expected = ExpectedShare()
    >>> expected.add(np.full((500, 15), 0.02), np.arange(500))
    >>> [round(100 * share, 1) for share in (expected.share, *expected.interval)]
    [2.0, 0.0, 6.3]
    """

    documents: int = 0
    _chance: Float64s = field(default_factory=lambda: np.zeros(3))
    # Of each query, how many documents and the sum of their probabilities by each factor.
    _queries: list[Float64s] = field(default_factory=lambda: [np.zeros((0, 4))])

    def add(self, probabilities: NDArray[Any], queries: NDArray[Any]) -> None:
        """Count chosen documents.

        Parameters
        ----------
        probabilities
            Of relevance, [R, n]; NaN where no document was chosen, or none was judged.
        queries
            Query of each row, [R]; the rows of a query come in one call.
        """
        is_known = np.isfinite(probabilities)
        rows, _ = np.nonzero(is_known)
        chance = np.asarray(probabilities, np.float64)[is_known][:, None]
        scaled = _FACTORS * chance / (1 - chance + _FACTORS * chance)
        query_ids, query = np.unique(queries, return_inverse=True)
        sums = [
            np.bincount(query[rows], weights, len(query_ids))
            for weights in (np.ones(len(rows)), *scaled.T)
        ]
        self.documents += len(rows)
        self._chance += (scaled * (1 - scaled)).sum(axis=0)
        self._queries.append(np.stack(sums, axis=1))

    @property
    def share(self) -> float:
        """Mean probability of the documents; NaN of none."""
        total = sum(float(sums[:, 2].sum()) for sums in self._queries)
        return total / self.documents if self.documents else np.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper bound of the share, in [0, 1]; all of it where nothing was chosen."""
        if not self.documents:
            return 0.0, 1.0
        count, sums = np.split(np.concatenate(self._queries), [1], axis=1)
        shares = sums.sum(axis=0) / self.documents
        queries = int((count > 0).sum())
        between = ((sums - shares * count) ** 2).sum(axis=0) * queries / max(queries - 1, 1)
        half = _NORMAL * np.sqrt(between + self._chance) / self.documents
        return max(float(shares[0] - half[0]), 0.0), min(float(shares[2] + half[2]), 1.0)


def share_sentence(share: float, low: float, high: float) -> str:
    """Say a share with its bounds in per cent.

    Examples
    --------
    >>> share_sentence(0.018, 0.009, 0.0312)
    '1.8 % (0.9 to 3.1)'
    """
    # Two digits, of small shares two decimals.
    percent, lowest, highest = (
        f"{100 * value:{'.2g' if value >= 0.001 or not value else '.2f'}}"
        for value in (share, low, high)
    )
    return f"{percent} % ({lowest} to {highest})"
