"""Thurstone strengths of many queries at once, with standard errors.

Model (Thurstone case V, σ = 1): P(i ≻ j) = Φ((eᵢ − eⱼ)/√2). The strengths are the maximum a posteriori under a weak
Gaussian prior, found by Newton's method on the concave objective; Elo = 1000 + 200·e. After zELO (arXiv 2509.12541).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.judging.preferences import touched

ELO_MEAN: Final = 1000.0
ELO_SCALE: Final = 200.0
# Deviation of the difference of two documents, each of which has a deviation of 1.
CASE_V: Final = float(np.sqrt(2.0))
_LOG_SQRT_TWO_PI: Final = 0.5 * np.log(2 * np.pi)
# Elements of one block's normal matrices, 4 MB: queries are fitted in blocks, so memory is linear in comparisons.
_BLOCK_ELEMENTS: Final = 2**19


@dataclass(frozen=True)
class Strengths:
    """Fitted Elo of the nodes of Q queries.

    Attributes
    ----------
    elo
        [Q, n]; NaN beyond a query's nodes. Each query's mean is 1000.
    se
        Standard error of each Elo, [Q, n].
    gap_se
        Standard error of Elo(node 0) − Elo(node), [Q, n].
    """

    elo: NDArray[np.float64]
    se: NDArray[np.float64]
    gap_se: NDArray[np.float64]


def fit(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    preference: NDArray[np.float64],
    sizes: NDArray[np.int64],
    prior_precision: float = 0.01,
    votes: float | NDArray[np.float64] = 1.0,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    deviation: float = CASE_V,
) -> Strengths:
    """Fit the strengths of all queries.

    A node without any answered comparison keeps its prior: Elo 1000 with a wide error, and no say in the others' mean.

    Parameters
    ----------
    first, second
        Compared nodes, int64 [Q, E].
    preference
        P(first ≻ second) in [0, 1], [Q, E]; NaN where there is no comparison. Each pair at most once per query.
    sizes
        Nodes per query, [Q].
    prior_precision
        Of the Gaussian prior on e; keeps strengths finite when all judges agree.
    votes
        Independent observations that a preference counts for, one number or [Q, E]; 0 leaves a comparison out.
        Scales the standard errors by 1/√votes.
    tolerance
        Largest absolute gradient at which a query has converged.
    deviation
        s of P = Φ((eᵢ − eⱼ)/s); strengths, gaps and errors are in proportion to it.

    Raises
    ------
    AnmiError
        No convergence.
    """
    mass = np.where(np.isnan(preference), 0.0, votes)
    share = np.where(mass > 0, preference, 0.5)
    width = int(sizes.max(initial=1))
    # The same problem in strengths of case V, which are larger by this; the prior is on those asked for.
    unit = deviation / CASE_V
    whole = Problem(first, second, share, mass, width, prior_precision * unit**2)
    parts = []
    for rows in blocks(len(sizes), width * width):
        problem = whole.take(rows)
        parts.append(_with_errors(problem, _climb(problem, tolerance, max_iterations), sizes[rows]))
    elo, se, gap_se = (np.concatenate([getattr(part, name) for part in parts]) for name in ("elo", "se", "gap_se"))
    return Strengths(ELO_MEAN * (1 - unit) + unit * elo, unit * se, unit * gap_se)


def blocks(queries: int, elements: int) -> Iterator[slice]:
    """Cut queries that need so many ``elements`` each into blocks of bounded memory; at least one, maybe empty."""
    size = max(1, _BLOCK_ELEMENTS // max(elements, 1))
    for start in range(0, max(queries, 1), size):
        yield slice(start, min(start + size, queries))


def _climb(problem: Problem, tolerance: float, max_iterations: int) -> NDArray[np.float64]:
    """Return the strengths that maximise the objective of every query of a block, [Q, n]."""
    queries = len(problem.share)
    strengths = np.zeros((queries, problem.width))
    value = problem.objective(strengths)
    live = np.arange(queries)
    for iteration in range(max_iterations + 1):
        gradient, hessian = problem.take(live).derivatives(strengths[live])
        open_ = np.abs(gradient).max(axis=1, initial=0.0) >= tolerance
        live, gradient, hessian = live[open_], gradient[open_], hessian[open_]
        if len(live) == 0:
            break
        if iteration == max_iterations:
            raise AnmiError(f"Elo did not converge for {len(live)} queries; raise elo.prior_precision")
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        strengths[live], value[live] = _ascend(problem.take(live), strengths[live], value[live], step)
    return strengths


@dataclass(frozen=True)
class Problem:
    """The likelihood of a block of queries, with its derivatives by strength.

    Attributes
    ----------
    first, second
        Compared nodes, [Q, E].
    share
        P(first ≻ second), [Q, E]; anything where the mass is 0.
    mass
        Observations that each comparison counts for, [Q, E].
    width
        Nodes per query, n.
    prior_precision
        Of the Gaussian prior; 0 for none.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    share: NDArray[np.float64]
    mass: NDArray[np.float64]
    width: int
    prior_precision: float

    def take(self, rows: NDArray[np.int64] | slice) -> Problem:
        """Return the queries of the given rows."""
        return Problem(
            self.first[rows], self.second[rows], self.share[rows], self.mass[rows], self.width, self.prior_precision
        )

    def z(self, strengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """(eᵢ − eⱼ)/√2 of every comparison, [Q, E]."""
        a, b = (np.take_along_axis(strengths, index, axis=1) for index in (self.first, self.second))
        return (a - b) / np.sqrt(2.0)

    def objective(self, strengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log likelihood plus log prior of every query, [Q]."""
        z = self.z(strengths)
        likelihood = self.mass * (
            self.share * scipy.special.log_ndtr(z) + (1 - self.share) * scipy.special.log_ndtr(-z)
        )
        return likelihood.sum(axis=1) - 0.5 * self.prior_precision * (strengths**2).sum(axis=1)

    def gradient(self, strengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Gradient of the objective, [Q, n]."""
        z = self.z(strengths)
        slope = self.mass * (self.share * hazard(z) - (1 - self.share) * hazard(-z)) / np.sqrt(2.0)
        return self.spread(slope) - self.prior_precision * strengths

    def derivatives(self, strengths: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gradient [Q, n] and negative Hessian [Q, n, n] of the objective."""
        z = self.z(strengths)
        up, down = hazard(z), hazard(-z)
        slope = self.mass * (self.share * up - (1 - self.share) * down) / np.sqrt(2.0)
        curvature = 0.5 * self.mass * (self.share * up * (z + up) + (1 - self.share) * down * (down - z))
        return self.spread(slope) - self.prior_precision * strengths, self.laplacian(curvature)

    def information(self, strengths: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fisher information plus prior, [Q, n, n]."""
        z = self.z(strengths)
        return self.laplacian(0.5 * self.mass * hazard(z) * hazard(-z))

    def laplacian(self, edge: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ over comparisons of edge · (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ, plus the prior's precision, [Q, n, n]."""
        queries = len(edge)
        matrix = np.zeros((queries, self.width, self.width))
        row = np.broadcast_to(np.arange(queries)[:, None], edge.shape)
        # Absent comparisons may repeat a pair; those that are there do not, so they can be assigned.
        used = self.mass > 0
        matrix[row[used], self.first[used], self.second[used]] = -edge[used]
        matrix[row[used], self.second[used], self.first[used]] = -edge[used]
        diagonal = self._sum(edge, self.first) + self._sum(edge, self.second) + self.prior_precision
        matrix[:, np.arange(self.width), np.arange(self.width)] = diagonal
        return matrix

    def spread(self, slope: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add each comparison's slope to its first node and take it from its second, [Q, n]."""
        return self._sum(slope, self.first) - self._sum(slope, self.second)

    def _sum(self, values: NDArray[np.float64], index: NDArray[np.int64]) -> NDArray[np.float64]:
        flat = (np.arange(len(values))[:, None] * self.width + index).ravel()
        total: NDArray[np.float64] = np.bincount(flat, values.ravel(), len(values) * self.width).astype(np.float64)
        return total.reshape(-1, self.width)


def hazard(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """φ(z)/Φ(z), stable for very negative z."""
    return np.exp(-0.5 * z**2 - _LOG_SQRT_TWO_PI - scipy.special.log_ndtr(z))


def _ascend(
    problem: Problem, strengths: NDArray[np.float64], value: NDArray[np.float64], step: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Take the Newton step, halved for the queries whose objective it would lower."""
    size = np.ones((len(step), 1))
    for _ in range(30):
        proposal = strengths + size * step
        reached = problem.objective(proposal)
        worse = reached < value - 1e-9 * np.abs(value)
        if not worse.any():
            break
        size[worse] *= 0.5
    return proposal, reached


def _with_errors(problem: Problem, strengths: NDArray[np.float64], sizes: NDArray[np.int64]) -> Strengths:
    width = problem.width
    inside = np.arange(width)[None, :] < sizes[:, None]
    covariance = np.linalg.inv(problem.information(strengths))
    # Only differences of strengths are identified: remove the direction in which all that were compared move together.
    voted = touched(problem.first, problem.second, problem.mass > 0, width)
    voted = np.where(voted.any(axis=1, keepdims=True), voted, inside)
    share = voted / np.maximum(voted.sum(axis=1, keepdims=True), 1)
    mean = np.einsum("qij,qj->qi", covariance, share)
    total = np.einsum("qi,qi->q", mean, share)
    covariance = covariance - mean[:, :, None] - mean[:, None, :] + total[:, None, None]
    variance = np.einsum("qii->qi", covariance)
    gap = variance + variance[:, :1] - 2 * covariance[:, 0, :]
    centred = strengths - (strengths * share).sum(axis=1, keepdims=True)

    def shown(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(inside, values, np.nan)

    return Strengths(
        elo=shown(ELO_MEAN + ELO_SCALE * centred),
        se=shown(ELO_SCALE * np.sqrt(np.maximum(variance, 0))),
        gap_se=shown(ELO_SCALE * np.sqrt(np.maximum(gap, 0))),
    )


# As Elo is usually paraphrased: gradient ascent without a prior, under which a document that wins all its comparisons
# has no finite strength, so the schedule says how far it is carried.
STEPS: Final = 50


def ascend(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    preference: NDArray[np.float64],
    sizes: NDArray[np.int64],
    steps: int = STEPS,
    deviation: float = CASE_V,
) -> Strengths:
    """Fit the strengths by gradient ascent on P = Φ((eᵢ − eⱼ)/s) with steps of size 1/(1 + 0.1·t) (methods §2).

    Parameters
    ----------
    first, second, preference, sizes
        As in :func:`fit`.
    steps
        How many.
    deviation
        s: √2 in Thurstone's case V, 1 in the ANMI 2.0 report.

    Returns
    -------
    Strengths
        With NaN for all errors.

    """
    mass = np.where(np.isnan(preference), 0.0, 1.0)
    width = int(sizes.max(initial=1))
    problem = Problem(first, second, np.where(mass > 0, preference, 0.5), mass, width, 0.0)
    strengths = np.zeros((len(problem.share), problem.width))
    # Φ(d/s) is case V in strengths of √2/s times the size, whose gradient is as much steeper.
    stretch = CASE_V / deviation
    for step in range(steps):
        strengths += stretch * problem.gradient(stretch * strengths) / (1 + 0.1 * step)
    inside = np.arange(width)[None, :] < sizes[:, None]
    voted = touched(first, second, mass > 0, width)
    mean = (strengths * voted).sum(axis=1, keepdims=True) / np.maximum(voted.sum(axis=1, keepdims=True), 1)
    unknown = np.full(strengths.shape, np.nan)
    return Strengths(np.where(inside, ELO_MEAN + ELO_SCALE * (strengths - mean), np.nan), unknown, unknown)
