"""From pointwise scores to pairwise preferences, which pairs to compare, and all judges of them asked together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from anmi import seeds
from anmi.errors import AnmiError
from anmi.ragged import Bools, Float64s, Int64s

Floats = Float64s
Ints = Int64s
_MAX_DIFFERENCES: Final = 200_000


class PairwiseJudge(Protocol):
    """A judge that reads two documents side by side and says which one answers the query better."""

    def prefer(self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Floats:
        """Return P(first ≻ second) for n comparisons.

        Parameters
        ----------
        queries, first, second
            Texts of the query and of the two documents, n each.

        Returns
        -------
        numpy.ndarray
            [n] in [0, 1]; ½ for a tie, NaN where the judge failed – missing, never a win for either
            side.
        """


def fit_temperature(positive: NDArray[Any], others: NDArray[Any]) -> float:
    """Fit T of P(i ≻ j) = σ((sᵢ − sⱼ)/T) by maximum likelihood on labelled (positive, other) pairs.

    Parameters
    ----------
    positive
        Score of each row's positive, [Q].
    others
        Scores of the row's candidates, [Q, M]; NaN is ignored.

    Returns
    -------
    float
        T in score units, between 1/100 and 100 times the spread of the differences. The upper end
        means that the judge cannot tell positives from candidates, and every preference is then
        close to ½.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> d = rng.logistic(size=20_000) * 0.2 + 0.3
    >>> 0.05 < fit_temperature(d, np.zeros((20_000, 1))) < 0.5
    True
    """
    difference = (positive[:, None] - others).astype(np.float64)
    difference = difference[np.isfinite(difference)]
    if len(difference) == 0:
        raise AnmiError(
            "no judged (positive, candidate) pair to fit a temperature on; judge more candidates"
        )
    difference = difference[:: max(1, len(difference) // _MAX_DIFFERENCES)]
    scale = float(np.abs(difference).mean()) or 1.0

    def loss(log_temperature: float) -> float:
        return -float(
            scipy.special.log_expit(difference / (scale * np.exp(log_temperature))).mean()
        )

    found = scipy.optimize.minimize_scalar(
        loss, bounds=(np.log(0.01), np.log(100.0)), method="bounded"
    )
    return scale * float(np.exp(found.x))


def preference(scores: Floats, first: Ints, second: Ints, temperature: float) -> Floats:
    """P(first ≻ second) for each comparison, [Q, E], from scores [Q, n]; NaN where a score is missing."""
    a, b = (np.take_along_axis(scores, index, axis=1) for index in (first, second))
    return scipy.special.expit((a - b) / temperature)


def pool(votes: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """Weighted mean of the judges' preferences, each [Q, E]; a missing vote counts for neither side.

    Returns
    -------
    numpy.ndarray
        [Q, E]; NaN where every judge is missing.

    Examples
    --------
    >>> pool([np.array([[1.0, np.nan]]), np.array([[0.5, np.nan]])], [1.0, 1.0]).tolist()
    [[0.75, nan]]
    """
    weight = np.where(np.isfinite(votes), np.array(weights).reshape(-1, *[1] * votes[0].ndim), 0.0)
    mass = weight.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(mass > 0, (weight * np.nan_to_num(votes)).sum(axis=0) / mass, np.nan)


def fit_slope(preferences: Floats) -> float:
    """Fit the slope that makes pooled preferences as confident as they are right, by maximum likelihood.

    The mean of several calibrated probabilities is underconfident (Ranjan & Gneiting, "Combining
    probability forecasts", 2010), which narrows every gap; see :func:`sharpen`.

    Parameters
    ----------
    preferences
        P(positive ≻ other) of labelled pairs, [Q, M]; NaN is ignored.
    """
    odds = scipy.special.logit(np.clip(preferences, 1e-9, 1 - 1e-9))
    return 1.0 / fit_temperature(np.zeros(len(odds)), -odds)


def sharpen(preferences: Floats, slope: float) -> Floats:
    """Return σ(slope · logit(preference)): ½ stays, 0 and 1 stay, NaN stays.

    Examples
    --------
    >>> sharpen(np.array([0.0, 0.5, 0.8, 1.0]), 2.0).round(3).tolist()
    [0.0, 0.5, 0.941, 1.0]
    """
    return scipy.special.expit(slope * scipy.special.logit(preferences))


def comparisons(
    query_ids: Sequence[str], sizes: Ints, degree: int, seed: int
) -> tuple[Ints, Ints, Bools]:
    """Choose which nodes of each query are compared: a union of degree/2 random Hamiltonian cycles.

    Connected, every node in exactly ``degree`` comparisons, none twice. A query with at most
    ``degree`` nodes gets all of its pairs instead. Walecki's construction splits the complete graph
    into Hamiltonian cycles that share no pair (Alspach, "The wonderful Walecki construction",
    2008); random ones of them are taken, over randomly numbered nodes, so there is nothing to
    repair however few the nodes.

    Parameters
    ----------
    query_ids
        Q identifiers, keys of the random streams.
    sizes
        Number of nodes of each query, int [Q].
    degree
        Even, at least 2.
    seed
        Of the run.

    Returns
    -------
    first, second
        Node indexes, int64 [Q, E].
    valid
        True where a comparison exists, bool [Q, E].

    Examples
    --------
    >>> first, second, valid = comparisons(["q"], np.array([5]), 2, seed=0)
    >>> np.bincount(np.concatenate([first[valid], second[valid]])).tolist()
    [2, 2, 2, 2, 2]
    """
    width = int(sizes.max(initial=1))
    last = np.maximum(sizes - 1, 1)[:, None]
    whole = sizes <= degree
    nodes = np.broadcast_to(np.arange(width, dtype=np.int32), (len(sizes), width))
    number = _shuffled(seeds.uniform(seed, "elo/nodes", query_ids, nodes), nodes < sizes[:, None])
    cycles = _shuffled(seeds.uniform(seed, "elo/cycles", query_ids, nodes), nodes < last // 2)
    place = np.arange(width)[None, :]
    inside = (place < sizes[:, None]) & ~whole[:, None]
    follower = np.where(place + 1 < sizes[:, None], place + 1, 0)
    # 0, 1, −1, 2, −2, …: two neighbours sum to 0 or 1, so two cycles that start at different places
    # share no pair.
    zigzag = np.where(place % 2 == 0, place // 2, -(place // 2))
    parts = []
    for cycle in range(min(degree // 2, width)):
        around = np.where(place == 0, last, (cycles[:, cycle : cycle + 1] + zigzag) % last)
        order = np.take_along_axis(number, np.minimum(around, width - 1), axis=1)
        parts.append((order, np.take_along_axis(order, follower, axis=1), inside))
    pairs = np.triu_indices(min(degree, width), 1)
    every = np.broadcast_to(whole[:, None], (len(sizes), len(pairs[0]))) & (
        pairs[1][None, :] < sizes[:, None]
    )
    parts.append(
        (np.broadcast_to(pairs[0], every.shape), np.broadcast_to(pairs[1], every.shape), every)
    )
    first, second, valid = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    return first.astype(np.int64), second.astype(np.int64), valid


def groups(first: Ints, second: Ints, present: Bools, width: int) -> Ints:
    """Number the connected groups of nodes of every comparison graph at once.

    Parameters
    ----------
    first, second
        Compared nodes, [Q, E].
    present
        True where a comparison was answered, [Q, E].
    width
        Nodes per query, n.

    Returns
    -------
    numpy.ndarray
        int64 [Q, n]; two nodes of a row bear the same number if a chain of comparisons joins them.

    Examples
    --------
    >>> found = groups(np.array([[0, 2]]), np.array([[1, 3]]), np.array([[True, True]]), 5)[0]
    >>> bool(found[0] == found[1] and found[2] == found[3]), len(set(found.tolist()))
    (True, 3)
    """
    start = np.arange(len(first))[:, None] * width
    ends = ((start + first)[present], (start + second)[present])
    shape = (len(first) * width, len(first) * width)
    labels = scipy.sparse.csgraph.connected_components(
        scipy.sparse.coo_matrix((np.ones(len(ends[0]), np.int8), ends), shape), directed=False
    )[1]
    return labels.reshape(len(first), width).astype(np.int64)


def touched(first: Ints, second: Ints, present: Bools, width: int) -> Bools:
    """Return which nodes take part in a comparison that was answered, bool [Q, n]."""
    result = np.zeros((len(first), width), bool)
    row, place = np.nonzero(present)
    result[row, first[row, place]] = True
    result[row, second[row, place]] = True
    return result


def _shuffled(draws: Floats, inside: Bools) -> Ints:
    """Indexes of each row in order of their draw, those not ``inside`` last."""
    return np.argsort(np.where(inside, draws, 2.0), axis=1)
