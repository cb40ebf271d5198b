"""Mixtures of several Gaussians, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.mixture import GaussianMixture

from anmi.selection.steps.mixture import Mixture, fit_gaussians


def sample(seed: int, sizes: tuple[int, ...] = (700, 250, 50)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres, deviations = (0.1, 0.45, 0.8), (0.08, 0.07, 0.04)
    parts = [rng.normal(*each) for each in zip(centres, deviations, sizes, strict=True)]
    return np.sort(np.concatenate(parts))


def density(found: object, values: np.ndarray) -> np.ndarray:
    """Of a fit of one row, by the formula."""
    parts = zip(found.means[0], found.deviations[0], found.shares[0], strict=True)  # type: ignore[attr-defined]
    return sum(w * np.exp(-((values - m) ** 2) / (2 * s**2)) / (s * np.sqrt(2 * np.pi)) for m, s, w in parts)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_three_are_fitted_as_well_as_by_scikit_learn(seed: int) -> None:
    values = sample(seed)
    found = fit_gaussians(values[None, :], 3)
    theirs = GaussianMixture(3, n_init=5, random_state=0, tol=1e-6, max_iter=500).fit(values[:, None])
    assert np.log(density(found, values)).mean() >= theirs.score(values[:, None]) - 1e-3
    order = np.argsort(theirs.means_[:, 0])
    np.testing.assert_allclose(found.means[0], theirs.means_[order, 0], atol=0.01)
    np.testing.assert_allclose(found.shares[0], theirs.weights_[order], atol=0.02)
    assert found.sound.all() and found.shares.sum() == pytest.approx(1)
    # Up to the mean of the component next to the lowest nothing is held back.
    between = np.linspace(found.means[0, 0], found.means[0, 1], 50)
    expected = theirs.predict_proba(between[:, None])[:, order[0]]
    np.testing.assert_allclose(found.probability_lower(between[None, :])[0], expected, atol=0.02)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), sizes=st.tuples(*[st.integers(20, 300)] * 3))
def test_a_higher_value_is_never_a_surer_negative(seed: int, sizes: tuple[int, ...]) -> None:
    found = fit_gaussians(sample(seed, sizes)[None, :], 3)
    probability = found.probability_lower(np.linspace(-1, 2, 400)[None, :])[0]
    assert (np.diff(probability) <= 1e-12).all() and ((probability >= 0) & (probability <= 1)).all()


def test_there_are_no_three_beta_distributions() -> None:
    with pytest.raises(ValidationError, match="components is 2 with family beta"):
        Mixture(family="beta", components=3)
