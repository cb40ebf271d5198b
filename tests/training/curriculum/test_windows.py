"""Curricula with a window."""

import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.training import curriculum
from anmi.training.curriculum import Bandit, Course, LearningProgress, Tiers, build_curriculum
from anmi.training.parts import (
    BanditOptions,
    LearningProgressOptions,
    LinearOptions,
    StepOptions,
    TiersOptions,
    TriggeredOptions,
)

STEPS = 60
KINDS = [
    TiersOptions(), TiersOptions(window="rank"), LearningProgressOptions(window_steps=3),
    LearningProgressOptions(window="rank", window_steps=3, as_published=True), BanditOptions(),
]  # fmt: skip
OBSERVATIONS = st.lists(
    st.tuples(
        st.floats(0, 20), st.one_of(st.floats(0, 1e6), st.just(float("nan"))), st.one_of(st.none(), st.floats(0, 1))
    ),
    min_size=STEPS,
    max_size=STEPS,
)


def make(options):
    return build_curriculum(options, STEPS, seed=3, negatives=5)


SCHEDULES = [LinearOptions(), StepOptions(), TriggeredOptions(), TriggeredOptions(measure="validation")]


@pytest.mark.parametrize("options", [*KINDS, *SCHEDULES], ids=repr)
@given(observations=OBSERVATIONS, cut=st.integers(0, STEPS - 1))
@settings(max_examples=12)
def test_a_curriculum_read_back_goes_on_as_if_nothing_had_happened(options, observations, cut):
    def again():
        mix = (0.2, 0.5, 0.3, 0.0) if options in SCHEDULES else None
        return build_curriculum(options, STEPS, seed=3, negatives=5, mix=mix, epochs=10)

    whole, first = again(), again()
    observations = [(*seen, seen[0] / 20) for seen in observations]
    for step, seen in enumerate(observations[:cut], start=1):
        assert whole.observe(step, *seen) == first.observe(step, *seen)
    second = again()
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    assert second.state == whole.state
    for step, seen in enumerate(observations[cut:], start=cut + 1):
        assert second.observe(step, *seen) == whole.observe(step, *seen)
    assert second.transitions == whole.transitions


@pytest.mark.parametrize("options", KINDS, ids=repr)
@given(observations=OBSERVATIONS)
@settings(max_examples=15)
def test_states_are_possible(options, observations):
    curriculum = make(options)
    for step, seen in enumerate(observations, start=1):
        state = curriculum.observe(step, *seen)
        assert 0 <= state.difficulty <= 1
        assert state.low < state.high
        assert 5 <= state.negatives <= 8
        if options.window == "elo":
            assert state.low >= 100
        else:
            assert state.low >= 0
            assert state.high <= 1


def test_tiers_follow_each_other_in_equal_parts_and_see_the_gaps_of_methods():
    curriculum, seen = Tiers(TiersOptions(), Course(8)), []
    for step in range(1, 9):
        seen.append((curriculum.state.tier, curriculum.state.low, curriculum.state.high))
        curriculum.observe(step, 1.0, 1.0, None)
    assert seen == [(tier, low, math.inf) for tier, low in ((1, 600), (2, 400), (3, 200), (4, 100)) for _ in range(2)]


def posteriors(bandit: Bandit) -> list[tuple[float, float]]:
    state = bandit.state_dict()
    return list(zip(state["alpha"], state["beta"], strict=True))


def test_the_dev_metric_is_the_reward_of_the_arm_that_was_held():
    bandit, step = Bandit(BanditOptions(), Course(seed=1)), 0
    for validation in (0.9, 0.25, 0.5):
        arm, before = round(bandit.state.difficulty * 3), posteriors(bandit)
        for seen in (validation, None, None):
            step += 1
            bandit.observe(step, 1.0, 1.0, seen)
        reward = np.zeros(2) if step == 3 else np.array([validation, 1 - validation])
        change = np.zeros((4, 2))
        change[arm] = reward
        assert np.subtract(posteriors(bandit), before) == pytest.approx(change)


def test_the_bandit_needs_dev_queries():
    with pytest.raises(AnmiError, match="no dev queries"):
        build_curriculum(BanditOptions(), 10, 1, 5, dev=False)


def run(curriculum: LearningProgress, losses, norms=None, validations=None) -> list[float]:
    """The difficulty after each step."""
    norms = [1.0] * len(losses) if norms is None else norms
    validations = validations or {}
    return [
        curriculum.observe(i + 1, loss, norm, validations.get(i)).difficulty
        for i, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


def made(start: float = 0.5, **options) -> LearningProgress:
    curriculum = LearningProgress(LearningProgressOptions(**{"window_steps": 4, **options}), Course(negatives=7))
    curriculum._difficulty = start
    return curriculum


@pytest.mark.parametrize(
    ("second", "change"),
    [
        (0.8, 0.05),  # progress 0.2
        (1.2, -0.1),  # −0.2
        (1.0, 0.02),  # plateau
        (1.01, 0.02),  # −0.01, worse but not by enough
        (0.97, 0.0),  # 0.03, slow but steady
    ],
)
def test_policy_of_methods(second, change):
    # Norms that are not measured leave the loss to decide alone.
    found = run(made(), [1.0] * 4 + [second] * 4, norms=[float("nan")] * 8)
    assert found[:7] == [0.5] * 7
    assert found[7] == pytest.approx(0.5 + change)


def test_what_progress_is_by_hand(monkeypatch):
    random = np.random.default_rng(0)
    losses, norms = random.uniform(0.5, 1.0, 12), random.uniform(1, 3, 12)
    decrease = 1 - losses[8:].mean() / losses[4:8].mean()
    s = [1 / (1 + part.std() / part.mean()) for part in np.split(norms, 3)]
    gain = 0.6 / 0.5 - 1
    progress = statistics.fmean([decrease, s[2] - (s[0] + s[1]) / 2, gain])
    # A threshold just below the expected progress is passed, one just above is not.
    for name, value in (("_UP", 0.25), ("_PLATEAU", -1.0), ("_FALLING", -1.0)):
        monkeypatch.setattr(curriculum, name, value)
    for slack, expected in ((-1e-9, 0.25), (1e-9, 0.0)):
        monkeypatch.setattr(curriculum, "_RISING", progress + slack)
        found = run(made(), losses, norms, {3: 0.5, 9: 0.6})
        assert found[-1] - found[-2] == pytest.approx(expected)


def test_as_published_every_step_decides_by_the_windows_behind_it():
    random = np.random.default_rng(1)
    losses, norms = np.exp(random.normal(0, 0.6, 60)).cumprod(), random.uniform(0.1, 3, 60)
    curriculum = made(window_steps=8, as_published=True, start=0.0)
    difficulty, expected = 0.0, []
    for step in range(1, 61):
        before, now = losses[max(step - 16, 0) : step - 8], losses[max(step - 8, 0) : step]
        decrease = (before.mean() - now.mean()) / before.mean() if step >= 16 else 0.0
        stability = 1 / (1 + norms[step - 8 : step].std() / norms[step - 8 : step].mean()) if step >= 8 else 0.0
        progress = (decrease + stability) / 2
        change = 0.05 if progress > 0.05 else -0.1 if progress < -0.02 else 0.02 if progress < 0.01 else 0.0
        difficulty = min(max(difficulty + change, 0.0), 1.0)
        expected.append(difficulty)
    assert run(curriculum, losses, norms) == pytest.approx(expected)
    assert min(np.diff(expected)) < 0 < max(np.diff(expected))


def test_a_window_is_a_twentieth_of_the_training():
    for steps, window in ((20, 5), (200, 10), (20_000, 100)):
        curriculum = LearningProgress(LearningProgressOptions(), Course(steps))
        found = run(curriculum, [1.0] * window + [0.5] * window)
        assert found.index(0.05) == 2 * window - 1


def test_harder_means_more_negatives_and_smaller_gaps():
    states = [made(start=d).state for d in (0.0, 0.5, 1.0)]
    assert [state.negatives for state in states] == [7, 8, 10]  # 8.75 and 10.5, cut
    assert [(state.low, state.high) for state in states] == [(400, 600), (250, 500), (100, 400)]
    by_rank = [made(start=d, window="rank").state for d in (0.0, 1.0)]
    assert [(state.low, state.high) for state in by_rank] == [(0.5, 1.0), (0.0, 0.5)]
