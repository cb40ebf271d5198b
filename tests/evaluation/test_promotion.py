"""The rule by which a challenger becomes champion."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from anmi.errors import AnmiError
from anmi.evaluation.promotion import FalseNegativeRate, PromotionRule, decide

CLEAN = FalseNegativeRate(0.01, 0.005, 0.02, 10, 1000)
RULE = PromotionRule(training_noise=0.004)  # So that the margin decides.


def scores(values: object) -> pd.Series:
    array = np.asarray(values, float)
    return pd.Series(array, index=[f"q{i}" for i in range(len(array))])


@pytest.fixture(scope="module")
def old() -> pd.Series:
    return scores(np.random.default_rng(1).random(400))


def test_the_bound_is_that_of_a_one_sided_t_test(old: pd.Series) -> None:
    """An independent oracle: with many queries both say the same."""
    rng = np.random.default_rng(2)
    new = old + rng.normal(0.002, 0.05, len(old))
    found = decide(new, old, CLEAN, RULE, seed=1)
    lower = stats.ttest_rel(new, old, alternative="greater").confidence_interval(0.95).low
    assert found.figures["bound"] == pytest.approx(lower, abs=3e-4)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=50, max_size=80),
    st.floats(0, 0.5),
    st.integers(0, 9),
)
def test_a_better_challenger_is_never_worse_off(
    pairs: list[tuple[float, float]], gain: float, seed: int
) -> None:
    new, old = scores([a for a, _ in pairs]), scores([b for _, b in pairs])
    before = decide(new, old, CLEAN, RULE, seed=seed, resamples=200)
    after = decide(new + gain, old, CLEAN, RULE, seed=seed, resamples=200)
    assert after.figures["bound"] >= before.figures["bound"] + gain - 1e-9
    assert (before.decision, after.decision) != ("promoted", "kept")


@pytest.mark.parametrize(
    ("rate", "reason"),
    [
        (CLEAN, None),
        ("planting measures nothing", None),
        (FalseNegativeRate(0.2, 0.15, 0.25, 20, 100), "20.00%.*exceeds"),
        (FalseNegativeRate(0.02, 0.0, 0.09, 1, 50), r"audit\.queries"),
        (FalseNegativeRate(math.nan, 0, 1, 0, 0), "not known"),
        (FalseNegativeRate(0.0, 0, 0, 0, 0, "it has no judge"), "not known"),
    ],
)
def test_what_leaks_or_may_leak_is_not_promoted(rate, reason, old):
    for champion in (None, old):
        found = decide(old, champion, rate, RULE, seed=1)
        assert found.decision == ("kept" if reason else "promoted")
        assert reason is None or re.search(reason, " ".join(found.reasons))


def test_few_queries_are_not_compared() -> None:
    found = decide(scores([1.0] * 20), scores([0.0] * 20), CLEAN, RULE, seed=1)
    assert found.decision == "kept"
    assert "retrain.rule.min_queries" in found.reasons[0]
    assert decide(scores([1.0] * 20), None, CLEAN, RULE, seed=1).decision == "promoted"


def test_other_queries_are_refused(old: pd.Series) -> None:
    with pytest.raises(AnmiError, match="different queries"):
        decide(old, old.iloc[1:], CLEAN, RULE, seed=1)
    with pytest.raises(AnmiError, match="different queries"):
        decide(old, old.rename({"q0": "q1"}), CLEAN, RULE, seed=1)


def test_a_loss_on_unlabelled_documents_keeps_the_champion(old: pd.Series) -> None:
    unlabelled = old.index[:100].tolist()
    new = old + 0.05
    new[unlabelled] -= 0.07
    assert decide(new, old, CLEAN, RULE, seed=1).decision == "promoted", "gained over all"
    found = decide(new, old, CLEAN, RULE, seed=1, unlabelled=unlabelled)
    assert found.decision == "kept"
    assert found.figures["unlabelled_difference"] == pytest.approx(-0.02)
    assert any("on the 100 queries" in reason for reason in found.reasons)
    bolder = PromotionRule(margin=0.03)
    assert decide(new, old, CLEAN, bolder, seed=1, unlabelled=unlabelled).decision == "promoted"


def test_what_the_seed_alone_makes_may_be_lost_and_is_said() -> None:
    base = scores(np.linspace(0, 1, 400))
    noisy = PromotionRule(training_noise=0.01)
    lost = decide(base - 0.02, base, CLEAN, noisy, seed=1)
    assert lost.decision == "promoted" and any("may be luck" in reason for reason in lost.reasons)
    assert lost.figures["margin"] == pytest.approx(stats.norm.ppf(0.95) * np.sqrt(2) * 0.01)
    quiet = decide(base - 0.02, base, CLEAN, PromotionRule(training_noise=0.005), seed=1)
    assert quiet.decision == "kept" and not any("may be luck" in reason for reason in quiet.reasons)
