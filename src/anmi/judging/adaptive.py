"""Where further comparisons are worth their price: documents whose zone is in doubt."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi.judging.elo import Strengths, blocks

ZONE_BORDERS: Final = (100.0, 200.0, 400.0, 600.0)


def doubt(fitted: Strengths) -> NDArray[np.float64]:
    """Distance of each document's gap from the nearest zone border, in standard errors, [Q, n].

    Below z, the interval gap ± z·se straddles the border. NaN for the positive (node 0) and for unrated documents.
    The borders are those of the gap zones: 100, 200, 400 and 600 Elo (methods §2).
    """
    gap = fitted.elo[:, :1] - fitted.elo
    distance = np.abs(gap[:, :, None] - np.array(ZONE_BORDERS)).min(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        result: NDArray[np.float64] = np.where(fitted.gap_se > 0, distance / fitted.gap_se, np.nan)
    result[:, 0] = np.nan
    return result


def further_comparisons(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    asked: NDArray[np.bool_],
    fitted: Strengths,
    count: int,
    z: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Choose further comparisons for the documents whose gap's interval straddles a zone border.

    Those not yet compared with the positive are compared with it, the most doubtful first. After that every
    doubtful document is compared with the one nearest in strength that it has not met, then each with the next.

    Parameters
    ----------
    first, second, asked
        Comparisons made, [Q, E]; an unanswered one is not asked again.
    fitted
        The strengths so far.
    count
        Most new comparisons of a query.
    z
        Half width of the interval in standard errors.

    Returns
    -------
    first, second
        int64 [Q, count]; the first is the positive where it takes part.
    valid
        True where a comparison exists, bool [Q, count].
    """
    queries, width = fitted.elo.shape
    doubtful = doubt(fitted).round(6)
    pairs = np.triu_indices(width, 1)
    count = min(count, len(pairs[0]))
    chosen = np.zeros((queries, count), np.int64)
    valid = np.zeros((queries, count), bool)
    # Several arrays of this size are alive at once.
    for rows in blocks(queries, 4 * width * width):
        met = _met(first[rows], second[rows], asked[rows], width)
        order = _order(fitted.elo[rows], doubtful[rows], met, z)
        order = np.minimum(order, order.transpose(0, 2, 1))[:, pairs[0], pairs[1]]
        chosen[rows] = np.argsort(order, axis=1)[:, :count]
        valid[rows] = np.isfinite(np.take_along_axis(order, chosen[rows], axis=1))
    return pairs[0][chosen].astype(np.int64), pairs[1][chosen].astype(np.int64), valid


def _met(
    first: NDArray[np.int64], second: NDArray[np.int64], asked: NDArray[np.bool_], width: int
) -> NDArray[np.bool_]:
    """Return which pairs were compared, [Q, n, n]; nobody meets itself."""
    met = np.zeros((len(first), width, width), bool)
    row, place = np.nonzero(asked)
    a, b = first[row, place], second[row, place]
    met[row, a, b] = met[row, b, a] = True
    met[:, np.arange(width), np.arange(width)] = True
    return met


def _order(
    elo: NDArray[np.float64], doubtful: NDArray[np.float64], met: NDArray[np.bool_], z: float
) -> NDArray[np.float64]:
    """When document i asks to meet document j, [Q, n, n]: smaller is sooner, infinite is never."""
    width = elo.shape[1]
    asks = doubtful < z
    distance = np.abs(elo[:, :, None] - elo[:, None, :]).round(6)
    closed = met | ~asks[:, :, None] | np.isnan(distance)
    # Rounded, and ties by number: noise in the last digit must not choose, it differs with the size of a shard.
    nearness = np.argsort(np.argsort(np.where(closed, np.inf, distance), axis=2, kind="stable"), axis=2)
    turn = np.argsort(np.argsort(np.where(asks, doubtful, np.inf), axis=1, kind="stable"), axis=1) / (width + 1)
    order = nearness + turn[:, :, None]
    order[:, :, 0] = turn - 1.0
    return np.where(closed, np.inf, order)
