"""Judges: judgments kept, and Elo of paraphrases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm

from anmi.candidates import Candidates
from anmi.errors import AnmiError
from anmi.judging import elo
from anmi.judging.denoise import Judgments, soft_labels
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


def test_judgments_find_their_rows_whatever_the_order_and_the_width_of_a_block() -> None:
    judged = Candidates(
        np.array(["q9", "q1"]), np.array([[1], [2]], np.int32), np.array([[3, 4], [5, -1]], np.int32),
        np.zeros((2, 2), np.uint8), {"cross": np.array([[1, np.nan], [2, 3]], np.float32)},
        {"cross": np.array([[4], [5]], np.float32)},
    )  # fmt: skip
    place = Judgments(judged)
    documents = np.arange(8, dtype=np.int32).reshape(2, 4)
    block = Candidates(np.array(["q1", "q9"]), documents[:, :2], documents, np.zeros((2, 4), np.uint8))
    found, nan = place(block), np.nan
    np.testing.assert_equal(found.columns["cross"], [[2, 3, nan, nan], [1, nan, nan, nan]])
    np.testing.assert_equal(found.positive_columns["cross"], [[5, nan], [4, nan]])
    other = Candidates(np.array(["q1", "q2"]), documents[:, :2], documents, np.zeros((2, 4), np.uint8))
    with pytest.raises(AnmiError, match='query "q2" was not judged'):
        place(other)


@pytest.mark.parametrize("deviation", [np.sqrt(2), 1.0])
def test_the_paraphrase_is_its_formula(deviation: float) -> None:
    first, second, valid = comparisons(["0", "1"], np.full(2, 9), 4, 0)
    share = np.where(valid, np.random.default_rng(0).uniform(0.05, 0.95, valid.shape), np.nan)
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
