"""Further comparisons: whom they go to, and that they pay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from anmi.judging import elo
from anmi.judging.adaptive import ZONE_BORDERS, doubt, further_comparisons
from anmi.judging.preferences import comparisons


def strengths(values: np.ndarray, gap_se: np.ndarray) -> elo.Strengths:
    return elo.Strengths(values, gap_se, gap_se, 0)


def test_doubt_is_the_distance_of_the_gap_from_the_nearest_border_in_errors() -> None:
    fitted = strengths(np.array([[1000.0, 880.0, 650.0, 100.0, np.nan]]), np.array([[0.0, 40, 50, 100, np.nan]]))
    np.testing.assert_allclose(doubt(fitted)[0], [np.nan, 20 / 40, 50 / 50, 300 / 100, np.nan])


def test_the_doubtful_meet_the_positive_first_and_then_who_is_nearest() -> None:
    # Gaps 0, 110, 150, 190, 1500; only the last is certain. Document 1 has met the positive already.
    fitted = strengths(np.array([[1500.0, 1390, 1350, 1310, 0]]), np.full((1, 5), 30.0))
    first, second, asked = np.array([[0, 3]]), np.array([[1, 4]]), np.array([[True, False]])

    def chosen(count: int) -> set[tuple[int, int]]:
        a, b, valid = further_comparisons(first, second, asked, fitted, count, 1.96)
        return set(zip(a[valid].tolist(), b[valid].tolist(), strict=True))

    assert chosen(1) == {(0, 3)}  # 10 from the border at 200
    assert chosen(2) == {(0, 3), (0, 2)}
    assert chosen(3) == {(0, 3), (0, 2), (1, 2)}
    assert chosen(4) == {(0, 3), (0, 2), (1, 2), (2, 3)}
    assert chosen(40) == {(0, 2), (0, 3), (1, 2), (2, 3), (1, 3), (1, 4), (2, 4), (3, 4)}


def test_who_is_certain_asks_for_nothing() -> None:
    fitted = strengths(np.array([[1500.0, 1000, 990, 0]]), np.full((1, 4), 30.0))
    nothing = (np.zeros((1, 0), int), np.zeros((1, 0), int), np.zeros((1, 0), bool))
    assert not further_comparisons(*nothing, fitted, 5, 1.96)[2].any()
    assert further_comparisons(*nothing, fitted, 5, 10.0)[2].sum() == 5


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), count=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_no_pair_is_asked_twice_and_a_query_does_not_depend_on_the_others(
    sizes: list[int], count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    first, second, valid = comparisons([str(q) for q in range(len(sizes))], np.array(sizes), 4, seed)
    share = np.where(valid, rng.integers(0, 3, valid.shape) / 2, np.nan)
    fitted = elo.fit(first, second, share, np.array(sizes))
    a, b, new = further_comparisons(first, second, valid, fitted, count, 1.96)
    for q, size in enumerate(sizes):
        old = {frozenset(p) for p in zip(first[q][valid[q]], second[q][valid[q]], strict=True)}
        added = [frozenset(p) for p in zip(a[q][new[q]], b[q][new[q]], strict=True)]
        assert len(added) == len(set(added)) and not old & set(added)
        assert all(len(pair) == 2 and max(pair) < size for pair in added)
        own = np.flatnonzero(valid[q])
        alone = elo.fit(first[[q]][:, own], second[[q]][:, own], share[[q]][:, own], np.array([size]))
        c, d, n = further_comparisons(first[[q]][:, own], second[[q]][:, own], valid[[q]][:, own], alone, count, 1.96)
        assert {frozenset(p) for p in zip(c[0][n[0]], d[0][n[0]], strict=True)} == set(added)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_budget_spent_on_the_doubtful_buys_more_than_one_spent_at_random(rounds: int) -> None:
    queries, size, budget = 150, 31, 32
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 0.8, (queries, size))
    truth[:, 0] += 1.5
    row = np.arange(queries)[:, None]
    luck = rng.random((queries, size, size))

    def ask(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A noisy judge that sticks to what it said of a pair."""
        low, high = np.minimum(a, b), np.maximum(a, b)
        low_wins = luck[row, low, high] < ndtr((truth[row, low] - truth[row, high]) / np.sqrt(2))
        return np.where(a == low, low_wins, ~low_wins).astype(float)

    def spend(doubtful: bool) -> tuple[float, float]:
        first, second, valid = comparisons([str(q) for q in range(queries)], np.full(queries, size), 8, 0)
        sizes = np.full(queries, size)
        fitted = elo.fit(first, second, np.where(valid, ask(first, second), np.nan), sizes)
        for _ in range(rounds):
            if doubtful:
                further = further_comparisons(first, second, valid, fitted, budget // rounds, 1.96)
            else:
                met = np.zeros((queries, size, size), bool)
                place = np.nonzero(valid)
                met[place[0], first[place], second[place]] = met[place[0], second[place], first[place]] = True
                pairs = np.triu_indices(size, 1)
                draw = np.where(met[:, pairs[0], pairs[1]], 2.0, rng.random((queries, len(pairs[0]))))
                taken = np.argsort(draw, axis=1)[:, : budget // rounds]
                further = (pairs[0][taken], pairs[1][taken], np.ones(taken.shape, bool))
            first, second, valid = (
                np.concatenate(both, axis=1) for both in zip((first, second, valid), further, strict=True)
            )
            fitted = elo.fit(first, second, np.where(valid, ask(first, second), np.nan), sizes)
        assert valid.sum() == queries * (size * 4 + budget)
        gap, true_gap = fitted.elo[:, :1] - fitted.elo, 200 * (truth[:, :1] - truth)
        right = np.searchsorted(ZONE_BORDERS, gap) == np.searchsorted(ZONE_BORDERS, true_gap)
        return float((doubt(fitted)[:, 1:] < 1.96).mean()), float(right[:, 1:].mean())

    (straddling, right), (random_straddling, random_right) = spend(True), spend(False)
    assert straddling < random_straddling
    assert right > random_right + 0.02
