"""Numbers by row and step."""

import numpy as np
from scipy import stats

from anmi.training.mixed.sampler import RowNumbers, _mixed

NAMES = [f"q{i}" for i in range(400)]


def test_mixes_as_published():
    """The first values of SplitMix64 with the seed 1234567, as in the reference implementation's tests."""
    states = np.uint64(1234567) + np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert _mixed(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_numbers_are_uniform_and_independent_between_rows_steps_and_slots():
    numbers = RowNumbers(1, "a", NAMES)
    drawn = np.stack([numbers(np.arange(400), step, 40) for step in range(12)])
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 0.001
    for axis in range(3):
        one, other = (np.take(drawn, range(a, drawn.shape[axis] + b), axis).ravel() for a, b in ((0, -1), (1, 0)))
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.012, "five standard deviations are 0.011"
    assert len(np.unique(drawn)) == drawn.size


def test_another_seed_or_stream_gives_others():
    rows = np.arange(50)
    one = RowNumbers(1, "a", NAMES)(rows, 3, 5)
    assert not (one == RowNumbers(2, "a", NAMES)(rows, 3, 5)).any()
    assert not (one == RowNumbers(1, "b", NAMES)(rows, 3, 5)).any()
    assert (one == RowNumbers(1, "a", NAMES)(rows, 3, 5)).all()
