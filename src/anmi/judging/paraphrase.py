"""Elo as it is usually paraphrased, and as zELO publishes it: gradient ascent without a prior, for comparison.

Both stop after a fixed schedule and say nothing about their errors. Without a prior a document that wins all of its
comparisons has no finite strength: what is reported is how far the schedule happened to carry it. What to use is
:mod:`anmi.judging.elo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from anmi.judging.elo import CASE_V, ELO_MEAN, ELO_SCALE, Problem, Strengths, check
from anmi.judging.preferences import touched

STEPS: Final = {"paraphrase": 50, "zelo": 1000}
# zELO's released code stops when the loss of a query changes by less than this.
_LOSS_CHANGE: Final = 1e-4


def fit(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    preference: NDArray[np.float64],
    sizes: NDArray[np.int64],
    variant: Literal["paraphrase", "zelo"],
    steps: int | None = None,
    query_ids: Sequence[str] | None = None,
    deviation: float = CASE_V,
) -> Strengths:
    """Fit the strengths of all queries by gradient ascent.

    ``paraphrase``: P = Φ((eᵢ − eⱼ)/s), 50 steps of size 1/(1 + 0.1·t) along the gradient (methods §2).
    ``zelo``: P = ½(1 + erf(eᵢ − eⱼ)), steps of size t^−0.125, Σe = 0 (arXiv 2509.12541), until the loss changes by
    less than 1e-4 or for 1,000 steps. Its e is half of Thurstone's, so its Elo gaps are half as wide. The gradient is
    averaged over a document's comparisons, which is ours: steps of that size along the sum overshoot for ever.

    Parameters
    ----------
    first, second, preference, sizes, query_ids
        As in :func:`anmi.judging.elo.fit`.
    variant
        Which of the two.
    steps
        Most steps; None for the variant's own.
    deviation
        s of ``paraphrase``: √2 in Thurstone's case V, 1 in the ANMI 2.0 report. ``zelo`` has its own.

    Returns
    -------
    Strengths
        With NaN for all errors, as the variants have none.

    Raises
    ------
    AnmiError
        A preference outside [0, 1], or comparisons that do not join the documents.
    """
    mass = check(first, second, preference, sizes, 1.0, query_ids)
    width = int(sizes.max(initial=1))
    problem = Problem(first, second, np.where(mass > 0, preference, 0.5), mass, width, 0.0)
    limit = STEPS[variant] if steps is None else steps
    strengths, taken = _paraphrase(problem, limit, deviation) if variant == "paraphrase" else _zelo(problem, limit)
    inside = np.arange(width)[None, :] < sizes[:, None]
    voted = touched(first, second, mass > 0, width)
    mean = (strengths * voted).sum(axis=1, keepdims=True) / np.maximum(voted.sum(axis=1, keepdims=True), 1)
    unknown = np.full(strengths.shape, np.nan)
    return Strengths(np.where(inside, ELO_MEAN + ELO_SCALE * (strengths - mean), np.nan), unknown, unknown, taken)


def _paraphrase(problem: Problem, steps: int, deviation: float) -> tuple[NDArray[np.float64], int]:
    strengths = np.zeros((len(problem.share), problem.width))
    # Φ(d/s) is case V in strengths of √2/s times the size, whose gradient is as much steeper.
    stretch = CASE_V / deviation
    for step in range(steps):
        strengths += stretch * problem.gradient(stretch * strengths) / (1 + 0.1 * step)
    return strengths, steps


def _zelo(problem: Problem, steps: int) -> tuple[NDArray[np.float64], int]:
    queries = len(problem.share)
    strengths = np.zeros((queries, problem.width))
    ends = np.zeros((queries, problem.width))
    for index in (problem.first, problem.second):
        np.add.at(ends, (np.arange(queries)[:, None], index), problem.mass)
    live, last = np.arange(queries), np.full(queries, -np.inf)
    for step in range(1, steps + 1):
        part = problem.take(live)
        # ½(1 + erf(x)) = Φ(√2·x): Thurstone's model in strengths of twice the size, whose gradient is twice as steep.
        slope = 2 * part.gradient(2 * strengths[live]) / np.maximum(ends[live], 1)
        strengths[live] += slope * step**-0.125
        value = part.objective(2 * strengths[live])
        open_ = np.abs(value - last[live]) >= _LOSS_CHANGE
        last[live] = value
        live = live[open_]
        if len(live) == 0:
            break
    return strengths, step if steps else 0
