"""Judgments: expected shares and stacked judges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from tests.judging.conftest import block_of

from anmi.candidates import Candidates, CandidateShards
from anmi.judging.denoise import Stack
from anmi.judging.expected import ExpectedShare


def test_it_is_the_mean_whatever_the_blocks_and_its_bounds_follow_the_formula() -> None:
    draw = np.random.default_rng(1)
    probability = np.where(draw.random((60, 5)) < 0.2, np.nan, draw.beta(0.5, 9, (60, 5)))
    queries = np.repeat(np.arange(30), 2)
    found, parts = ExpectedShare(), ExpectedShare()
    found.add(probability, queries)
    for start in range(0, 60, 4):
        parts.add(probability[start : start + 4], queries[start : start + 4])
    assert found.share == pytest.approx(np.nanmean(probability)) == parts.share
    assert found.interval == pytest.approx(parts.interval)
    # Independent: a loop over the queries.
    for factor, side, bound in ((0.05, -1, found.interval[0]), (3.0, 1, found.interval[1])):
        odds = factor * probability / (1 - probability)
        scaled = odds / (1 + odds)
        share, total = np.nanmean(scaled), np.isfinite(scaled).sum()
        spread = sum(
            (np.nansum(scaled[queries == q]) - share * np.isfinite(scaled[queries == q]).sum()) ** 2 for q in range(30)
        )
        variance = (30 / 29 * spread + np.nansum(scaled * (1 - scaled))) / total**2
        assert bound == pytest.approx(max(share + side * 1.96 * np.sqrt(variance), 0))


ROWS, WIDTH = 300, 10


def judged(informative: bool, seed: int = 0, hidden: int = ROWS) -> Candidates:
    """Two judges of noisy log-odds; the second one speaks of relevance, or of nothing."""
    draw = np.random.default_rng(seed)
    relevant = np.concatenate([np.ones((ROWS, 1)), draw.random((ROWS, WIDTH)) < 0.05], axis=1)
    first = expit(-2 + 3 * relevant + draw.normal(size=relevant.shape))
    second = expit(-2 + 3 * relevant * informative + draw.normal(size=relevant.shape))
    held = first[:, :1].copy()
    held[hidden:] = np.nan
    documents = np.arange(1, WIDTH + 1, dtype=np.int32)[None, :].repeat(ROWS, axis=0)
    columns, own = {"p_evidence": first[:, 1:], "p_cross": second[:, 1:]}, {"p_heldout": held, "p_cross": second[:, :1]}
    return block_of(documents, np.zeros((ROWS, 1)), columns, own)


def fit(block: Candidates) -> Stack:
    return Stack.fit(CandidateShards.of([block.take(slice(0, 70)), block.take(slice(70, None))]))


@pytest.mark.parametrize("informative", [True, False])
def test_the_weight_is_the_likeliest_with_the_first_judge_as_offset(informative: bool) -> None:
    block = judged(informative, seed=4)
    first, second = (
        np.append(block.positive_columns[own].ravel(), block.columns[others].ravel()).astype(np.float64)
        for own, others in (("p_heldout", "p_evidence"), ("p_cross", "p_cross"))
    )
    label = np.append(np.ones(ROWS), np.zeros(ROWS * WIDTH))
    found = fit(block)
    assert found.prior == pytest.approx(np.nanmean(second), rel=1e-5)
    more, base = logit(second) - logit(found.prior), logit(first)

    def likelihood(weight: float, intercept: float) -> float:
        score = base + weight * more + intercept
        return float((label * score - np.logaddexp(0, score)).mean())

    def profile(weight: float) -> float:
        return max(likelihood(weight, intercept) for intercept in np.linspace(-4, 4, 161))

    best = max(np.linspace(0, 3, 121), key=profile)
    assert found.weight == pytest.approx(best, abs=0.03)
    assert found.weight > 0.5 if informative else found.weight < 0.1
    assert found.hidden == ROWS


@pytest.mark.parametrize("hidden", [0, 49])
def test_too_few_hidden_positives_leave_the_fused_judge_alone(hidden: int) -> None:
    block = judged(informative=True, hidden=hidden)
    stack = fit(block)
    assert (stack.weight, stack.hidden) == (0, 0)
    found = stack(block)
    np.testing.assert_allclose(found.columns["p_relevant"], block.columns["p_evidence"], rtol=1e-5)
    np.testing.assert_allclose(found.positive_columns["p_relevant"], block.positive_columns["p_heldout"], rtol=1e-5)
