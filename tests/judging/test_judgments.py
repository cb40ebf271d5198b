"""Judges: judgments kept, and Elo of paraphrases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, softmax
from scipy.stats import norm

from anmi.candidates import Candidates
from anmi.errors import AnmiError
from anmi.judging import elo
from anmi.judging.calibration import Platt
from anmi.judging.denoise import Judgments, RawScores, soft_labels
from anmi.judging.preferences import comparisons


def test_soft_labels_are_the_softmax_over_what_was_judged() -> None:
    rng = np.random.default_rng(0)
    own, others = rng.uniform(0, 1, (6, 2)), rng.uniform(0, 1, (6, 5))
    others[rng.random(others.shape) < 0.3] = np.nan
    own[2, 1] = np.nan
    own[3], others[3] = np.nan, np.nan
    scores = np.concatenate([own, others], axis=1)
    found = soft_labels(own, others)
    for row in (0, 1, 2, 4, 5):
        known = np.isfinite(values := scores[row])
        assert not found[row, ~known].any()
        np.testing.assert_allclose(found[row, known], softmax(values[known] / 0.1))
    assert not found[3].any()


def block(queries: list[str], width: int, positives: int) -> Candidates:
    documents = np.arange(len(queries) * width, dtype=np.int32).reshape(len(queries), width)
    own = np.arange(len(queries) * positives, dtype=np.int32).reshape(len(queries), positives)
    return Candidates(np.array(queries), own, documents, np.zeros(documents.shape, np.uint8))


@pytest.fixture
def raw() -> RawScores:
    """Three queries of two blocks that differ in width."""
    first = RawScores(
        np.array(["q9", "q1"]), np.array([0, 1]),
        np.array([[1.0, np.nan, 9.0], [2.0, 3.0, 9.0]], np.float32), np.array([[4.0], [5.0]], np.float32),
    )  # fmt: skip
    second = RawScores(
        np.array(["q50"]), np.array([1]), np.array([[6.0]], np.float32), np.array([[7.0, 8.0]], np.float32)
    )
    return RawScores.concatenate([first, second], depth=2)


def test_pairs_are_what_was_judged_with_label_and_fold(raw: RawScores) -> None:
    scores, labels, folds = raw.pairs()
    found = sorted(zip(scores.tolist(), labels.tolist(), folds.tolist(), strict=True))
    assert found == [(1, 0, 0), (2, 0, 1), (3, 0, 1), (4, 1, 0), (5, 1, 1), (6, 0, 1), (7, 1, 1), (8, 1, 1)]


def test_scores_find_their_rows_whatever_the_order_and_the_width_of_a_block(raw: RawScores) -> None:
    calibrators = {0: Platt(1.0, 0.0), 1: Platt(2.0, 1.0)}
    judged = Judgments(raw, calibrators)(block(["q50", "q9", "q1"], width=4, positives=2))
    nan = np.nan
    np.testing.assert_equal(judged.columns["cross"], [[6, nan, nan, nan], [1, nan, nan, nan], [2, 3, nan, nan]])
    np.testing.assert_equal(judged.positive_columns["cross"], [[7, 8], [4, nan], [5, nan]])
    expected = [calibrators[1](np.array([6.0]))[0], calibrators[0](np.array([1.0]))[0]]
    np.testing.assert_allclose(judged.columns["p_cross"][:2, 0], expected, rtol=1e-6)
    mass = np.nansum(judged.columns["soft_label"], axis=1) + judged.positive_columns["soft_label"][:, 0]
    np.testing.assert_allclose(mass, 1, atol=1e-6)


def test_a_query_that_nobody_judged_is_named(raw: RawScores) -> None:
    with pytest.raises(AnmiError, match='query "q2" was not judged'):
        Judgments(raw, {})(block(["q1", "q2"], width=2, positives=1))


def soft(queries: int = 20, size: int = 15, degree: int = 4) -> tuple[np.ndarray, ...]:
    """Preferences without noise, and the strengths they come from."""
    truth = np.random.default_rng(0).normal(0, 0.6, (queries, size))
    truth -= truth.mean(axis=1, keepdims=True)
    first, second, valid = comparisons([str(q) for q in range(queries)], np.full(queries, size), degree, 0)
    a, b = (np.take_along_axis(truth, index, axis=1) for index in (first, second))
    return first, second, np.where(valid, ndtr((a - b) / np.sqrt(2)), np.nan), truth


@pytest.mark.parametrize("deviation", [np.sqrt(2), 1.0])
def test_the_paraphrase_is_its_formula(deviation: float) -> None:
    first, second, share, _ = soft(queries=2, size=9)
    found = elo.ascend(first, second, share, np.full(2, 9), steps=7, deviation=deviation)
    for q in range(2):
        e = np.zeros(9)
        for step in range(7):
            gradient = np.zeros(9)
            for a, b, p in zip(first[q], second[q], share[q], strict=True):
                if not np.isnan(p):
                    z = (e[a] - e[b]) / deviation
                    slope = (p * norm.pdf(z) / norm.cdf(z) - (1 - p) * norm.pdf(z) / norm.cdf(-z)) / deviation
                    gradient[a] += slope
                    gradient[b] -= slope
            e += gradient / (1 + 0.1 * step)
        np.testing.assert_allclose(found.elo[q], 1000 + 200 * e, atol=1e-6)


def test_from_preferences_without_noise_strengths_are_found() -> None:
    first, second, share, truth = soft()
    fitted = elo.ascend(first, second, share, np.full(20, 15), steps=400)
    np.testing.assert_allclose(fitted.elo, 1000 + 200 * truth, atol=10)
