"""Mixture weights: what the fits find, when they are refused, and that more similar never means safer."""

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta
from sklearn.mixture import GaussianMixture
from tests.selection.conftest import apply

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.selection.recipe import Recipe, Runner
from anmi.selection.steps.mixture import Betas, Gaussians, fit_betas

Floats = NDArray[np.float64]


def block_of(values: Floats) -> Candidates:
    numbers = np.arange(values.size).reshape(values.shape)
    documents = np.where(np.isnan(values), PADDING, numbers).astype(np.int32)
    ids = np.array([f"q{i}" for i in range(len(values))])
    positives = np.full((len(values), 1), 9999, np.int32)
    block = Candidates(ids, positives, documents, np.ones(documents.shape, np.uint8))
    return block.with_columns({"dense": values.astype(np.float32)})


def two_humps(seed: int = 0, count: int = 4000) -> Floats:
    rng = np.random.default_rng(seed)
    upper = rng.random(count) < 0.2
    return np.where(upper, rng.normal(0.8, 0.06, count), rng.normal(0.35, 0.1, count))


def weighed(block: Candidates, **params: Any) -> Candidates:
    return apply(block, "mixture", **({"fewest": 100} | params))


def row(*values: float) -> Floats:
    return np.array([values])


PARAMETERS = st.tuples(st.floats(0.3, 60), st.floats(0.3, 60))
SHARE = st.floats(0.01, 0.99)


@given(
    means=st.tuples(st.floats(-1, 0.5), st.floats(0, 1)).map(lambda m: (m[0], m[0] + m[1])),
    deviations=st.tuples(st.floats(1e-3, 1), st.floats(1e-3, 1)),
    share=SHARE,
)
def test_a_more_similar_candidate_is_never_a_surer_negative(means, deviations, share):
    fitted = Gaussians(row(*means), row(*deviations), row(share, 1 - share), np.array([True]))
    probability = fitted.probability_lower(np.linspace(-2, 3, 400)[None, :])
    assert ((probability >= 0) & (probability <= 1)).all()
    assert (np.diff(probability) <= 1e-12).all()


@given(PARAMETERS, PARAMETERS, SHARE)
def test_nor_is_it_with_beta_distributions(first, second, share):
    lower, upper = sorted((first, second), key=lambda c: c[0] / (c[0] + c[1]))
    alphas, betas = np.array([lower, upper]).T[:, :, None]
    fitted = Betas(alphas, betas, row(share, 1 - share).T, np.array([True]))
    x = np.linspace(0, 1, 300)
    probability = fitted.probability_lower(x[None, :])[0]
    assert ((probability >= 0) & (probability <= 1)).all()
    assert (np.diff(probability) <= 1e-9).all()
    # Where the plain posterior falls from end to end it is left as it is.
    if upper[0] > lower[0] and upper[1] < lower[1]:
        parts = share * beta.pdf(x[1:-1], *lower), (1 - share) * beta.pdf(x[1:-1], *upper)
        np.testing.assert_allclose(probability[1:-1], parts[0] / sum(parts), atol=1e-9)


def test_fitted_on_dev_queries_it_weighs_training_queries_by_them() -> None:
    dev, train = two_humps(1, 2000), two_humps(2, 4000) + 0.05
    steps = {"denoise": {}, "mixture": {"per": "dev"}, "top": {"by": "hardness"}}
    recipe = Recipe.model_validate({"description": "-", "steps": steps})
    assert recipe.splits == ("train", "dev")
    runner, block = Runner(recipe, 1), block_of(train.reshape(4, 1000))
    block = block.with_columns({"p_relevant": np.zeros_like(block.columns["dense"])})
    # Dev queries were not judged, and the step before the mixture reads a judgment.
    runner.fit(CandidateShards.of([block]), CandidateShards.of([block_of(dev[None, :])]))
    found = runner.apply(block).columns["p_negative"].ravel()
    peer = GaussianMixture(2, random_state=0, tol=1e-10, max_iter=2000).fit(dev[:, None])
    between = (train > peer.means_.min()) & (train < peer.means_.max())
    expected = peer.predict_proba(train[between, None])[:, peer.means_.ravel().argmin()]
    np.testing.assert_allclose(found[between], expected, atol=5e-3)
    # An audit has no dev queries; there it is pooled.
    alone = Runner(recipe, 1)
    alone.fit(CandidateShards.of([block]))
    pooled = weighed(block_of(train.reshape(4, 1000))).columns["p_negative"]
    np.testing.assert_array_equal(alone.apply(block).columns["p_negative"], pooled)


def loop_of_betas(values: Floats, steps: int) -> tuple[list[float], list[float], list[float]]:
    """Expectation–maximisation as ProGCL's paper and code describe it."""
    alphas, betas, shares = [1.0, 2.0], [2.0, 1.0], [0.95, 0.05]
    for _ in range(steps):
        density = [shares[k] * beta.pdf(values, alphas[k], betas[k]) for k in (0, 1)]
        belongs = np.maximum(density, 1e-12)
        belongs /= belongs.sum(axis=0)
        for k in (0, 1):
            mean = np.average(values, weights=belongs[k])
            variance = np.average((values - mean) ** 2, weights=belongs[k])
            alphas[k] = mean * (mean * (1 - mean) / variance - 1)
            betas[k] = alphas[k] * (1 - mean) / mean
        if betas[1] < 1:
            betas[1] = 1.01
        shares = (belongs.sum(axis=1) / belongs.sum()).tolist()
    return alphas, betas, shares


@pytest.mark.parametrize("parameters", [(8, 4, 60, 6), (2, 8, 8, 0.7), (5, 9, 5, 9)])
def test_betas_are_those_of_a_plain_loop(parameters: tuple[float, ...]) -> None:
    rng = np.random.default_rng(2)
    a, b, c, d = parameters
    values = np.concatenate([rng.beta(a, b, 90), rng.beta(c, d, 30)])
    values = np.sort(np.clip(values, 1e-12, 1 - 1e-12))
    alphas, betas, shares = loop_of_betas(values, 10)
    order = np.argsort(np.array(alphas) / (np.array(alphas) + betas))
    found = fit_betas(values[None, :])
    for ours, theirs in ((found.alphas, alphas), (found.betas, betas), (found.shares, shares)):
        np.testing.assert_allclose(ours[:, 0], np.array(theirs)[order], rtol=1e-6)
    double = np.log(sum(shares[k] * beta.pdf(values, alphas[k], betas[k]) for k in (0, 1))).sum()
    mean, variance = values.mean(), values.var()
    both = mean * (1 - mean) / variance - 1
    single = beta.logpdf(values, mean * both, (1 - mean) * both).sum()
    assert found.sound[0] == (5 * np.log(120) - 2 * double < 2 * np.log(120) - 2 * single)


@pytest.mark.parametrize(
    ("family", "per"), [("gaussian", "pooled"), ("gaussian", "query"), ("beta", "pooled")]
)
def test_weights_and_hardness_follow_the_fit(family: str, per: str) -> None:
    block = block_of(two_humps(count=1000).reshape(2, 500))
    after = weighed(block, family=family, per=per)
    similarity, negative = block.columns["dense"], after.columns["p_negative"]
    np.testing.assert_allclose(after.weight, negative, atol=1e-6)
    shown = (similarity + 1) / 2 if family == "beta" else similarity
    np.testing.assert_allclose(after.columns["hardness"], shown * negative, atol=1e-6)
    assert after.weight[similarity > 0.8].mean() < 0.1
    assert after.weight[similarity < 0.4].mean() > 0.9


@pytest.mark.parametrize("family", ["gaussian", "beta"])
@pytest.mark.parametrize(
    "values", [np.random.default_rng(0).normal(0.4, 0.1, 2000), np.full(500, 0.3)]
)
def test_one_hump_is_refused_with_a_warning_and_weights_stay_one(family, values, caplog):
    block = block_of(values.reshape(-1, 100))
    with caplog.at_level(logging.WARNING):
        after = weighed(block, family=family)
    assert "weights stay 1" in caplog.text
    assert (after.weight == 1).all()
    similarity = block.columns["dense"]
    expected = similarity if family == "gaussian" else (similarity + 1) / 2
    np.testing.assert_allclose(after.columns["hardness"], expected, rtol=1e-6)


@pytest.mark.parametrize("components", [2, 3])
def test_per_query_each_row_is_fitted_by_the_code_of_the_report(components: int) -> None:
    """Its ProbabilisticNegativeWeighter on 50 candidates, which come in the order of BM25."""
    rng = np.random.default_rng(2)
    rows = np.full((6, 50), np.nan)
    rows[0], rows[1], rows[2:5] = two_humps(count=50), rng.normal(0.4, 0.1, 50), rng.random((3, 50))
    rows[5, :1] = 0.7
    rank = rng.permuted(np.tile(np.arange(1, 51), (6, 1)), axis=1).astype(np.float32)
    block = block_of(rows).with_columns({"bm25_rank": rank})
    found = weighed(block, per="query", components=components).columns["p_negative"]
    for values, places, ours in zip(rows[:5], rank, found, strict=False):
        scores = values.astype(np.float32).astype(float)[np.argsort(places)][:, None]
        peer = GaussianMixture(components, random_state=42).fit(scores)
        expected = peer.predict_proba(scores)[:, peer.means_.ravel().argmin()]
        np.testing.assert_allclose(ours[np.argsort(places)], expected, atol=1e-6)
    assert found[5, 0] == pytest.approx(1 / (1 + np.exp(5 * 0.2)))


@pytest.mark.parametrize("per", ["pooled", "query"])
def test_candidates_already_rejected_have_no_part_in_the_fit(per: str) -> None:
    values = two_humps().reshape(4, 1000)
    block = block_of(values).rejected("denoise", values > 0.82)
    rest = block_of(np.where(values > 0.82, np.nan, values))
    kept = values <= 0.82
    weights = weighed(block, per=per).weight[kept]
    np.testing.assert_array_equal(weights, weighed(rest, per=per).weight[kept])
    assert (weights != weighed(block_of(values), per=per).weight[kept]).any()


def test_a_beta_mixture_of_what_is_no_cosine_is_refused() -> None:
    with pytest.raises(AnmiError, match=r'cosines, and "dense".* gaussian'):
        weighed(block_of(np.array([[3.0, 0.5]])), family="beta")
