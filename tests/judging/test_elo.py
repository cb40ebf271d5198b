"""Thurstone strengths: against a general optimiser, and what they promise about themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

from anmi.errors import AnmiError
from anmi.judging import elo
from anmi.judging.preferences import comparisons

PRIOR = 0.01


def graph(sizes: list[int], degree: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return comparisons([f"q{i}" for i in range(len(sizes))], np.array(sizes), degree, seed)


def slow_fit(first: np.ndarray, second: np.ndarray, share: np.ndarray, votes: np.ndarray, size: int) -> np.ndarray:
    """One query's Elo by a general optimiser on the objective as it is written down."""
    known = ~np.isnan(share)
    a, b, p, mass = first[known], second[known], share[known], votes[known]

    def loss(e: np.ndarray) -> float:
        z = (e[a] - e[b]) / np.sqrt(2)
        return -float((mass * (p * norm.logcdf(z) + (1 - p) * norm.logcdf(-z))).sum() - PRIOR / 2 * (e**2).sum())

    found = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-9}).x
    return np.asarray(1000 + 200 * (found - found.mean()))


@given(sizes=st.lists(st.integers(1, 14), min_size=1, max_size=3), seed=st.integers(0, 500))
@settings(max_examples=12)
def test_strengths_are_those_of_a_general_optimiser(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second, valid = graph(sizes, seed=seed)
    share = np.where(valid & (rng.random(valid.shape) < 0.9), rng.random(valid.shape), np.nan)
    votes = rng.integers(1, 4, valid.shape).astype(float)
    fitted = elo.fit(first, second, share, np.array(sizes), prior_precision=PRIOR, votes=votes)
    # A document that no answer joins to the others has no rating.
    assume(all(np.isfinite(row[:size]).all() for row, size in zip(fitted.elo, sizes, strict=True)))
    for q, size in enumerate(sizes):
        expected = slow_fit(first[q], second[q], share[q], votes[q], size)
        np.testing.assert_allclose(fitted.elo[q, :size], expected, atol=0.02)  # 1e-4 in units of strength
        assert np.isnan(fitted.elo[q, size:]).all()
        assert fitted.elo[q, :size].mean() == pytest.approx(1000, abs=1e-6)


def test_queries_are_fitted_in_blocks_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    sizes = rng.integers(2, 20, 40)
    first, second, valid = graph(sizes.tolist())
    share = np.where(valid, rng.random(valid.shape), np.nan)
    whole = elo.fit(first, second, share, sizes)
    monkeypatch.setattr(elo, "_BLOCK_ELEMENTS", 3 * int(sizes.max()) ** 2)
    parts = elo.fit(first, second, share, sizes)
    for measure in ("elo", "se", "gap_se"):
        np.testing.assert_allclose(getattr(parts, measure), getattr(whole, measure), atol=1e-6)


def test_standard_errors_are_those_of_the_inverse_information() -> None:
    rng = np.random.default_rng(5)
    first, second, valid = graph([9], degree=4)
    share = np.where(valid, rng.random(valid.shape), np.nan)
    fitted = elo.fit(first, second, share, np.array([9]), prior_precision=PRIOR)
    e = (fitted.elo[0] - 1000) / 200
    information = PRIOR * np.eye(9)
    for a, b in zip(first[0][valid[0]], second[0][valid[0]], strict=True):
        z, direction = (e[a] - e[b]) / np.sqrt(2), np.zeros(9)
        direction[a], direction[b] = 1 / np.sqrt(2), -1 / np.sqrt(2)
        information += norm.pdf(z) ** 2 / (norm.cdf(z) * norm.cdf(-z)) * np.outer(direction, direction)
    centre = np.eye(9) - 1 / 9
    covariance = centre @ np.linalg.inv(information) @ centre
    np.testing.assert_allclose(fitted.se[0], 200 * np.sqrt(np.diag(covariance)), rtol=1e-4)
    gaps = np.diag(covariance) + covariance[0, 0] - 2 * covariance[0]
    np.testing.assert_allclose(fitted.gap_se[0, 1:], 200 * np.sqrt(gaps[1:]), rtol=1e-4)


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elo, "_ITERATIONS", 1)
    first, second, valid = graph([12])
    share = np.where(valid, (first < second).astype(float), np.nan)
    with pytest.raises(AnmiError, match=r"did not converge for 1 queries.*prior_precision"):
        elo.fit(first, second, share, np.array([12]))


@pytest.mark.parametrize("deviation", [np.sqrt(2), 1.0])
def test_the_paraphrase_is_its_formula(deviation: float) -> None:
    first, second, valid = comparisons(["0", "1"], np.full(2, 9), 4, 0)
    share = np.where(valid, np.random.default_rng(0).uniform(0.05, 0.95, valid.shape), np.nan)
    found = elo.ascend(first, second, share, np.full(2, 9), steps=7, deviation=deviation)
    for q in range(2):
        e = np.zeros(9)
        for step in range(7):
            gradient = np.zeros(9)
            for a, b, p in zip(first[q], second[q], share[q], strict=True):
                if not np.isnan(p):
                    z = (e[a] - e[b]) / deviation
                    slope = (p * norm.pdf(z) / norm.cdf(z) - (1 - p) * norm.pdf(z) / norm.cdf(-z)) / deviation
                    gradient[a] += slope
                    gradient[b] -= slope
            e += gradient / (1 + 0.1 * step)
        np.testing.assert_allclose(found.elo[q], 1000 + 200 * e, atol=1e-6)
