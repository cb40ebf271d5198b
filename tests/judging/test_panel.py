"""A panel of pointwise and pairwise judges: what is asked, and how answers are counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from anmi.errors import AnmiError
from anmi.judging.preferences import Panel, Texts


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


def panel(**changes: Any) -> Panel:
    fields: dict[str, Any] = {
        "scores": {}, "weights": {}, "temperatures": {}, "slope": 1.0, "votes": 1.0, "pairwise": {}, "observations": {},
        "keys": [f"k{q}" for q in range(QUERIES)], "query_ids": [f"q{q}" for q in range(QUERIES)],
        "documents": np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.int32),
        "texts": Texts({"q0": "Q0", "q1": "Q1"}, [f"d{number}" for number in range(8)]), "seed": 0,
    }  # fmt: skip
    return Panel(**fields | changes)


def test_a_pairwise_judge_is_asked_each_pair_once_with_its_texts_and_answers_are_turned_back() -> None:
    reader = Reader(by_number)
    share, votes = panel(pairwise={"reader": reader}, observations={"reader": 2.0}).ask(FIRST, SECOND, ALL)
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
    favours_what_it_reads_first = Reader(lambda query, first, second: 1.0)
    judges = panel(
        pairwise={"reader": favours_what_it_reads_first}, observations={"reader": 1.0},
        keys=[f"k{q}" for q in range(many)], query_ids=["q0"] * many,
        documents=np.zeros((many, 20), np.int32),
    )  # fmt: skip
    share, _ = judges.ask(first, second, np.ones(first.shape, bool))
    assert share.mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(share.size))
    other_way, _ = judges.ask(second, first, np.ones(first.shape, bool))
    np.testing.assert_array_equal(other_way, 1 - share)
    places = np.random.default_rng(0).permutation(first.shape[1])
    shuffled, _ = judges.ask(first[:, places], second[:, places], np.ones(first.shape, bool))
    np.testing.assert_array_equal(shuffled, share[:, places])


def test_a_failed_answer_is_missing_and_never_a_win() -> None:
    reader = Reader(lambda query, first, second: np.nan if "d1" in (first, second) else 1.0)
    share, votes = panel(pairwise={"reader": reader}, observations={"reader": 1.0}).ask(FIRST, SECOND, ALL)
    failed = (np.arange(QUERIES)[:, None] == 0) & ((FIRST == 1) | (SECOND == 1))
    assert np.isnan(share[failed]).all() and (votes[failed] == 0).all()
    assert np.isfinite(share[~failed]).all() and (votes[~failed] == 1).all()


def test_a_tie_of_a_pairwise_judge_stays_a_half_however_it_is_shown() -> None:
    reader = Reader(lambda query, first, second: 0.5)
    share, _ = panel(pairwise={"reader": reader}, observations={"reader": 1.0}).ask(FIRST, SECOND, ALL)
    np.testing.assert_array_equal(share, 0.5)


def test_scores_and_readers_are_pooled_by_the_observations_that_each_counts_for() -> None:
    scores = np.array([[0.0, 1.0, np.nan, 3.0], [0.0, -1.0, 2.0, 5.0]])
    judges = panel(
        scores={"dense": scores, "bm25": np.where(np.arange(4) == 3, np.nan, 2 * scores)},
        weights={"dense": 1.0, "bm25": 3.0}, temperatures={"dense": 1.0, "bm25": 2.0}, slope=1.5, votes=4.0,
        pairwise={"reader": Reader(by_number)}, observations={"reader": 2.0},
    )  # fmt: skip
    share, votes = judges.ask(FIRST, SECOND, ALL)
    for q in range(QUERIES):
        for place, (a, b) in enumerate(zip(*PAIRS, strict=True)):
            both = scores[q, a] - scores[q, b]
            stated = expit(1.5 * both)  # the mean of equal preferences, sharpened
            mass = 0.0 if np.isnan(both) else 4.0 if 3 not in (a, b) else 4.0 * 1 / 4
            expected = (2.0 * (a < b) + (0 if mass == 0 else mass * stated)) / (2.0 + mass)
            assert share[q, place] == pytest.approx(expected) and votes[q, place] == pytest.approx(2.0 + mass)


def test_a_comparison_that_is_none_is_not_asked() -> None:
    reader = Reader(by_number)
    valid = ALL.copy()
    valid[:, 1:] = False
    share, votes = panel(pairwise={"reader": reader}, observations={"reader": 1.0}).ask(FIRST, SECOND, valid)
    assert len(reader.asked) == 2 and np.isnan(share[:, 1:]).all() and (votes[:, 1:] == 0).all()


@pytest.mark.parametrize(("answer", "message"), [(1.2, "outside"), (-0.1, "outside")])
def test_an_answer_that_is_no_probability_is_refused_by_the_judges_name(answer: float, message: str) -> None:
    reader = Reader(lambda query, first, second: answer)
    with pytest.raises(AnmiError, match=rf"pairwise judge reader.*{message}"):
        panel(pairwise={"reader": reader}, observations={"reader": 1.0}).ask(FIRST, SECOND, ALL)


def test_too_few_answers_are_refused() -> None:
    class Short:
        def prefer(self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]) -> np.ndarray:
            return np.ones(len(queries) - 1)

    with pytest.raises(AnmiError, match="pairwise judge short gave 7 answers to 8 comparisons"):
        panel(pairwise={"short": Short()}, observations={"short": 1.0}).ask(FIRST, SECOND, ALL)
