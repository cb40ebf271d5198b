"""From pointwise scores to pairwise preferences, and which pairs to compare."""

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

    def prefer(
        self,
        queries: Sequence[str],
        first: Sequence[str],
        second: Sequence[str],
    ) -> Floats:
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

    optimum = scipy.optimize.minimize_scalar(
        loss,
        bounds=(np.log(0.01), np.log(100.0)),
        method="bounded",
    )
    return scale * float(np.exp(optimum.x))


def preference(
    scores: Floats,
    first: Ints,
    second: Ints,
    temperature: float,
) -> Floats:
    """Return P(first ≻ second) from scores [Q, n], [Q, E]; NaN where a score is missing."""
    first_scores = np.take_along_axis(scores, first, axis=1)
    second_scores = np.take_along_axis(scores, second, axis=1)
    return scipy.special.expit((first_scores - second_scores) / temperature)


def pool(preferences: Sequence[Floats], weights: Sequence[float | Floats]) -> tuple[Floats, Floats]:
    """Return the weighted mean of J judges' preferences and the weight behind it, [Q, E] each.

    Parameters
    ----------
    preferences
        Of each judge, [Q, E]; NaN where it did not answer, which counts for neither side.
    weights
        Observations that a preference counts for: one number a judge, or [Q, E] each.

    Returns
    -------
    mean, votes
        NaN and 0 where no judge answered.

    Examples
    --------
    >>> pool([np.array([[1.0, np.nan]]), np.array([[0.5, np.nan]])], [1.0, 1.0])
    (array([[0.75,  nan]]), array([[2., 0.]]))
    """
    counted = [
        weight * np.isfinite(preference)
        for preference, weight in zip(preferences, weights, strict=True)
    ]
    votes = np.sum(counted, axis=0)
    total = np.sum(counted * np.nan_to_num(preferences), axis=0)
    with np.errstate(invalid="ignore"):
        return total / votes, votes


def fit_slope(preferences: Floats) -> float:
    """Fit the slope with which pooled preferences are as confident as they are right.

    The mean of several calibrated probabilities is underconfident (Ranjan and Gneiting,
    "Combining probability forecasts", 2010), which narrows every gap; see :func:`sharpen`.

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
    query_ids: Sequence[str],
    sizes: Ints,
    degree: int,
    seed: int,
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
    nodes = np.broadcast_to(np.arange(width, dtype=np.int32), (len(sizes), width))
    is_node = nodes < sizes[:, None]
    has_all_pairs = sizes <= degree
    last_node = np.maximum(sizes - 1, 1)[:, None]
    numbering = _shuffled(seeds.uniform(seed, "elo/nodes", query_ids, nodes), is_node)
    cycles = _shuffled(seeds.uniform(seed, "elo/cycles", query_ids, nodes), nodes < last_node // 2)
    position = np.arange(width)[None, :]
    successor = np.where(position + 1 < sizes[:, None], position + 1, 0)
    # 0, 1, −1, 2, −2, …: two neighbours sum to 0 or 1, so two cycles that start at different places
    # share no pair.
    zigzag = np.where(position % 2 == 0, position // 2, -(position // 2))
    edges = []
    for cycle in range(min(degree // 2, width)):
        rotated = (cycles[:, cycle : cycle + 1] + zigzag) % last_node
        path = np.where(position == 0, last_node, rotated)
        order = np.take_along_axis(numbering, np.minimum(path, width - 1), axis=1)
        next_node = np.take_along_axis(order, successor, axis=1)
        edges.append((order, next_node, is_node & ~has_all_pairs[:, None]))
    lower, upper = np.triu_indices(min(degree, width), 1)
    valid = has_all_pairs[:, None] & (upper < sizes[:, None])
    edges.append((np.broadcast_to(lower, valid.shape), np.broadcast_to(upper, valid.shape), valid))
    first, second, valid = (np.concatenate(arrays, axis=1) for arrays in zip(*edges, strict=True))
    return first.astype(np.int64), second.astype(np.int64), valid


def groups(
    first: Ints,
    second: Ints,
    present: Bools,
    width: int,
) -> Ints:
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
    >>> groups(np.array([[0, 2]]), np.array([[1, 3]]), np.array([[True, True]]), 5).tolist()
    [[0, 0, 1, 1, 2]]
    """
    offset = np.arange(len(first))[:, None] * width
    edges = ((offset + first)[present], (offset + second)[present])
    nodes = len(first) * width
    graph = scipy.sparse.coo_matrix((np.ones(len(edges[0]), np.int8), edges), (nodes, nodes))
    _, labels = scipy.sparse.csgraph.connected_components(graph, directed=False)
    return labels.reshape(len(first), width).astype(np.int64)


def touched(
    first: Ints,
    second: Ints,
    present: Bools,
    width: int,
) -> Bools:
    """Return which nodes take part in a comparison that was answered, bool [Q, n]."""
    is_touched = np.zeros((len(first), width), bool)
    rows, _ = np.nonzero(present)
    is_touched[rows, first[present]] = True
    is_touched[rows, second[present]] = True
    return is_touched


def _shuffled(draws: Floats, inside: Bools) -> Ints:
    """Indexes of each row in order of their draw, those not ``inside`` last."""
    return np.argsort(np.where(inside, draws, 2.0), axis=1)
