"""From pointwise scores to pairwise preferences, and which pairs to compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit

from anmi import seeds
from anmi.errors import AnmiError

_MAX_REPAIRS: Final = 1000
_MAX_DIFFERENCES: Final = 200_000


def fit_temperature(positive: NDArray[np.float32], others: NDArray[np.float32]) -> float:
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
        T in score units, between 1/100 and 100 times the spread of the differences. The upper end means that the
        judge cannot tell positives from candidates, and every preference is then close to ½.

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
        raise AnmiError("no judged (positive, candidate) pair to fit a temperature on; judge more candidates")
    difference = difference[:: max(1, len(difference) // _MAX_DIFFERENCES)]
    scale = float(np.abs(difference).mean()) or 1.0

    def loss(log_temperature: float) -> float:
        return -float(log_expit(difference / (scale * np.exp(log_temperature))).mean())

    found = minimize_scalar(loss, bounds=(np.log(0.01), np.log(100.0)), method="bounded")
    return scale * float(np.exp(found.x))


def preference(
    scores: NDArray[np.float64], first: NDArray[np.int64], second: NDArray[np.int64], temperature: float
) -> NDArray[np.float64]:
    """P(first ≻ second) for each comparison, [Q, E], from scores [Q, n]; NaN where a score is missing."""
    a, b = (np.take_along_axis(scores, index, axis=1) for index in (first, second))
    result: NDArray[np.float64] = expit((a - b) / temperature)
    return result


def pool(votes: Sequence[NDArray[np.float64]], weights: Sequence[float]) -> NDArray[np.float64]:
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
    total = np.zeros(votes[0].shape)
    mass = np.zeros(votes[0].shape)
    for vote, weight in zip(votes, weights, strict=True):
        present = np.isfinite(vote)
        total += np.where(present, weight * vote, 0.0)
        mass += np.where(present, weight, 0.0)
    with np.errstate(invalid="ignore"):
        return np.where(mass > 0, total / mass, np.nan)


def comparisons(
    query_ids: Sequence[str], sizes: NDArray[np.int64], degree: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Choose which nodes of each query are compared: a union of degree/2 random Hamiltonian cycles.

    Connected, every node in exactly ``degree`` comparisons, none twice. A query with at most 3/2 · ``degree`` nodes
    gets all of its pairs instead: so few nodes leave hardly any room for disjoint cycles.

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
    """
    if degree < 2 or degree % 2:
        raise AnmiError(f"the comparison graph needs an even degree of at least 2, not {degree}")
    width = int(sizes.max(initial=1))
    queries = len(sizes)
    whole = sizes <= 3 * degree // 2
    adjacent = np.zeros((queries, width, width), bool)
    adjacent[:, np.arange(width), np.arange(width)] = True
    nodes = np.broadcast_to(np.arange(width, dtype=np.int32), (queries, width))
    parts = []
    place = np.arange(width)[None, :]
    inside = (place < sizes[:, None]) & ~whole[:, None]
    follower = np.where(place + 1 < sizes[:, None], place + 1, 0)
    for cycle in range(degree // 2):
        draws = seeds.uniform(seed, f"elo/cycle/{cycle}", query_ids, nodes)
        order = np.argsort(np.where(nodes < sizes[:, None], draws, 2.0), axis=1)
        order = _without_repeats(order, follower, inside, adjacent, query_ids, seed, cycle, sizes)
        following = np.take_along_axis(order, follower, axis=1)
        row = np.nonzero(inside)[0]
        adjacent[row, order[inside], following[inside]] = True
        adjacent[row, following[inside], order[inside]] = True
        parts.append((order, following, inside))
    pairs = np.triu_indices(min(3 * degree // 2, width), 1)
    every = np.broadcast_to(whole[:, None], (queries, len(pairs[0]))) & (pairs[1][None, :] < sizes[:, None])
    parts.append((np.broadcast_to(pairs[0], every.shape), np.broadcast_to(pairs[1], every.shape), every))
    first, second, valid = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    return first.astype(np.int64), second.astype(np.int64), valid


def _without_repeats(
    order: NDArray[np.int64],
    follower: NDArray[np.int64],
    inside: NDArray[np.bool_],
    adjacent: NDArray[np.bool_],
    query_ids: Sequence[str],
    seed: int,
    cycle: int,
    sizes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Swap nodes of a cycle, a repeated comparison at a time, until none of its comparisons was drawn before."""
    live = np.arange(len(order))
    for attempt in range(_MAX_REPAIRS):
        following = np.take_along_axis(order[live], follower[live], axis=1)
        repeated = adjacent[live[:, None], order[live], following] & inside[live]
        unsettled = repeated.any(axis=1)
        live, repeated = live[unsettled], repeated[unsettled]
        if len(live) == 0:
            return order
        ids = [query_ids[int(i)] for i in live]
        draw = seeds.uniform(seed, f"elo/repair/{cycle}/{attempt}", ids, np.zeros((len(live), 1), np.int32))[:, 0]
        here = repeated.argmax(axis=1)
        there = np.minimum((draw * sizes[live]).astype(np.int64), sizes[live] - 1)
        order[live, here], order[live, there] = order[live, there], order[live, here]
    raise AnmiError(
        f"no {2 * (cycle + 1)}-regular comparison graph was found for query {query_ids[live[0]]!r} "
        f"with {sizes[live[0]]} nodes; lower elo.degree"
    )
