"""Histograms over fixed edges, and shares, that know how much noise there is in them.

Values of one query (its negatives, for example) are alike, so a thousand negatives of a hundred queries say less than
a thousand independent values. Each distribution therefore carries the number of independent values that would be as
noisy: the first-order correction of Rao and Scott (1984), with the second-order one beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

# Bins into which the fine ones are merged for a comparison: deciles are what thresholds of the population stability
# index were made for.
BINS: Final = 10
# Fewest values that a merged bin is expected to hold; below it a chi-square distribution describes counts badly.
LEAST_EXPECTED: Final = 5.0


class Tally:
    """The histogram of a measurement, filled block by block.

    Parameters
    ----------
    edges
        F - 1 inner edges, ascending; the first bin is open below, the last one above.

    Examples
    --------
    >>> tally = Tally([0.0, 1.0])
    >>> tally.add(np.array([0.5, 0.5, 2.0]))
    >>> found = tally.as_dict()
    >>> found["counts"], found["mean"], found["effective"]
    ([0, 2, 1], 1.0, 3.0)
    """

    def __init__(self, edges: Any) -> None:
        self._edges = np.asarray(edges, np.float64)
        width = len(self._edges) + 1
        # Sums over units of the products of their counts; the counts of a unit are its row.
        self._products = np.zeros((width, width))
        self._by_size = np.zeros(width)
        self._counts = np.zeros(width, np.int64)
        self._squared_sizes = self._squared_sums = self._sums_by_size = 0.0
        self._sum = self._squares = 0.0
        self._units = 0

    def add(self, values: NDArray[Any], units: NDArray[Any] | None = None) -> None:
        """Count values.

        Parameters
        ----------
        values
            [n]; those that are not finite are left out.
        units
            What each value belongs to, [n], such as the row of its query; all values of a unit come in one call.
            Without units every value is one of its own.
        """
        kept = np.isfinite(values)
        known = np.asarray(values, np.float64)[kept]
        if not len(known):
            return
        whole = np.arange(len(known)) if units is None else np.asarray(units)[kept]
        place = np.unique(whole, return_inverse=True)[1]
        number = int(place.max()) + 1
        codes = np.searchsorted(self._edges, known, side="right")
        width = len(self._counts)
        rows = coo_array((np.ones(len(known)), (place, codes)), shape=(number, width)).tocsr()
        sizes = np.bincount(place, minlength=number).astype(np.float64)
        sums = np.bincount(place, weights=known, minlength=number)
        self._products += (rows.T @ rows).toarray()
        self._by_size += rows.T @ sizes
        self._counts += np.bincount(codes, minlength=width)
        self._squared_sizes += float(sizes @ sizes)
        self._squared_sums += float(sums @ sums)
        self._sums_by_size += float(sums @ sizes)
        self._sum += float(known.sum())
        self._squares += float(known @ known)
        self._units += number

    def as_dict(self) -> dict[str, Any]:
        """Return the distribution as plain numbers; empty without values.

        Returns
        -------
        dict
            ``edges`` (F - 1), ``counts`` (F), ``count``, ``units``; ``effective``: independent values that would be as
            noisy, at most ``count``; ``spread``: at least 1, by how much the degrees of freedom of a test shrink;
            ``mean``, ``std`` and ``error``, the standard error of the mean over units.
        """
        total = int(self._counts.sum())
        if not total:
            return {}
        mean = self._sum / total
        residual = self._squared_sums - 2 * mean * self._sums_by_size + mean**2 * self._squared_sizes
        effective, spread = self._noise(total)
        return {
            "edges": self._edges.tolist(),
            "counts": self._counts.tolist(),
            "count": total,
            "units": self._units,
            "effective": effective,
            "spread": spread,
            "mean": mean,
            "std": float(np.sqrt(max(self._squares / total - mean**2, 0.0))),
            "error": float(np.sqrt(max(residual, 0.0)) / total),
        }

    def _noise(self, total: int) -> tuple[float, float]:
        """Return the effective number of values and the spread, both from the covariance of the shares of bins."""
        starts = merge_starts(self._counts / total, BINS, LEAST_EXPECTED / self._units)
        if len(starts) < 2:
            return float(min(total, self._units)), 1.0
        shares = np.add.reduceat(self._counts / total, starts)
        by_size = np.add.reduceat(self._by_size, starts)
        products = np.add.reduceat(np.add.reduceat(self._products, starts, axis=0), starts, axis=1)
        cross = np.outer(shares, by_size)
        covariance = (products - cross - cross.T + np.outer(shares, shares) * self._squared_sizes) / total**2
        # The eigenvalues of this are the design effects over n; without clusters each is 1 / n.
        scaled = covariance / np.sqrt(np.outer(shares, shares))
        trace, squared = float(np.trace(scaled)), float((scaled**2).sum())
        free = len(starts) - 1
        if trace <= free / total:
            return float(total), 1.0
        return free / trace, max(1.0, squared * free / trace**2)


class Shares:
    """Shares of several things among the same total, filled block by block.

    Examples
    --------
    >>> shares = Shares()
    >>> shares.add({"odd": np.array([1, 0, 1, 0])}, np.ones(4))
    >>> found = shares.as_dict()["odd"]
    >>> found["share"], found["count"], round(found["effective"], 6)
    (0.5, 4, 4.0)
    """

    def __init__(self) -> None:
        self._hits: dict[str, NDArray[np.float64]] = {}
        self._size = self._squared_sizes = 0.0
        self._units = 0

    def add(self, hits: Mapping[str, NDArray[Any]], sizes: NDArray[Any]) -> None:
        """Count ``hits`` by name among ``sizes``, both [units]; a name that is missing has none."""
        total = np.asarray(sizes, np.float64)
        self._size += float(total.sum())
        self._squared_sizes += float(total @ total)
        self._units += int((total > 0).sum())
        for name, found in hits.items():
            x = np.asarray(found, np.float64)
            sums = np.array([x.sum(), x @ x, x @ total])
            self._hits[name] = self._hits.get(name, np.zeros(3)) + sums

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return by name ``share``, ``count`` (of the total), ``units`` and ``effective``; see :class:`Tally`."""
        if not self._size:
            return {}
        return {name: self._entry(*sums.tolist()) for name, sums in self._hits.items()}

    def _entry(self, hits: float, squares: float, by_size: float) -> dict[str, Any]:
        share = hits / self._size
        variance = (squares - 2 * share * by_size + share**2 * self._squared_sizes) / self._size**2
        independent = share * (1 - share) / self._size
        # Where nothing or all was hit, units that are all alike are the careful assumption.
        effective = (
            float(self._units) if independent <= 0 else self._size * min(1.0, independent / max(variance, 1e-300))
        )
        return {"share": share, "count": int(self._size), "units": self._units, "effective": effective}


def merge_starts(shares: NDArray[np.float64], most: int, least: float) -> NDArray[np.int64]:
    """Return where merged bins start, so that they hold about equal shares.

    Parameters
    ----------
    shares
        Of the fine bins, [F], adding up to 1.
    most
        Bins at most.
    least
        Share that each is to hold at least; a smaller one joins its neighbour.

    Returns
    -------
    numpy.ndarray
        Indexes for :func:`numpy.add.reduceat`, the first of them 0.

    Examples
    --------
    >>> merge_starts(np.array([0.25, 0.25, 0.0, 0.25, 0.25]), 2, 0.0).tolist()
    [0, 2]
    """
    cumulated = np.cumsum(shares)
    # A rounding must not move a border.
    cuts = np.searchsorted(cumulated, np.arange(1, most) / most - 1e-9) + 1
    starts = np.unique(np.concatenate([[0], cuts[cuts < len(shares)]]))
    while len(starts) > 1:
        held = np.add.reduceat(shares, starts)
        smallest = int(held.argmin())
        if held[smallest] >= max(least, 1e-12):
            break
        starts = np.delete(starts, max(smallest, 1))
    return starts.astype(np.int64)


def _geometric(low: float, high: float, per_octave: int) -> NDArray[np.float64]:
    steps = round(np.log2(high / low) * per_octave)
    return low * 2.0 ** (np.arange(steps + 1) / per_octave)


def _signed(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([-edges[::-1], [0.0], edges])


_LENGTHS: Final = np.unique(np.round(_geometric(1, 2**17, 6)))
_BM25: Final = _geometric(0.25, 512, 8)
# Judges are sure of most candidates, so that what moves lies near 0 and 1.
_PROBABILITY: Final = 1 / (1 + np.exp(-np.arange(-8, 8.05, 0.1)))
_UNIT: Final = np.round(np.arange(-0.99, 1.0, 0.01), 2)
_ELO: Final = np.arange(-400.0, 2801.0, 20.0)
# Edges are the same for every collection, or no two profiles could be compared; they are fine where most values lie,
# and a comparison merges them.
EDGES: Final[dict[str, NDArray[np.float64]]] = {
    "length": _LENGTHS,
    "positives": np.unique(np.concatenate([np.arange(1.0, 21), np.round(_geometric(20, 2000, 3))])),
    "hardness": np.round(np.arange(0.01, 1.0, 0.01), 2),
    "bm25": _BM25,
    "dense": _UNIT,
    "p_evidence": _PROBABILITY,
    "p_relevant": _PROBABILITY,
    "elo": _ELO,
    "gap_bm25": _signed(_geometric(0.25, 512, 4)),
    "gap_dense": _UNIT,
    "gap_p_evidence": _UNIT,
    "gap_p_relevant": _UNIT,
    "gap_elo": np.arange(-1200.0, 1201.0, 20.0),
}
