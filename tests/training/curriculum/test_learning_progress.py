import statistics

import numpy as np
import pytest

from anmi.training.curriculum.learning_progress import LearningProgress
from anmi.training.options.curricula import LearningProgressOptions


def run(curriculum: LearningProgress, losses, norms=None, validations=None) -> list[float]:
    """The difficulty after each step."""
    norms = [1.0] * len(losses) if norms is None else norms
    validations = validations or {}
    return [
        curriculum.observe(i + 1, loss, norm, validations.get(i)).difficulty
        for i, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


def made(steps: int = 100, **options) -> LearningProgress:
    return LearningProgress(LearningProgressOptions(**{"window_steps": 4, "start": 0.5, **options}), steps, 7)


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


def test_what_progress_is_by_hand():
    random = np.random.default_rng(0)
    losses, norms = random.uniform(0.5, 1.0, 12), random.uniform(1, 3, 12)
    decrease = 1 - losses[8:].mean() / losses[4:8].mean()
    s = [1 / (1 + part.std() / part.mean()) for part in np.split(norms, 3)]
    gain = 0.6 / 0.5 - 1
    progress = statistics.fmean([decrease, s[2] - (s[0] + s[1]) / 2, gain])
    # A threshold just below the expected progress is passed, one just above is not.
    for slack, expected in ((-1e-9, 0.25), (1e-9, 0.0)):
        curriculum = made(rising=progress + slack, plateau=-1.0, falling=-1.0, up=0.25)
        found = run(curriculum, losses, norms, {3: 0.5, 9: 0.6})
        assert found[-1] - found[-2] == pytest.approx(expected)


def test_a_gain_counts_once():
    flat = {"losses": [1.0] * 16, "norms": [float("nan")] * 16}
    curriculum = made(plateau=-1.0, falling=-1.0)
    assert run(curriculum, **flat, validations={1: 0.5, 9: 0.7}) == [0.5] * 11 + [0.55] * 5


def test_a_gain_is_of_the_last_three_against_the_three_before():
    curriculum = made(plateau=-1.0, falling=-1.0, rising=0.09)
    validations = dict(zip(range(16, 22), [0.5, 0.5, 0.5, 0.6, 0.6, 0.6], strict=True))
    assert run(curriculum, [1.0] * 24, [float("nan")] * 24, validations)[-1] == pytest.approx(0.55)


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
    assert max(run(made(up=0.4), 2.0 ** -np.arange(40))) == 1.0
    assert min(run(made(down=0.4), 1.1 ** np.arange(40))) == 0.0


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


def test_thresholds_out_of_order_are_refused():
    with pytest.raises(ValueError, match="in this order"):
        LearningProgressOptions(rising=0.0, plateau=0.5)
