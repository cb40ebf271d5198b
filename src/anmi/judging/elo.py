"""Thurstone strengths of many queries at once, with standard errors.

Model (Thurstone case V, σ = 1): P(i ≻ j) = Φ((eᵢ − eⱼ)/√2). The strengths are the maximum a
posteriori under a weak Gaussian prior, found by Newton's method on the concave objective; Elo =
1000 + 200·e. After zELO (arXiv 2509.12541).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import scipy

from anmi.errors import AnmiError
from anmi.judging.preferences import Floats, Ints, touched
from anmi.ragged import Bools

ELO_MEAN: Final = 1000.0
ELO_SCALE: Final = 200.0
# Deviation of the difference of two documents, each of which has a deviation of 1.
CASE_V: Final = float(np.sqrt(2.0))
_LOG_SQRT_TWO_PI: Final = 0.5 * np.log(2 * np.pi)
# Elements of one block's normal matrices, 4 MB: queries are fitted in blocks, so memory is linear
# in comparisons.
_BLOCK_ELEMENTS: Final = 2**19
# Largest absolute gradient at which a query has converged.
_TOLERANCE: Final = 1e-6
_ITERATIONS: Final = 100
# Of the notebook's ascent.
_SMALLEST_CHANCE: Final = 1e-10
_SMALLEST_GRADIENT: Final = 1e-3


class Strengths(NamedTuple):
    """Fitted Elo of the nodes of Q queries.

    Attributes
    ----------
    elo
        [Q, n]; NaN beyond a query's nodes. Each query's mean is 1000.
    elo_se
        Standard error of each Elo, [Q, n].
    gap_se
        Standard error of Elo(node 0) − Elo(node), [Q, n].
    """

    elo: Floats
    elo_se: Floats
    gap_se: Floats


def fit(
    first: Ints,
    second: Ints,
    preference: Floats,
    sizes: Ints,
    prior_precision: float = 0.01,
    votes: float | Floats = 1.0,
    deviation: float = CASE_V,
) -> Strengths:
    """Fit the strengths of all queries.

    A node without any answered comparison keeps its prior: Elo 1000 with a wide error, and no say
    in the others' mean.

    Parameters
    ----------
    first, second
        Compared nodes, int64 [Q, E].
    preference
        P(first ≻ second) in [0, 1], [Q, E]; NaN where there is no comparison. Each pair at most
        once per query.
    sizes
        Nodes per query, [Q].
    prior_precision
        Of the Gaussian prior on e; keeps strengths finite when all judges agree.
    votes
        Independent observations that a preference counts for, one number or [Q, E]; 0 leaves a
        comparison out. Scales the standard errors by 1/√votes.
    deviation
        s of P = Φ((eᵢ − eⱼ)/s); strengths, gaps and errors are in proportion to it.

    Raises
    ------
    AnmiError
        No convergence.
    """
    # The same problem in strengths of case V, which are larger by this; the prior is on those asked
    # for.
    stretch = deviation / CASE_V
    problem = Problem.of(first, second, preference, sizes, prior_precision * stretch**2, votes)
    queries_per_block = max(1, _BLOCK_ELEMENTS // problem.width**2)
    fitted = []
    for start in range(0, max(len(sizes), 1), queries_per_block):
        rows = slice(start, start + queries_per_block)
        block = problem.take(rows)
        fitted.append(_with_errors(block, _climb(block), sizes[rows]))
    elo, elo_se, gap_se = map(np.concatenate, zip(*fitted, strict=True))
    return Strengths(ELO_MEAN * (1 - stretch) + stretch * elo, stretch * elo_se, stretch * gap_se)


def _climb(problem: Problem) -> Floats:
    """Return the strengths that maximise the objective of every query of a block, [Q, n]."""
    queries = len(problem.share)
    strengths = np.zeros((queries, problem.width))
    objective = problem.objective(strengths)
    active = np.arange(queries)
    for iteration in range(_ITERATIONS + 1):
        gradient = problem.take(active).gradient(strengths[active])
        is_steep = np.abs(gradient).max(axis=1, initial=0.0) >= _TOLERANCE
        active = active[is_steep]
        if len(active) == 0:
            break
        if iteration == _ITERATIONS:
            raise AnmiError(
                f"Elo did not converge for {len(active)} queries; raise elo.prior_precision"
            )
        subproblem = problem.take(active)
        curvature = subproblem.curvature(strengths[active])
        step = np.linalg.solve(curvature, gradient[is_steep][:, :, None])[:, :, 0]
        strengths[active], objective[active] = _ascend(
            subproblem, strengths[active], objective[active], step
        )
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

    first: Ints
    second: Ints
    share: Floats
    mass: Floats
    width: int
    prior_precision: float

    @staticmethod
    def of(
        first: Ints,
        second: Ints,
        preference: Floats,
        sizes: Ints,
        prior_precision: float,
        votes: float | Floats = 1.0,
    ) -> Problem:
        """Take what :func:`fit` takes."""
        mass = np.where(np.isnan(preference), 0.0, votes)
        share = np.where(mass > 0, preference, 0.5)
        return Problem(first, second, share, mass, int(sizes.max(initial=1)), prior_precision)

    def take(self, rows: Ints | slice) -> Problem:
        """Return the queries of the given rows."""
        return Problem(
            self.first[rows],
            self.second[rows],
            self.share[rows],
            self.mass[rows],
            self.width,
            self.prior_precision,
        )

    @property
    def voted(self) -> Bools:
        """Which nodes take part in a comparison that counts, [Q, n]."""
        return touched(self.first, self.second, self.mass > 0, self.width)

    def z(self, strengths: Floats) -> Floats:
        """(eᵢ − eⱼ)/√2 of every comparison, [Q, E]."""
        first_strengths = np.take_along_axis(strengths, self.first, axis=1)
        second_strengths = np.take_along_axis(strengths, self.second, axis=1)
        return (first_strengths - second_strengths) / CASE_V

    def objective(self, strengths: Floats) -> Floats:
        """Log likelihood plus log prior of every query, [Q]."""
        z = self.z(strengths)
        likelihood = self.mass * (
            self.share * scipy.special.log_ndtr(z) + (1 - self.share) * scipy.special.log_ndtr(-z)
        )
        return likelihood.sum(axis=1) - 0.5 * self.prior_precision * (strengths**2).sum(axis=1)

    def gradient(self, strengths: Floats, floor: float = 0.0) -> Floats:
        """Gradient of the objective, [Q, n]; with a floor, as in :func:`hazard`."""
        z = self.z(strengths)
        upward = self.share * hazard(z, floor)
        downward = (1 - self.share) * hazard(-z, floor)
        slope = self.mass * (upward - downward) / CASE_V
        spread = self._sum(slope, self.first) - self._sum(slope, self.second)
        return spread - self.prior_precision * strengths

    def curvature(self, strengths: Floats) -> Floats:
        """Negative Hessian of the objective, [Q, n, n]."""
        z = self.z(strengths)
        upward = hazard(z)
        downward = hazard(-z)
        bend = self.share * upward * (z + upward) + (1 - self.share) * downward * (downward - z)
        return self._laplacian(0.5 * self.mass * bend)

    def information(self, strengths: Floats) -> Floats:
        """Fisher information plus prior, [Q, n, n]."""
        z = self.z(strengths)
        return self._laplacian(0.5 * self.mass * hazard(z) * hazard(-z))

    def _laplacian(self, weights: Floats) -> Floats:
        """Sum weight · (uᵢ − uⱼ)(uᵢ − uⱼ)ᵀ over comparisons and add the prior, [Q, n, n]."""
        matrix = np.zeros((len(weights), self.width, self.width))
        # Absent comparisons may repeat a pair; those that count do not, so they can be assigned.
        counts = self.mass > 0
        rows, _ = np.nonzero(counts)
        first = self.first[counts]
        second = self.second[counts]
        matrix[rows, first, second] = -weights[counts]
        matrix[rows, second, first] = -weights[counts]
        diagonal = self._sum(weights, self.first) + self._sum(weights, self.second)
        nodes = np.arange(self.width)
        matrix[:, nodes, nodes] = diagonal + self.prior_precision
        return matrix

    def _sum(self, values: Floats, index: Ints) -> Floats:
        flat_index = (np.arange(len(values))[:, None] * self.width + index).ravel()
        total = np.bincount(flat_index, values.ravel(), len(values) * self.width)
        return total.astype(np.float64).reshape(-1, self.width)


def hazard(z: Floats, floor: float = 0.0) -> Floats:
    """φ(z)/Φ(z), stable for very negative z; with a floor, φ(z)/max(Φ(z), floor)."""
    if floor:
        return np.exp(-0.5 * z**2 - _LOG_SQRT_TWO_PI) / np.maximum(scipy.special.ndtr(z), floor)
    return np.exp(-0.5 * z**2 - _LOG_SQRT_TWO_PI - scipy.special.log_ndtr(z))


def _ascend(
    problem: Problem, strengths: Floats, objective: Floats, step: Floats
) -> tuple[Floats, Floats]:
    """Take the Newton step, halved for the queries whose objective it would lower."""
    scale = np.ones((len(step), 1))
    for _ in range(30):
        proposal = strengths + scale * step
        new_objective = problem.objective(proposal)
        is_worse = new_objective < objective - 1e-9 * np.abs(objective)
        if not is_worse.any():
            break
        scale[is_worse] *= 0.5
    return proposal, new_objective


def _masked(values: Floats, sizes: Ints) -> Floats:
    return np.where(np.arange(values.shape[1]) < sizes[:, None], values, np.nan)


def _centred(strengths: Floats, voted: Bools) -> Floats:
    """Return Elo whose mean over the nodes that were compared is 1000."""
    count = np.maximum(voted.sum(axis=1, keepdims=True), 1)
    mean = (strengths * voted).sum(axis=1, keepdims=True) / count
    return ELO_MEAN + ELO_SCALE * (strengths - mean)


def _with_errors(problem: Problem, strengths: Floats, sizes: Ints) -> Strengths:
    covariance = np.linalg.inv(problem.information(strengths))
    # Only differences of strengths are identified: remove the direction in which all that were
    # compared move together.
    voted = problem.voted
    is_node = np.arange(problem.width)[None, :] < sizes[:, None]
    direction = np.where(voted.any(axis=1, keepdims=True), voted, is_node) * 1.0
    direction /= np.maximum(direction.sum(axis=1, keepdims=True), 1)
    mean = np.einsum("qij,qj->qi", covariance, direction)
    total = np.einsum("qi,qi->q", mean, direction)
    covariance = covariance - mean[:, :, None] - mean[:, None, :] + total[:, None, None]
    variance = np.einsum("qii->qi", covariance)
    gap_variance = variance + variance[:, :1] - 2 * covariance[:, 0, :]
    elo_se, gap_se = (
        _masked(ELO_SCALE * np.sqrt(np.maximum(squared, 0)), sizes)
        for squared in (variance, gap_variance)
    )
    return Strengths(_masked(_centred(strengths, voted), sizes), elo_se, gap_se)


def ascend(
    first: Ints,
    second: Ints,
    preference: Floats,
    sizes: Ints,
    steps: int = 50,
    deviation: float = CASE_V,
) -> Strengths:
    """Fit strengths by gradient ascent on P = Φ((eᵢ − eⱼ)/s), steps 1/(1 + 0.1·t) (methods §2).

    As in the ANMI 2.0 notebook, which ends where no gradient reaches 0.001 and takes no Φ below
    1e-10: its first steps overshoot, and the floor says how far. Without a prior a document that
    wins all its comparisons has no finite strength, so the schedule says how far it is carried.

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
    problem = Problem.of(first, second, preference, sizes, prior_precision=0.0)
    strengths = np.zeros((len(sizes), problem.width))
    # Φ(d/s) is case V in strengths of √2/s times the size, whose gradient is as much steeper.
    stretch = CASE_V / deviation
    for step in range(steps):
        gradient = stretch * problem.gradient(stretch * strengths, _SMALLEST_CHANCE)
        is_steep = np.abs(gradient).max(axis=1, keepdims=True) >= _SMALLEST_GRADIENT
        strengths += is_steep * gradient / (1 + 0.1 * step)
    unknown = np.full(strengths.shape, np.nan)
    return Strengths(_masked(_centred(strengths, problem.voted), sizes), unknown, unknown)
