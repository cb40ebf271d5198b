"""Elo: preferences of several judges, asked together, the strengths that follow, and ratings of candidates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.special import expit, ndtr, ndtri
from scipy.stats import norm
from tests.judging.conftest import block_of

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging import elo
from anmi.judging.preferences import (
    comparisons,
    fit_slope,
    fit_temperature,
    pool,
    preference,
    sharpen,
)
from anmi.judging.rating import Rater, RatingOptions


def adjacency(first: np.ndarray, second: np.ndarray, valid: np.ndarray, size: int) -> np.ndarray:
    matrix = np.zeros((size, size), int)
    np.add.at(matrix, (first[valid], second[valid]), 1)
    return matrix + matrix.T


def graph(sizes: list[int], degree: int = 8, seed: int = 0) -> Any:
    return comparisons([f"q{row}" for row in range(len(sizes))], np.array(sizes), degree, seed)


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    degree=st.sampled_from([2, 4, 8, 12, 20]),
    seed=st.integers(0, 1000),
)
def test_graphs_are_regular_connected_and_without_repeats(
    sizes: list[int], degree: int, seed: int
) -> None:
    for size, first, second, valid in zip(sizes, *graph(sizes, degree, seed), strict=True):
        assert max(first[valid].max(initial=0), second[valid].max(initial=0)) < size
        matrix = adjacency(first, second, valid, size)
        assert matrix.max() <= 1 and not matrix.diagonal().any()
        assert (matrix.sum(axis=1) == min(degree, size - 1)).all()
        assert np.isfinite(shortest_path(csr_matrix(matrix), unweighted=True)).all()


def test_every_pair_is_equally_likely() -> None:
    count, size = 1000, 11
    edges = zip(*graph([size] * count, 4), strict=True)
    total = np.asarray(sum(adjacency(*edge, size) for edge in edges))
    share = total[np.triu_indices(size, 1)] / count
    assert np.abs(share - 4 / (size - 1)).max() < 5 * np.sqrt(0.4 * 0.6 / count)


@pytest.mark.parametrize("scale", [0.02, 30.0])
def test_the_temperature_of_simulated_judgments_is_found_again(scale: float) -> None:
    # The positive is the winner with probability σ(distance / T); seen is the difference of
    # positive and other.
    rng = np.random.default_rng(0)
    distance = rng.gamma(2.0, 1.0, size=(20_000, 4)) * scale
    positive_wins = rng.random(distance.shape) < expit(distance / (0.7 * scale))
    others = -np.where(positive_wins, distance, -distance)
    others[::7, 0] = np.nan
    assert fit_temperature(np.zeros(20_000), others) == pytest.approx(0.7 * scale, rel=0.05)


class Reader:
    """A pairwise judge that answers by a function of the three texts and remembers what it was asked."""

    def __init__(self, answer: Callable[[str, str, str], float]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, str]] = []

    def prefer(
        self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> np.ndarray:
        new = list(zip(queries, first, second, strict=True))
        self.asked += new
        return np.array([self.answer(*texts) for texts in new], float)


def by_number(query: str, first: str, second: str) -> float:
    """The document of the lower number wins."""
    return float(int(first[1:]) < int(second[1:]))


QUERIES = 2
FIRST, SECOND = np.array([[0, 2, 1, 0]] * QUERIES), np.array([[1, 1, 3, 3]] * QUERIES)
ALL = np.ones(FIRST.shape, bool)
PAIRS = list(zip(FIRST[0].tolist(), SECOND[0].tolist(), strict=True))


def rater(
    pairwise: Any, weight: float = 1.0, weights: dict[str, float] | None = None, **fitted: Any
) -> Rater:
    options = RatingOptions(judges=weights or {}, pairwise_judges={"reader": weight}, depth=20)
    queries = {f"q{q}": f"Q{q}" for q in range(40)}
    documents = [f"d{n}" for n in range(20)]
    return Rater(options, 0, {"reader": pairwise}, queries, documents, **fitted)


def nodes(documents: Any, scores: dict[str, np.ndarray] | None = None) -> Candidates:
    """Queries whose first node is the positive and whose others are candidates."""
    documents, scores = np.array(documents), scores or {}
    columns = {name: values[:, 1:] for name, values in scores.items()}
    own = {name: values[:, :1] for name, values in scores.items()}
    return block_of(documents[:, 1:], documents[:, :1], columns, own)


EIGHT = [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_pairwise_judge_is_asked_each_pair_once_and_answers_are_turned_back() -> None:
    reader = Reader(by_number)
    share, votes = rater(reader, 2.0).ask(nodes(EIGHT), FIRST, SECOND, ALL)
    np.testing.assert_array_equal(share, (FIRST < SECOND).astype(float))
    np.testing.assert_array_equal(votes, 2.0)
    expected = sorted(
        (f"Q{q}", *sorted((f"d{4 * q + a}", f"d{4 * q + b}"))) for q in range(2) for a, b in PAIRS
    )
    assert sorted((query, *sorted(shown)) for query, *shown in reader.asked) == expected


def test_half_of_the_pairs_are_shown_the_other_way_round_whoever_asks() -> None:
    many = 40
    first, second = (np.tile(side, (many, 1)) for side in np.triu_indices(20, 1))
    reader = Reader(lambda query, first, second: 1.0)
    judges, block = rater(reader), nodes(np.tile(np.arange(20), (many, 1)))
    valid = np.ones(first.shape, bool)
    share, _ = judges.ask(block, first, second, valid)
    assert set(share.ravel()) == {0.0, 1.0}
    assert share.mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(share.size))
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
    assert share[0, 0] == 0.5 and len(reader.asked) == 7
    assert (np.isnan(share) == failed).all() and (votes == ~failed).all()
    reader.prefer = lambda *texts: np.ones(7)  # type: ignore[method-assign]
    with pytest.raises(AnmiError, match="reader gave 7 answers to 8 comparisons"):
        rater(reader).ask(nodes(EIGHT), FIRST, SECOND, ALL)


def test_score_columns_count_for_one_observation_beside_pairwise_judges() -> None:
    scores = np.array([[0.0, 1.0, np.nan, 3.0], [0.0, -1.0, 2.0, 5.0]])
    temperatures = {"dense": 1.0, "bm25": 2.0}
    weights = {"dense": 1.0, "bm25": 3.0}
    judges = rater(Reader(by_number), 2.0, weights, temperatures=temperatures, slope=1.5)
    block = nodes(EIGHT, {"dense": scores, "bm25": np.where(np.arange(4) == 3, np.nan, 2 * scores)})
    share, votes = judges.ask(block, FIRST, SECOND, ALL)
    for q in range(QUERIES):
        for place, (a, b) in enumerate(PAIRS):
            gap = scores[q, a] - scores[q, b]
            mass = 0.0 if np.isnan(gap) else 1 / 4 if 3 in (a, b) else 1.0
            # The mean of equal preferences, sharpened.
            expected = (2.0 * (a < b) + (mass * expit(1.5 * gap) if mass else 0.0)) / (2.0 + mass)
            assert share[q, place] == pytest.approx(expected)
            assert votes[q, place] == pytest.approx(2.0 + mass)


@pytest.mark.parametrize("slope", [0.5, 2.5])
def test_the_slope_that_makes_pooled_preferences_calibrated_is_found_again(slope: float) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 1.5, size=(20_000, 2))
    stated = expit(odds)
    is_first_positive = rng.random(odds.shape) < expit(slope * odds)
    fitted = fit_slope(np.where(is_first_positive, stated, 1 - stated))
    assert fitted == pytest.approx(slope, rel=0.05)
    np.testing.assert_allclose(sharpen(stated, slope), expit(slope * odds), atol=1e-9)


@pytest.mark.parametrize("noise", [[0.6] * 6, [0.3, 0.6, 1.0], [0.6]])
def test_intervals_hold_the_truth_at_least_as_often_as_they_say(noise: list[float]) -> None:
    """Judges see true strengths with errors of their own; an annotator calls the winner positive."""
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 0.8, (250, 17))
    wins = rng.random((250, 16)) < ndtr((truth[:, :1] - truth[:, 1:]) / np.sqrt(2))
    first, second, valid = graph([17] * 250)
    votes = []
    labelled = []
    for deviation in noise:
        scores = truth + rng.normal(0, deviation, truth.shape)
        gap = scores[:, :1] - scores[:, 1:]
        temperature = fit_temperature(np.zeros(250), np.where(wins, -gap, gap))
        votes.append(preference(scores, first, second, temperature))
        labelled.append(expit(np.where(wins, gap, -gap) / temperature))
    share, mass = pool(votes, [1 / len(votes)] * len(votes))
    if len(noise) > 1:
        share = sharpen(share, fit_slope(pool(labelled, [1.0] * len(labelled))[0]))
    fitted = elo.fit(first, second, np.where(valid, share, np.nan), np.full(250, 17), votes=mass)
    error = fitted.elo[:, :1] - fitted.elo - 200 * (truth[:, :1] - truth)
    assert (np.abs(error) <= 1.96 * fitted.gap_se)[:, 1:].mean() >= 0.94


PRIOR = 0.01


def slow_fit(
    first: np.ndarray, second: np.ndarray, share: np.ndarray, votes: np.ndarray, size: int
) -> np.ndarray:
    """One query's Elo by a general optimiser on the objective as it is written down."""
    known = ~np.isnan(share)
    a, b, p, mass = first[known], second[known], share[known], votes[known]

    def loss(e: np.ndarray) -> float:
        z = (e[a] - e[b]) / np.sqrt(2)
        return -float(
            (mass * (p * norm.logcdf(z) + (1 - p) * norm.logcdf(-z))).sum()
            - PRIOR / 2 * (e**2).sum()
        )

    found = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-9}).x
    return np.asarray(1000 + 200 * (found - found.mean()))


@given(sizes=st.lists(st.integers(1, 14), min_size=1, max_size=3), seed=st.integers(0, 500))
@settings(max_examples=12)
def test_strengths_are_those_of_a_general_optimiser(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second, valid = graph(sizes, seed=seed)
    share = np.where(valid & (rng.random(valid.shape) < 0.9), rng.random(valid.shape), np.nan)
    votes = rng.integers(1, 4, valid.shape).astype(float)
    fitted = elo.fit(first, second, share, np.array(sizes), prior_precision=PRIOR, votes=votes)
    # A document that no answer joins to the others has no rating.
    assume(all(np.isfinite(row[:size]).all() for row, size in zip(fitted.elo, sizes, strict=True)))
    for q, size in enumerate(sizes):
        expected = slow_fit(first[q], second[q], share[q], votes[q], size)
        # 1e-4 in units of strength.
        np.testing.assert_allclose(fitted.elo[q, :size], expected, atol=0.02)
        assert np.isnan(fitted.elo[q, size:]).all()
        assert fitted.elo[q, :size].mean() == pytest.approx(1000, abs=1e-6)


def test_queries_are_fitted_in_blocks_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    sizes = rng.integers(2, 20, 40)
    first, second, valid = graph(sizes.tolist())
    share = np.where(valid, rng.random(valid.shape), np.nan)
    whole = elo.fit(first, second, share, sizes)
    monkeypatch.setattr(elo, "_BLOCK_ELEMENTS", 3 * int(sizes.max()) ** 2)
    parts = elo.fit(first, second, share, sizes)
    for measure in ("elo", "elo_se", "gap_se"):
        np.testing.assert_allclose(getattr(parts, measure), getattr(whole, measure), atol=1e-6)


def test_standard_errors_are_those_of_the_inverse_information() -> None:
    rng = np.random.default_rng(5)
    first, second, valid = graph([9], degree=4)
    share = np.where(valid, rng.random(valid.shape), np.nan)
    fitted = elo.fit(first, second, share, np.array([9]), prior_precision=PRIOR)
    e = (fitted.elo[0] - 1000) / 200
    information = PRIOR * np.eye(9)
    for a, b in zip(first[0][valid[0]], second[0][valid[0]], strict=True):
        z, direction = (e[a] - e[b]) / np.sqrt(2), np.zeros(9)
        direction[a], direction[b] = 1 / np.sqrt(2), -1 / np.sqrt(2)
        information += (
            norm.pdf(z) ** 2 / (norm.cdf(z) * norm.cdf(-z)) * np.outer(direction, direction)
        )
    centre = np.eye(9) - 1 / 9
    covariance = centre @ np.linalg.inv(information) @ centre
    np.testing.assert_allclose(fitted.elo_se[0], 200 * np.sqrt(np.diag(covariance)), rtol=1e-4)
    gaps = np.diag(covariance) + covariance[0, 0] - 2 * covariance[0]
    np.testing.assert_allclose(fitted.gap_se[0, 1:], 200 * np.sqrt(gaps[1:]), rtol=1e-4)


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elo, "_ITERATIONS", 1)
    first, second, valid = graph([12])
    share = np.where(valid, (first < second).astype(float), np.nan)
    with pytest.raises(AnmiError, match=r"did not converge for 1 queries.*prior_precision"):
        elo.fit(first, second, share, np.array([12]))


@pytest.mark.parametrize("deviation", [np.sqrt(2), 1.0])
def test_the_paraphrase_is_its_formula(deviation: float) -> None:
    first, second, valid = graph([9, 9], 4)
    share = np.where(valid, np.random.default_rng(0).uniform(0.05, 0.95, valid.shape), np.nan)
    found = elo.ascend(first, second, share, np.full(2, 9), steps=7, deviation=deviation)
    # The first steps overshoot, so that its floor of Φ counts.
    floor = 1e-10
    for q in range(2):
        e = np.zeros(9)
        for step in range(7):
            gradient = np.zeros(9)
            for a, b, p in zip(first[q], second[q], share[q], strict=True):
                if not np.isnan(p):
                    z = (e[a] - e[b]) / deviation
                    up = norm.pdf(z) / max(norm.cdf(z), floor)
                    down = norm.pdf(z) / max(norm.cdf(-z), floor)
                    slope = (p * up - (1 - p) * down) / deviation
                    gradient[a] += slope
                    gradient[b] -= slope
            e += gradient / (1 + 0.1 * step)
        np.testing.assert_allclose(found.elo[q], 1000 + 200 * e, atol=1e-6)


JUDGES = ("bm25", "dense", "cross")


def block(queries: int = 12, width: int = 16) -> Candidates:
    """Candidates with a hidden quality that three noisy judges see on scales of their own."""
    rng = np.random.default_rng(0)
    positives = np.full((queries, 2), PADDING, np.int32)
    positives[:, 0] = 1000 + np.arange(queries)
    positives[::3, 1] = 2000 + np.arange(len(positives[::3]))
    documents = np.stack([rng.permutation(200)[:width] for _ in range(queries)]).astype(np.int32)
    documents[:, -3:][:: max(queries // 3, 1)] = PADDING
    quality, best = rng.normal(0, 1, documents.shape), rng.normal(2, 0.3, positives.shape)
    columns, own = {}, {}
    for judge, scale in zip(JUDGES, (8.0, 0.1, 3.0), strict=True):
        noisy = (quality + rng.normal(0, 0.4, quality.shape)) * scale
        hidden = documents == PADDING
        columns[judge] = np.where(hidden, np.nan, noisy).astype(np.float32)
        own[judge] = np.where(positives == PADDING, np.nan, best * scale).astype(np.float32)
    return block_of(documents, positives, columns | {"quality": quality}, own)


def rated(
    candidates: Candidates, shards: list[Candidates] | None = None, **options: object
) -> Candidates:
    rater = Rater(RatingOptions(**options), seed=5)  # type: ignore[arg-type]
    rater.fit(CandidateShards.of(shards or [candidates]))
    return rater(candidates)


def test_ratings_follow_quality_and_do_not_depend_on_how_queries_are_cut_into_shards() -> None:
    candidates = block()
    halves = [candidates.take(slice(0, 5)), candidates.take(slice(5, None))]
    whole = rated(candidates)
    parts = Candidates.concatenate([rated(half, halves) for half in halves])
    for name in ("elo", "elo_se", "gap_se"):
        np.testing.assert_allclose(parts.columns[name], whole.columns[name], atol=1e-2)
        assert (np.isfinite(whole.columns[name]) == whole.filled).all()
    elo = whole.columns["elo"]
    assert np.corrcoef(elo[whole.filled], whole.columns["quality"][whole.filled])[0, 1] > 0.8
    assert (whole.positive_columns["elo"][:, 0] > np.nanmedian(elo, axis=1)).all()


@pytest.mark.parametrize("width", [0, 1])
def test_few_candidates_can_be_rated(width: int) -> None:
    candidates = block(width=width)
    found = rated(candidates, [block()])
    assert (np.isfinite(found.columns["elo"]) == candidates.filled).all()


def test_a_judge_that_never_spoke_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    candidates = block()
    candidates.columns["cross"][:] = np.nan
    candidates.positive_columns["cross"][:] = np.nan
    with caplog.at_level(logging.WARNING):
        found = rated(candidates)
    assert "judge cross has no score" in caplog.text
    others = rated(candidates, judges={"bm25": 1.0, "dense": 1.0})
    for name in ("elo", "elo_se", "gap_se"):
        np.testing.assert_array_equal(found.columns[name], others.columns[name])


def test_documents_that_nothing_joins_to_the_positive_stay_unrated_and_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    candidates = block(queries=6, width=8)
    for judge in JUDGES:
        candidates.positive_columns[judge][2] = np.nan
    # In one query, one judge saw the positive and the first half, another one the second half.
    candidates.columns["dense"][1, 4:] = candidates.columns["bm25"][1, :4] = np.nan
    candidates.positive_columns["bm25"][1] = candidates.columns["cross"][1, :] = np.nan
    with caplog.at_level(logging.WARNING):
        found = rated(candidates)
    is_rated = np.isfinite(found.columns["elo"])
    assert is_rated[1].tolist() == [True] * 4 + [False] * 4
    assert not is_rated[2].any() and is_rated[4].sum() >= 5
    assert "judged documents have no rating" in caplog.text


@pytest.mark.parametrize("variant", ["star", "paraphrase"])
@pytest.mark.parametrize(("difference", "deviation"), [("case_v", np.sqrt(2)), ("unit", 1.0)])
def test_as_published_preferences_are_of_five_times_the_difference_and_gaps_without_root_two(
    variant: str, difference: str, deviation: float
) -> None:
    one = block_of([[3]], [[7]], {"dense": np.array([[0.3]])}, {"dense": np.array([[0.7]])})
    options = {"judges": {"dense": 1.0}, "temperature": 0.2, "prior_precision": 1e-6}
    found = rated(one, variant=variant, difference=difference, **options)
    gap = found.positive_columns["elo"][0, 0] - found.columns["elo"][0, 0]
    # A single comparison is met exactly: Φ(gap / (200 s)) = σ(5 · 0.4).
    assert gap == pytest.approx(200 * deviation * ndtri(expit(5 * 0.4)), rel=0.01)
    assert np.isfinite(found.columns["gap_se"][0, 0]) == (variant == "star")


@pytest.mark.parametrize(
    ("options", "deviation"),
    [({}, np.sqrt(2)), ({"difference": "unit"}, 1.0), ({"variant": "paraphrase"}, np.sqrt(2))],
)
def test_the_chance_to_beat_the_positive_is_that_of_the_model(
    options: dict[str, object], deviation: float
) -> None:
    found = rated(block(), **options)
    gap = (found.columns["elo"] - found.positive_columns["elo"][:, :1]) / 200
    np.testing.assert_allclose(found.columns["p_preferred"], ndtr(gap / deviation), atol=1e-6)
    assert np.nanstd(gap) > 0.1 and np.isnan(found.columns["p_preferred"][~found.filled]).all()
