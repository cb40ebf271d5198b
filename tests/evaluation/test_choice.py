"""What dev queries choose, and how much each label counts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tests.training.resuming import tokenizer

from anmi.evaluation.choice import Prior, choose
from anmi.training.alpha import ALPHAS, PRIOR, AlphaChoice
from anmi.training.options import START, Alpha

OPTIONS = np.array(ALPHAS)[:, None]


def falling(queries: int, slope: float = 0.3, seed: int = 1) -> np.ndarray:
    """nDCG@10 by alpha of queries that training makes worse by ``slope``, with noise of their own."""
    rng = np.random.default_rng(seed)
    hardness = rng.normal(0.6, 0.2, (queries, 1))
    return hardness - slope * np.array(ALPHAS) + rng.normal(0, 0.1, (queries, len(ALPHAS)))


def alpha(labelled: np.ndarray, pseudo: np.ndarray | None = None) -> float:
    weights = np.ones(len(labelled))
    return float(choose(OPTIONS, PRIOR, labelled, weights, pseudo, seed=1).point[0])


def test_more_labels_bring_the_choice_from_the_prior_to_what_they_say() -> None:
    chosen = [alpha(falling(300)[:count]) for count in (0, 3, 10, 30, 100, 300)]
    assert chosen[0] > 0.6 and chosen[-1] < 0.1
    assert all(later <= earlier + 0.05 for earlier, later in pairwise(chosen))
    assert chosen[0] - chosen[1] <= 0.5, "three labels count a little"


def test_pseudo_queries_count_less_than_as_many_labels() -> None:
    values = falling(300, slope=0.02)
    by_pseudo_queries = alpha(values[:0], values)
    assert alpha(values) < by_pseudo_queries < alpha(values[:0])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.floats(-0.5, 0.5), st.integers(0, 5))
def test_the_choice_lies_between_the_ends_and_does_not_depend_on_a_constant(
    queries: int, slope: float, seed: int
) -> None:
    values = falling(queries, slope, seed)
    chosen = alpha(values)
    assert 0 <= chosen <= 1
    assert alpha(values + 0.1) == pytest.approx(chosen, abs=1e-6)


def test_the_middle_of_what_lies_apart_is_not_taken() -> None:
    dip = np.tile([0.7, 0.66, 0.62, 0.66, 0.7], (400, 1))
    noise = np.random.default_rng(1).normal(0, 0.01, (400, 1))
    assert alpha(dip + noise) in (0, 1)


def test_options_of_several_directions_are_chosen_in_each() -> None:
    points = np.array([[a, b] for a in (0.0, 0.5, 1.0) for b in (0.0, 0.5, 1.0)])
    prior = Prior(best=(1.0, 1.0), fall=0.02, spread=0.05, reach=1.0)
    rng = np.random.default_rng(1)
    values = 0.5 - 0.2 * points[:, 0] + 0.2 * points[:, 1] + rng.normal(0, 0.05, (400, 9))
    chosen = choose(points, prior, values, np.ones(400), seed=1).point
    assert chosen[0] < 0.1 and chosen[1] > 0.9


class Table:
    """An encoder at an alpha that looks tokens up in a table."""

    def __init__(self, alpha: Alpha) -> None:
        self.alpha = alpha

    def __getitem__(self, place: int) -> StaticEmbedding:
        return StaticEmbedding(tokenizer(), embedding_dim=2)


class Dev:
    """Dev queries whose nDCG@10 by alpha is known."""

    def __init__(self, start: np.ndarray, values: np.ndarray) -> None:
        self.start = start
        self.values = values
        self.query_ids = [f"q{number}" for number in range(len(values))]

    def scores(self, model: Table) -> np.ndarray:
        return self.start if model.alpha == START else self.values[:, ALPHAS.index(model.alpha)]


def chosen_by(
    start: np.ndarray, values: np.ndarray, *, is_pseudo: bool
) -> tuple[Alpha, list[dict[str, object]]]:
    members = np.full(len(values), is_pseudo)
    unlabelled = np.ones(len(values), bool)
    choice = AlphaChoice(Dev(start, values), members, unlabelled, ~unlabelled, seed=1)
    return choice(Table), choice.curve


def test_the_start_is_kept_by_the_word_of_labels_alone() -> None:
    values = falling(300, slope=0.5)
    start = values[:, 0] + 0.1
    by_labels, curve = chosen_by(start, values, is_pseudo=False)
    by_pseudo_queries, _ = chosen_by(start, values, is_pseudo=True)
    assert by_labels == START and by_pseudo_queries == 0.0
    assert [row["alpha"] for row in curve] == [START, *ALPHAS]
    assert curve[1]["ndcg@10"] == pytest.approx(values[:, 0].mean(), abs=1e-4)
    assert {row["queries"] for row in curve} == {"unlabelled"}
    assert curve[0]["low"] == curve[0]["high"] == curve[0]["ndcg@10"]
    assert all(row["high"] < curve[0]["ndcg@10"] for row in curve[1:])


def test_the_curve_has_new_documents_apart() -> None:
    values = falling(90, slope=0.1)
    is_new = np.arange(90) < 30
    is_pseudo = np.arange(90) >= 85
    is_unlabelled = np.arange(90) < 60
    choice = AlphaChoice(Dev(values[:, 0], values), is_pseudo, is_unlabelled, is_new, seed=1)
    choice(Table)
    counts = {row["queries"]: row["count"] for row in choice.curve}
    assert counts == {"labelled": 25, "unlabelled": 30, "new": 30, "pseudo": 5}


def test_labels_that_prove_nothing_do_not_throw_training_away() -> None:
    noise = np.random.default_rng(2).normal(0.5, 0.3, (40, len(ALPHAS) + 1))
    noise[:, -1] += 0.03
    assert chosen_by(noise[:, -1], noise[:, :-1], is_pseudo=False)[0] != START
