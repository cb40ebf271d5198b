"""Routing: both thresholds, what becomes of candidates between and above them, and target rates on simulated judges."""

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.selection.conftest import candidates, named, run

from anmi.candidates import Candidates, CandidateShards
from anmi.selection.recipe import Recipe, Runner
from anmi.selection.steps import Context
from anmi.selection.steps.routing import Route, Thresholds, fit_route
from anmi.selection.steps.samplers import TIERS


def block_of(
    probability: NDArray[np.floating], heldout: NDArray[np.floating] | float = np.nan
) -> Candidates:
    dense = -np.arange(probability.shape[1]) + np.zeros((len(probability), 1))
    own = {"p_relevant": heldout, "p_heldout": heldout}
    return candidates({"p_relevant": probability, "dense": dense}, own, 2)


def thresholds(block: Candidates, **params: object) -> Thresholds:
    return fit_route([block], Route(**params), Context(seed=1, negatives=2))


def names(block: Candidates) -> list[str]:
    return [block.legend[code] for code in block.verdict[0]]


def test_three_ways_and_a_fourth_for_what_nobody_judged() -> None:
    block = block_of(np.array([[0.95, 0.9, 0.5, 0.1, 0.09, np.nan, 0.0]]))
    after = run(block, {"route": {"negative": 0.1, "positive": 0.9}}, "top")
    safe = ["negative", "unjudged", "negative"]
    assert names(after) == ["promote"] * 2 + ["uncertain"] * 2 + safe
    kinds = [after.rules[name].kind for name in ("promote", "uncertain", "unjudged")]
    assert kinds == ["promoted", "uncertain", "unsafe"]
    # Without a bar of their own all uncertain ones are barred inside a batch.
    assert after.excluded_in_batch[0].tolist() == [True] * 4 + [False] * 3


def test_only_the_likelier_of_the_uncertain_are_barred_inside_a_batch() -> None:
    block = block_of(np.array([[0.95, 0.3, 0.2, 0.19, 0.1, 0.05, 0.0]]))
    after = run(block, {"route": {"negative": 0.1, "barred": 0.2, "positive": 0.9}}, "top")
    assert np.flatnonzero(after.of_kind("uncertain")[0]).tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(after.excluded_in_batch[0]).tolist() == [0, 1, 2]
    assert names(after)[1:5] == ["barred", "barred", "uncertain", "uncertain"]


def test_the_negative_bar_lets_the_asked_share_of_held_out_positives_pass() -> None:
    rng = np.random.default_rng(3)
    heldout = rng.beta(2, 2, 2000)
    found = thresholds(block_of(rng.beta(0.3, 5, (2000, 5)), heldout), max_false_negative_rate=0.1)
    # Independent: the empirical quantile.
    assert found.negative == pytest.approx(np.quantile(heldout, 0.1), abs=1e-3)
    fresh = rng.beta(2, 2, 20_000)
    assert (fresh < found.negative).mean() == pytest.approx(0.1, abs=0.025)


@pytest.mark.parametrize("at_least", [0, 2, 3])
def test_the_expected_share_is_that_of_what_is_taken_in_the_end(at_least: int) -> None:
    """Rows that are short of safe candidates are filled with doubted ones, and these count as well."""
    rng = np.random.default_rng(8)
    safe, doubted = rng.beta(0.3, 30, (400, 12)), rng.beta(3, 12, (400, 12))
    block = block_of(np.where(rng.random((400, 12)) < 0.8, doubted, safe))
    rank = rng.permuted(np.tile(np.arange(10.0, 130, 10), (400, 1)), axis=1)
    block = block.with_columns({"dense_rank": rank})
    step = {"max_expected_share": 0.06, "max_false_negative_rate": None, "positive": 1.0}
    step |= {"at_least": at_least}
    steps = ({"back_off": {"last": 60}}, {"route": step}, "top")
    runner = Runner(Recipe(description="", negatives=3, steps=named(*steps)), 1)
    after = runner.run(CandidateShards.of([block])).whole()
    found = runner._fitted[1]
    assert after.negatives.sum(axis=1).min() >= (0 if at_least == 0 else 1)
    if at_least < 3:
        assert after.columns["p_relevant"][after.negatives].mean() <= 0.06
        # And hardly a higher bar would do.
        looser_step = {"route": step | {"negative": found.negative * 1.2}}
        looser = run(block, steps[0], looser_step, "top", negatives=3)
        assert looser.columns["p_relevant"][looser.negatives].mean() > 0.058


def test_where_no_bar_will_do_the_least_doubted_fill_the_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    probability = np.random.default_rng(9).uniform(0.05, 0.4, (300, 30))
    step = {"max_false_negative_rate": None, "at_least": 3, "positive": 1.0}
    after = run(block_of(probability), {"route": step}, "top", negatives=3)
    lowest = np.sort(probability, axis=1)[:, 2:3]
    np.testing.assert_array_equal(after.negatives, probability <= lowest)
    assert "no threshold meets max_expected_share 0.015" in caplog.text


def test_should_all_that_is_promoted_be_wrong_it_is_no_more_than_the_rate_allows() -> None:
    rng = np.random.default_rng(5)
    heldout, probability = rng.beta(8, 1, 3000), rng.beta(0.6, 3, (3000, 10))
    heldout[1000:] = np.nan
    found = thresholds(block_of(probability, heldout), negative=0.1)

    def wrong(bar: float) -> tuple[float, float]:
        promoted, rivals = (probability >= bar).sum(), (probability[:1000] >= bar).sum()
        return promoted / (promoted + 3000), rivals / (rivals + (heldout[:1000] >= bar).sum())

    assert max(wrong(found.positive)) <= 0.05 < max(wrong(found.positive - 0.08))
    assert found.positive > found.negative


def test_with_few_held_out_positives_nothing_is_promoted() -> None:
    assert thresholds(block_of(np.full((99, 3), 0.001), np.full(99, 0.999))).positive > 1
    assert thresholds(block_of(np.full((100, 3), 0.001), np.full(100, 0.999))).positive < 1


IN_DOUBT = {"route": {"negative": 0.1, "barred": 0.2, "positive": 0.9, "at_least": 15}}


def test_a_row_short_of_safe_candidates_is_filled_with_the_least_doubted_in_that_order() -> None:
    block = block_of(np.array([[0.45, 0.3, 0.05, 0.7, 0.2, 0.15]]))
    after = run(block, IN_DOUBT, "top", negatives=3)
    assert names(after) == ["barred", "barred", "negative", "barred", "negative", "negative"]
    chosen = after.columns["choice"][0]
    assert chosen[2] == 1, "what is safe goes first, however similar the others are"
    assert [TIERS[int(tier)] for tier in after.columns["tier"][0]].count("uncertain") == 2
    assert not after.excluded_in_batch[0, [4, 5]].any()
    strict = {"route": {**IN_DOUBT["route"], "at_least": 0}}
    assert names(run(block, strict, "top", negatives=3)).count("negative") == 1


def test_a_row_of_which_every_candidate_is_likely_relevant_is_dropped_and_no_other() -> None:
    block = block_of(np.array([[0.99, 0.97, 0.8], [0.99, 0.3, 0.8], [0.01, 0.02, 0.99]]))
    after = run(block, {"route": {**IN_DOUBT["route"], "positive": 1.0}}, "top", negatives=2)
    assert [after.legend[code] for code in after.query_verdict] == ["nothing_safe", "open", "open"]
    assert after.rules["nothing_safe"].text == "no candidate has p_relevant < 0.5"
    assert after.negatives.sum(axis=1).tolist() == [0, 1, 2]
