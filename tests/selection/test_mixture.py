"""Mixture weights: what the fit finds, when it refuses, and that more similar never means safer."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from anmi.candidates import PADDING, Candidates
from anmi.selection.mixture import FittedMixture, fit, fit_gaussians, mixture
from anmi.selection.recipe import STEPS, Context, Step


def block_of(values: np.ndarray) -> Candidates:
    documents = np.where(np.isnan(values), PADDING, np.arange(values.size).reshape(values.shape)).astype(np.int32)
    return Candidates(
        query_ids=np.array([f"q{i}" for i in range(len(values))]),
        positives=np.full((len(values), 1), 9999, np.int32),
        documents=documents,
        source=np.ones(documents.shape, np.uint8),
        columns={"dense": values.astype(np.float32)},
    )


def two_humps(seed: int = 0, count: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(seed)
    upper = rng.random(count) < 0.2
    return np.where(upper, rng.normal(0.8, 0.06, count), rng.normal(0.35, 0.1, count))


@given(
    means=st.tuples(st.floats(-1, 0.5), st.floats(0, 1)).map(lambda m: (m[0], m[0] + m[1])),
    deviations=st.tuples(st.floats(1e-3, 1), st.floats(1e-3, 1)),
    share=st.floats(0.01, 0.99),
)
@settings(max_examples=100, deadline=None)
def test_a_more_similar_candidate_is_never_a_surer_negative(
    means: tuple[float, float], deviations: tuple[float, float], share: float
) -> None:
    fitted = FittedMixture(means, deviations, (share, 1 - share))
    probability = fitted.probability_negative(np.linspace(-2, 3, 400))
    assert ((probability >= 0) & (probability <= 1)).all()
    assert (np.diff(probability) <= 1e-12).all()


def test_between_the_means_it_is_the_posterior_of_the_lower_component() -> None:
    fitted = FittedMixture((0.2, 0.8), (0.1, 0.05), (0.7, 0.3))
    values = np.linspace(0.2, 0.8, 30)
    lower, upper = 0.7 * norm.pdf(values, 0.2, 0.1), 0.3 * norm.pdf(values, 0.8, 0.05)
    np.testing.assert_allclose(fitted.probability_negative(values), lower / (lower + upper), atol=1e-9)


def test_the_components_of_simulated_similarities_are_found_again() -> None:
    fitted = fit_gaussians(two_humps())
    assert fitted is not None
    assert fitted.means == pytest.approx((0.35, 0.8), abs=0.02)
    assert fitted.deviations == pytest.approx((0.1, 0.06), abs=0.02)
    assert fitted.shares == pytest.approx((0.8, 0.2), abs=0.03)


def test_weights_and_hardness_follow_the_fit() -> None:
    block = block_of(two_humps(count=1000).reshape(10, 100))
    item = Step.model_validate({"mixture": {"fewest": 100}})
    fitted = fit([block], item.params, Context(0, 3))
    after = mixture(block, item.params, Context(0, 3, fitted))
    similarity = block.columns["dense"]
    assert fitted is not None
    np.testing.assert_allclose(after.weight, fitted.probability_negative(similarity), atol=1e-6)
    np.testing.assert_allclose(after.columns["hardness"], similarity * after.columns["p_negative"], atol=1e-6)
    assert after.weight[similarity > 0.8].mean() < 0.1
    assert after.weight[similarity < 0.4].mean() > 0.9


@pytest.mark.parametrize("values", [np.random.default_rng(0).normal(0.4, 0.1, 2000), np.full(500, 0.3)])
def test_one_hump_is_refused_with_a_warning_and_weights_stay_one(
    values: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    block = block_of(values.reshape(-1, 100))
    params = Step.model_validate("mixture").params
    with caplog.at_level(logging.WARNING):
        fitted = fit([block], params, Context(0, 3))
    assert fitted is None and "weights stay 1" in caplog.text
    after = mixture(block, params, Context(0, 3, fitted))
    assert (after.weight == 1).all()
    np.testing.assert_array_equal(after.columns["hardness"], block.columns["dense"])


def test_too_few_values_are_refused_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert (
            fit([block_of(two_humps(count=100)[None, :])], Step.model_validate("mixture").params, Context(0, 1)) is None
        )
    assert "100 values are too few" in caplog.text


def test_candidates_already_rejected_have_no_part_in_the_fit() -> None:
    values = two_humps().reshape(40, 100)
    block = block_of(values).rejected("denoise", values > 0.62)
    rest = block_of(np.where(values > 0.62, np.nan, values))
    params = Step.model_validate("mixture").params
    assert fit([block], params, Context(0, 3)) == fit([rest], params, Context(0, 3))


def test_a_candidate_without_a_similarity_gets_no_weight() -> None:
    block = block_of(np.array([[0.2, 0.5]]))
    block.columns["dense"][0, 1] = np.nan
    after = mixture(block, STEPS["mixture"].params(), Context(0, 1, FittedMixture((0.2, 0.8), (0.1, 0.1), (0.5, 0.5))))
    assert after.weight[0].tolist() == [pytest.approx(1, abs=1e-6), 0]
