"""Preferences of several judges, asked together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.special import expit, ndtr
from tests.judging.conftest import block_of

from anmi.candidates import Candidates
from anmi.errors import AnmiError
from anmi.judging import elo
from anmi.judging.preferences import comparisons, fit_slope, fit_temperature, pool, preference, sharpen
from anmi.judging.rating import Agreement, Rater, RatingOptions


def adjacency(first: np.ndarray, second: np.ndarray, valid: np.ndarray, size: int) -> np.ndarray:
    matrix = np.zeros((size, size), int)
    np.add.at(matrix, (first[valid], second[valid]), 1)
    return matrix + matrix.T


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    degree=st.sampled_from([2, 4, 8, 12, 20]),
    seed=st.integers(0, 1000),
)
def test_graphs_are_regular_connected_and_without_repeats(sizes: list[int], degree: int, seed: int) -> None:
    first, second, valid = comparisons([f"q{i}" for i in range(len(sizes))], np.array(sizes), degree, seed)
    for q, size in enumerate(sizes):
        assert first[q][valid[q]].max(initial=0) < size and second[q][valid[q]].max(initial=0) < size
        matrix = adjacency(first[q], second[q], valid[q], size)
        assert matrix.max() <= 1 and not matrix.diagonal().any()
        assert (matrix.sum(axis=1) == min(degree, size - 1)).all()
        assert np.isfinite(shortest_path(csr_matrix(matrix), unweighted=True)).all()


def test_every_pair_is_equally_likely() -> None:
    count, size = 1000, 11
    first, second, valid = comparisons([str(i) for i in range(count)], np.full(count, size), 4, seed=0)
    total = sum(adjacency(f, s, v, size) for f, s, v in zip(first, second, valid, strict=True))
    share = np.asarray(total)[np.triu_indices(size, 1)] / count
    assert np.abs(share - 4 / (size - 1)).max() < 5 * np.sqrt(0.4 * 0.6 / count)


@pytest.mark.parametrize("scale", [0.02, 30.0])
def test_the_temperature_of_simulated_judgments_is_found_again(scale: float) -> None:
    # The positive is the winner with probability σ(distance / T); seen is the difference of positive and other.
    rng = np.random.default_rng(0)
    distance = rng.gamma(2.0, 1.0, size=(20_000, 4)) * scale
    positive_wins = rng.random(distance.shape) < expit(distance / (0.7 * scale))
    others = -np.where(positive_wins, distance, -distance)
    others[::7, 0] = np.nan
    assert fit_temperature(np.zeros(20_000), others) == pytest.approx(0.7 * scale, rel=0.05)


@pytest.mark.parametrize("slope", [0.5, 2.5])
def test_the_slope_that_makes_pooled_preferences_calibrated_is_found_again(slope: float) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 1.5, size=(20_000, 2))
    stated = expit(odds)
    first_is_positive = rng.random(odds.shape) < expit(slope * odds)
    found = fit_slope(np.where(first_is_positive, stated, 1 - stated))
    assert found == pytest.approx(slope, rel=0.05)
    np.testing.assert_allclose(sharpen(stated, slope), expit(slope * odds), atol=1e-9)


class Reader:
    """A pairwise judge that answers by a function of the three texts and remembers what it was asked."""

    def __init__(self, answer: Callable[[str, str, str], float]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, str]] = []

    def prefer(self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        new = list(zip(queries, first, second, strict=True))
        self.asked += new
        return np.array([self.answer(*texts) for texts in new], float)


def by_number(query: str, first: str, second: str) -> float:
    """The document of the lower number wins."""
    return float(int(first[1:]) < int(second[1:]))


QUERIES = 2
FIRST, SECOND = np.array([[0, 2, 1, 0]] * QUERIES), np.array([[1, 1, 3, 3]] * QUERIES)
ALL = np.ones(FIRST.shape, bool)
PAIRS = (FIRST[0].tolist(), SECOND[0].tolist())


def rater(pairwise: Any, observations: float = 1.0, weights: dict[str, float] | None = None, **fitted: Any) -> Rater:
    options = RatingOptions(judges=weights or {}, pairwise_judges={"reader": observations}, depth=20)
    texts = {"query_texts": {f"q{q}": f"Q{q}" for q in range(40)}, "document_texts": [f"d{n}" for n in range(20)]}
    return Rater(options, seed=0, pairwise={"reader": pairwise}, **texts, **fitted)


def nodes(documents: Any, scores: dict[str, np.ndarray] | None = None) -> Candidates:
    """Queries whose first node is the positive and whose others are candidates."""
    documents, scores = np.array(documents), scores or {}
    columns, own = ({name: values[:, part] for name, values in scores.items()} for part in (slice(1, None), slice(1)))
    return block_of(documents[:, 1:], documents[:, :1], columns, own)


EIGHT = [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_pairwise_judge_is_asked_each_pair_once_with_its_texts_and_answers_are_turned_back() -> None:
    reader = Reader(by_number)
    share, votes = rater(reader, 2.0).ask(nodes(EIGHT), FIRST, SECOND, ALL)
    np.testing.assert_array_equal(share, (FIRST < SECOND).astype(float))
    np.testing.assert_array_equal(votes, 2.0)
    expected = {
        (f"Q{q}", *sorted((f"d{4 * q + a}", f"d{4 * q + b}"))) for q in range(2) for a, b in zip(*PAIRS, strict=True)
    }
    assert {(query, *sorted(shown)) for query, *shown in reader.asked} == expected and len(reader.asked) == 8


def test_half_of_the_pairs_are_shown_the_other_way_round_whoever_asks() -> None:
    many = 40
    a, b = np.triu_indices(20, 1)
    first, second = np.tile(a, (many, 1)), np.tile(b, (many, 1))
    reader = Reader(lambda query, first, second: 1.0)
    judges, block, valid = rater(reader), nodes(np.tile(np.arange(20), (many, 1))), np.ones(first.shape, bool)
    share, _ = judges.ask(block, first, second, valid)
    assert set(share.ravel()) == {0.0, 1.0} and share.mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(share.size))
    shown = set(reader.asked)
    other_way, _ = judges.ask(block, second, first, valid)
    np.testing.assert_array_equal(other_way, 1 - share)
    places = np.random.default_rng(0).permutation(first.shape[1])
    shuffled, _ = judges.ask(block, first[:, places], second[:, places], valid)
    np.testing.assert_array_equal(shuffled, share[:, places])
    assert set(reader.asked) == shown, "nobody pays for the other order"


def test_a_failed_answer_is_missing_and_a_copy_is_a_tie_without_a_question() -> None:
    reader = Reader(lambda query, first, second: np.nan if "d2" in (first, second) else 1.0)
    share, votes = rater(reader).ask(nodes([[0, 0, 2, 3], [4, 5, 6, 7]]), FIRST, SECOND, ALL)
    failed = (np.arange(QUERIES)[:, None] == 0) & ((FIRST == 2) | (SECOND == 2))
    assert share[0, 0] == 0.5 and votes[0, 0] == 1 and len(reader.asked) == 7
    assert np.isnan(share[failed]).all() and (votes[failed] == 0).all()
    assert np.isfinite(share[~failed]).all() and (votes[~failed] == 1).all()
    reader.prefer = lambda *texts: np.ones(7)  # type: ignore[method-assign]
    with pytest.raises(AnmiError, match="pairwise judge reader gave 7 answers to 8 comparisons"):
        rater(reader).ask(nodes(EIGHT), FIRST, SECOND, ALL)


def test_scores_and_readers_are_pooled_by_the_observations_that_each_counts_for() -> None:
    scores = np.array([[0.0, 1.0, np.nan, 3.0], [0.0, -1.0, 2.0, 5.0]])
    fitted = {"temperatures": {"dense": 1.0, "bm25": 2.0}, "slope": 1.5, "votes": 4.0}
    judges = rater(Reader(by_number), 2.0, {"dense": 1.0, "bm25": 3.0}, **fitted)
    block = nodes(EIGHT, {"dense": scores, "bm25": np.where(np.arange(4) == 3, np.nan, 2 * scores)})
    share, votes = judges.ask(block, FIRST, SECOND, ALL)
    for q in range(QUERIES):
        for place, (a, b) in enumerate(zip(*PAIRS, strict=True)):
            both = scores[q, a] - scores[q, b]
            stated = expit(1.5 * both)  # the mean of equal preferences, sharpened
            mass = 0.0 if np.isnan(both) else 4.0 if 3 not in (a, b) else 4.0 * 1 / 4
            expected = (2.0 * (a < b) + (0 if mass == 0 else mass * stated)) / (2.0 + mass)
            assert share[q, place] == pytest.approx(expected) and votes[q, place] == pytest.approx(2.0 + mass)


class World:
    """Documents with a true strength, judges who see it with an error of their own, and an annotator."""

    def __init__(self, noise: list[float], degree: int = 8, seed: int = 0, n: int = 17) -> None:
        rng = np.random.default_rng(seed)
        queries = 250
        self.sizes = np.full(queries, n)
        self.truth = rng.normal(0, 0.8, (queries, n))
        scores = [self.truth + rng.normal(0, sigma, self.truth.shape) for sigma in noise]
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

    def votes(self) -> float:
        agreement = Agreement(self.weights)
        agreement.add(self.first, self.second, self.judged, self.slope, self.sizes, 0.01)
        return agreement.votes()

    def held(self, votes: float) -> float:
        """Share of true gaps inside the nominal 95 % interval."""
        fitted = self.fit(votes)
        error = fitted.elo[:, :1] - fitted.elo - 200 * (self.truth[:, :1] - self.truth)
        return float((np.abs(error) <= 1.96 * fitted.gap_se)[:, 1:].mean())


@pytest.mark.parametrize("noise", [[0.6] * 6, [0.3, 0.6, 1.0]])
def test_intervals_hold_the_truth_at_least_as_often_as_they_say(noise: list[float]) -> None:
    world = World(noise)
    # Gaps of a query share its positive, so that 250 queries tell the coverage to about ± 0.02.
    assert 0.94 <= world.held(world.votes()) <= 0.995


def test_more_comparisons_of_the_same_scores_are_no_more_information() -> None:
    few, many = World([0.6] * 3, degree=4), World([0.6] * 3, degree=16)
    errors = [np.nanmean(world.fit(world.votes()).gap_se[:, 1:]) for world in (few, many)]
    assert errors[0] == pytest.approx(errors[1], rel=0.06)
    # One observation per comparison would have the errors halved.
    naive = [np.nanmean(world.fit().gap_se[:, 1:]) for world in (few, many)]
    assert naive[0] > 1.8 * naive[1]
