import statistics

import numpy as np
import pytest

from anmi.training import curriculum
from anmi.training.curriculum import LearningProgress
from anmi.training.parts import LearningProgressOptions


def run(curriculum: LearningProgress, losses, norms=None, validations=None) -> list[float]:
    """The difficulty after each step."""
    norms = [1.0] * len(losses) if norms is None else norms
    validations = validations or {}
    return [
        curriculum.observe(i + 1, loss, norm, validations.get(i)).difficulty
        for i, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


def made(steps: int = 100, start: float = 0.5, **options) -> LearningProgress:
    curriculum = LearningProgress(LearningProgressOptions(**{"window_steps": 4, **options}), steps, 7)
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


@pytest.fixture
def only_gains(monkeypatch):
    """Difficulty never changes but by a gain."""
    for name in ("_PLATEAU", "_FALLING"):
        monkeypatch.setattr(curriculum, name, -1.0)


def test_a_gain_counts_once(only_gains):
    flat = {"losses": [1.0] * 16, "norms": [float("nan")] * 16}
    assert run(made(), **flat, validations={1: 0.5, 9: 0.7}) == [0.5] * 11 + [0.55] * 5


def test_a_gain_is_of_the_last_three_against_the_three_before(only_gains, monkeypatch):
    monkeypatch.setattr(curriculum, "_RISING", 0.09)
    validations = dict(zip(range(16, 22), [0.5, 0.5, 0.5, 0.6, 0.6, 0.6], strict=True))
    assert run(made(), [1.0] * 24, [float("nan")] * 24, validations)[-1] == pytest.approx(0.55)


def test_stability_that_is_not_centred_only_ever_climbs():
    # Nothing is learned, and every third window is worse by a tenth.
    random = np.random.default_rng(1)
    losses = 1.0 + 0.1 * (np.arange(400) // 4 % 3 == 2)
    norms = random.uniform(0.8, 1.2, 400)
    naive = np.array(run(made(centred=False, start=0.0), losses, norms))
    ours = np.array(run(made(start=0.0), losses, norms))
    assert (np.diff(naive) >= 0).all()
    assert naive[-1] == 1.0
    assert (np.diff(ours) < 0).sum() > 10
    assert ours[-1] < 0.5


def test_difficulty_stays_within_bounds():
    assert max(run(made(), 2.0 ** -np.arange(80))) == 1.0
    assert min(run(made(), 1.1 ** np.arange(80))) == 0.0


def test_sliding_windows_decide_every_so_many_steps_by_the_two_behind_them():
    random = np.random.default_rng(2)
    losses = random.uniform(0.2, 1.0, 60)
    found = run(made(window_steps=8, every=3), losses, [float("nan")] * 60)
    difficulty, expected = 0.5, []
    for step in range(1, 61):
        if step >= 16 and step % 3 == 0:
            before, now = losses[step - 16 : step - 8].mean(), losses[step - 8 : step].mean()
            progress = (before - now) / before
            change = 0.05 if progress > 0.05 else -0.1 if progress < -0.02 else 0.02 if progress < 0.01 else 0.0
            difficulty = min(max(difficulty + change, 0.0), 1.0)
        expected.append(difficulty)
    assert found == pytest.approx(expected)
    assert len(set(found)) > 5


def test_a_stopped_training_goes_on_with_the_same_windows():
    losses = np.random.default_rng(3).uniform(0.2, 1.0, 40)
    whole, first, second = (made(window_steps=6, every=2) for _ in range(3))
    expected = run(whole, losses)
    run(first, losses[:17])
    second.load_state_dict(first.state_dict())
    assert run(second, losses[17:]) == expected[17:]


def test_a_window_is_a_twentieth_of_the_training():
    for steps, window in ((20, 5), (200, 10), (20_000, 100)):
        curriculum = LearningProgress(LearningProgressOptions(), steps, 7)
        found = run(curriculum, [1.0] * window + [0.5] * window)
        assert found.index(0.05) == 2 * window - 1


def test_harder_means_more_negatives_and_smaller_gaps():
    states = [made(start=d).state for d in (0.0, 0.5, 1.0)]
    assert [state.negatives for state in states] == [7, 9, 11]  # 8.75 and 10.5, a half goes up
    assert [(state.low, state.high) for state in states] == [(400, 600), (250, 500), (100, 400)]
    by_rank = [made(start=d, window="rank").state for d in (0.0, 1.0)]
    assert [(state.low, state.high) for state in by_rank] == [(0.5, 1.0), (0.0, 0.5)]
