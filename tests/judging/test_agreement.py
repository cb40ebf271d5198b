"""What pooled preferences are worth: intervals from it hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, ndtr

from anmi.judging import elo
from anmi.judging.preferences import comparisons, fit_slope, fit_temperature, pool, preference, sharpen
from anmi.judging.rating import Agreement


class World:
    """Documents with a true strength, judges who see it with an error of their own, and an annotator."""

    def __init__(self, noise: list[float], degree: int = 8, common: float = 0.0, seed: int = 0, n: int = 17) -> None:
        rng = np.random.default_rng(seed)
        queries = 250
        self.sizes = np.full(queries, n)
        self.truth = rng.normal(0, 0.8, (queries, n))
        seen = self.truth + rng.normal(0, 1, self.truth.shape) * common
        scores = [seen + rng.normal(0, sigma, seen.shape) for sigma in noise]
        # The annotator compares node 0 with each other and calls the winner the positive.
        wins = rng.random((queries, n - 1)) < ndtr((self.truth[:, :1] - self.truth[:, 1:]) / np.sqrt(2))
        labelled = [np.where(wins, s[:, :1] - s[:, 1:], s[:, 1:] - s[:, :1]) for s in scores]
        temperatures = [fit_temperature(np.zeros(queries), -difference) for difference in labelled]
        self.weights = [1.0] * len(noise)
        self.slope = fit_slope(pool([expit(d / t) for d, t in zip(labelled, temperatures, strict=True)], self.weights))
        ids = [str(q) for q in range(queries)]
        self.first, self.second, valid = comparisons(ids, self.sizes, degree, seed)
        self.judged = [
            np.where(valid, preference(s, self.first, self.second, t), np.nan)
            for s, t in zip(scores, temperatures, strict=True)
        ]
        self.pooled = pool(self.judged, self.weights)

    def fit(self, votes: float = 1.0) -> elo.Strengths:
        return elo.fit(self.first, self.second, sharpen(self.pooled, self.slope), self.sizes, votes=votes)

    def votes(self, common: float = 0.0) -> float:
        agreement = Agreement(self.weights)
        fitted = self.fit()
        agreement.add(self.first, self.second, self.judged, self.pooled, self.slope, fitted, 0.01)
        return agreement.votes(common)

    def held(self, votes: float) -> float:
        """Share of true gaps inside the nominal 95 % interval."""
        fitted = self.fit(votes)
        error = fitted.elo[:, :1] - fitted.elo - 200 * (self.truth[:, :1] - self.truth)
        return float((np.abs(error) <= 1.96 * fitted.gap_se)[:, 1:].mean())


@pytest.mark.parametrize("noise", [[0.3] * 3, [0.6] * 2, [0.6] * 6, [0.3, 0.6, 1.0], [1.0] * 3])
def test_intervals_hold_the_truth_at_least_as_often_as_they_say(noise: list[float]) -> None:
    world = World(noise)
    # Gaps of a query share its positive, so that 250 queries tell the coverage to about ± 0.02.
    assert 0.88 <= world.held(world.votes()) <= 0.98
    assert 0.94 <= world.held(world.votes(common=0.1)) <= 0.995


def test_an_error_that_judges_have_in_common_is_made_up_for_by_assuming_it() -> None:
    # 0.3² of 0.3² + 0.6² is a fifth.
    world = World([0.6] * 3, common=0.3)
    assert world.held(world.votes()) < 0.85
    assert world.held(world.votes(common=0.2)) > 0.89


def test_more_comparisons_of_the_same_scores_are_no_more_information() -> None:
    few, many = World([0.6] * 3, degree=4), World([0.6] * 3, degree=16)
    errors = [np.nanmean(world.fit(world.votes()).gap_se[:, 1:]) for world in (few, many)]
    assert errors[0] == pytest.approx(errors[1], rel=0.06)
    # One observation per comparison would have the errors halved.
    naive = [np.nanmean(world.fit().gap_se[:, 1:]) for world in (few, many)]
    assert naive[0] > 1.8 * naive[1]


def test_judges_who_agree_more_are_worth_more() -> None:
    assert World([0.3] * 3).votes() > World([0.6] * 3).votes() > World([1.2] * 3).votes()
    assert World([0.6] * 6).votes() > World([0.6] * 2).votes()


def test_the_more_error_is_taken_to_be_common_the_less_they_are_worth() -> None:
    world = World([0.6] * 3)
    votes = [world.votes(common) for common in (0.0, 0.1, 0.2, 0.5)]
    assert votes == sorted(votes, reverse=True) and votes[-1] > 0


def test_a_single_judge_counts_once_and_copies_of_one_do_not_count_without_end() -> None:
    alone = World([0.6])
    assert alone.votes() == 1.0
    copies = World([0.6])
    copies.weights, copies.judged = [1.0, 1.0], copies.judged * 2
    copies.judged[1] = copies.judged[0] + 1e-9
    assert copies.votes() == 100.0


def test_a_heavier_judge_among_light_ones_counts_by_its_weight() -> None:
    world = World([0.6] * 3)
    world.weights = [1.0, 1e-6, 1e-6]
    world.pooled = pool(world.judged, world.weights)
    agreement = Agreement(world.weights)
    assert agreement.judges == pytest.approx(1.0, abs=1e-4)
    assert Agreement([2.0, 2.0]).judges == pytest.approx(2.0)


def test_queries_can_be_added_block_by_block() -> None:
    world = World([0.6] * 3)
    parts = Agreement(world.weights)
    for rows in (slice(0, 100), slice(100, None)):
        pooled = sharpen(world.pooled[rows], world.slope)
        fitted = elo.fit(world.first[rows], world.second[rows], pooled, world.sizes[rows])
        judged = [each[rows] for each in world.judged]
        parts.add(world.first[rows], world.second[rows], judged, world.pooled[rows], world.slope, fitted, 0.01)
    assert parts.votes(0.2) == pytest.approx(world.votes(0.2), rel=1e-9)
