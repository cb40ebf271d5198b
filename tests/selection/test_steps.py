"""What every step promises, and what each one does, candidate by candidate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, norm
from tests.selection.conftest import apply, candidates, make_block

from anmi.candidates import NEGATIVE, Candidates
from anmi.selection.recipe import Step
from anmi.selection.steps import STEPS, Context
from anmi.selection.steps.samplers import choose


def verdicts(block: Candidates) -> dict[tuple[str, int], tuple[str, float, str]]:
    """Verdict, weight and the query's verdict of every (row, document)."""
    return {
        (f"{block.query_ids[i]} {block.positives[i, 0]}", int(block.documents[i, m])): (
            block.legend[block.verdict[i, m]], float(block.weight[i, m]), block.legend[block.query_verdict[i]]
        )
        for i, m in zip(*np.nonzero(block.filled), strict=True)
    }  # fmt: skip


def shuffled(block: Candidates, seed: int) -> Candidates:
    """The same candidates in another order within each row."""
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(block.documents.shape[1]), (len(block), 1)), axis=1)

    def moved(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, order, axis=1)

    return Candidates(
        query_ids=block.query_ids, positives=block.positives, documents=moved(block.documents),
        source=moved(block.source), columns={name: moved(values) for name, values in block.columns.items()},
        positive_columns=block.positive_columns, query_columns=block.query_columns,
    )  # fmt: skip


BLOCKS = st.builds(
    make_block, st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 14), negative_scores=st.booleans()
)

EVERY: list[tuple[str, dict[str, Any]]] = [
    ("consistency", {"policy": "drop"}), ("source", {"source": "dense"}), ("duplicate_guard", {}),
    ("rank_window", {"first": 2, "last": 6}), ("shift", {"skip": 2, "last": 9}), ("denoise", {"threshold": 0.4}),
    ("denoise", {"threshold": 0.4, "unjudged": "keep"}), ("max_score", {"max_score": 0.6}),
    ("max_ratio", {"max_ratio": 0.9}), ("max_ratio", {"max_ratio": "bold", "adaptive": True}),
    ("margin", {"margin": 0.1}), ("elo_gap", {"danger": 100}), ("elo_gap", {"danger": 100, "max_probability": 0.2}),
    ("elo_window", {}), ("back_off", {"last": 6}), ("promote", {"threshold": 0.8}),
    ("route", {"negative": 0.3, "positive": 0.9}), ("route", {"negative": 0.3, "positive": 0.9, "at_least": 2}),
    ("confidence", {}), ("zone_weight", {}), ("min_weight", {"weight": 0.3}),
    ("confidence", {"column": "p_cross"}), ("top", {"by": "dense"}), ("top", {"by": "weight"}), ("random", {}),
    ("draw", {"by": "dense"}), ("simans", {"weigh": True}), ("simans", {"form": "rank"}),
    ("mixture", {"per": "query"}), ("mixture", {"per": "query", "components": 3}), ("mixture", {"fewest": 10}),
    ("mixture", {"fewest": 10, "components": 3}), ("mixture", {"fewest": 10, "family": "beta", "column": "p_cross"}),
    ("simans", {}), ("simans", {"form": "released", "b": 0.1, "weigh": True}), ("route", {"max_expected_share": 0.2}),
    ("max_ratio", {"max_ratio": "auto"}),
]  # fmt: skip
NAMES = [f"{name}{i}" for i, (name, _) in enumerate(EVERY)]


def test_every_registered_step_is_examined_here() -> None:
    Step.of("random", {})  # the steps register themselves when the first one is read
    assert {name for name, _ in EVERY} == set(STEPS)


@pytest.mark.parametrize(("name", "params"), EVERY, ids=NAMES)
@given(block=BLOCKS, seed=st.integers(0, 99))
@settings(max_examples=8)
def test_given_its_fit_a_step_depends_neither_on_the_order_of_candidates_nor_on_other_queries(
    name: str, params: dict[str, Any], block: Candidates, seed: int
) -> None:
    item = Step.of(name, params)
    fit = item.type.fit or (lambda blocks, params, context: None)
    context = Context(seed, 3, fit([block], item.params, Context(seed, 3)))
    after = item.type.apply(block, item.params, context)
    # No step touches padding or measurements, or leaves the range of weights.
    assert not (after.verdict != 0)[~after.filled].any() and (after.documents == block.documents).all()
    assert ((after.weight >= 0) & (after.weight <= 1)).all()
    for column, values in block.columns.items():
        np.testing.assert_array_equal(after.columns[column], values)
    whole = verdicts(after)
    assert verdicts(item.type.apply(shuffled(block, seed), item.params, context)) == whole
    alone: dict[Any, Any] = {}
    for i in range(len(block)):
        alone |= verdicts(item.type.apply(block.take(np.array([i])), item.params, context))
    assert alone == whole
    # What all queries together give depends on neither the order of candidates nor the cuts between shards.
    halves = [shuffled(block.take(part), seed) for part in (slice(0, 2), slice(2, None))]
    again = fit(halves, item.params, Context(seed, 3))
    assert verdicts(item.type.apply(block, item.params, Context(seed, 3, again))) == whole


def rejected(block: Candidates, name: str, **params: Any) -> np.ndarray:
    return ~apply(block, name, **params).undecided & block.filled


@given(block=BLOCKS, ratio=st.floats(0.5, 1.0), margin=st.floats(0.0, 0.5))
def test_ceilings_are_those_of_the_formulas_for_either_sign(block: Candidates, ratio: float, margin: float) -> None:
    positive, score = block.positive_columns["dense"][:, :1].astype(float), block.columns["dense"].astype(float)
    by_ratio, by_margin = rejected(block, "max_ratio", max_ratio=ratio), rejected(block, "margin", margin=margin)
    clear = block.filled & (np.abs(score - (positive - np.abs(positive) * (1 - ratio))) > 1e-5)
    assert (by_ratio == (score >= positive - np.abs(positive) * (1 - ratio)))[clear].all()
    for_positive = clear & (positive > 0) & (np.abs(score - ratio * positive) > 1e-5)
    assert (by_ratio == (score >= ratio * positive))[for_positive].all()
    # The rule never keeps a candidate that scores above the positive, whatever the sign.
    assert by_ratio[block.filled & (score > positive)].all()
    sure = block.filled & (np.abs(score - positive + margin) > 1e-5)
    assert (by_margin == (score >= positive - margin))[sure].all()


def elo_block(gaps: list[float], **columns: list[float]) -> Candidates:
    """One row whose candidates have the given Elo gaps to the positive."""
    return candidates({"elo": 1500 - np.array(gaps), **columns}, {"elo": 1500.0})


def test_zone_weights_at_their_borders() -> None:
    gaps = [-50, 99, 100, 199, 200, 399, 400, 599, 600, 5000, np.nan]
    after = apply(elo_block(gaps), "zone_weight")
    assert after.weight[0].tolist() == pytest.approx([0, 0, 0.5, 0.5, 1, 1, 0.7, 0.7, 0.3, 0.3, 0])


@given(st.lists(st.floats(-2000, 4000, width=32), min_size=1, max_size=20, unique=True))
def test_goldilocks_goes_first_and_then_the_gap_as_the_report_has_it(gaps: list[float]) -> None:
    block = elo_block(gaps)
    found = (1500 - block.columns["elo"][0]).tolist()  # as far as float32 keeps them
    after = apply(apply(block, "elo_gap"), "zone_weight")
    chosen = apply(after, "top", negatives=len(gaps), by="zone_preference")
    place = chosen.columns["choice"][0]
    taken = [found[i] for i in sorted(np.flatnonzero(np.isfinite(place)), key=lambda i: place[i])]
    assert taken == sorted((g for g in found if g >= 100), key=lambda g: (not 200 <= g < 400, g))


def test_the_danger_zone_by_estimate_and_by_interval() -> None:
    gaps, errors = [99, 100, 250, 250, np.nan, 500], [1, 1, 50, 200, 50, np.nan]
    block = elo_block(gaps, gap_se=errors)
    assert rejected(block, "elo_gap").tolist() == [[True, False, False, False, True, False]]
    chance = norm.cdf((100 - np.array(gaps)) / errors)
    found = rejected(block, "elo_gap", max_probability=0.05)[0]
    assert found[:4].tolist() == (chance[:4] > 0.05).tolist() == [True, True, False, True]
    assert found[4:].all(), "a rating without its error is none by interval"
    after = apply(block, "elo_gap")
    assert after.legend[after.verdict[0, 4]] == "unrated"


@pytest.mark.parametrize(("difficulty", "low", "high"), [(0.0, 400, 600), (0.5, 250, 500), (1.0, 100, 400)])
def test_the_window_of_the_curriculum_moves_with_difficulty(difficulty: float, low: float, high: float) -> None:
    gaps = [low - 1, low, high, high + 1]
    preferred = apply(elo_block(gaps), "elo_window", difficulty=difficulty)
    # Easier ones fill up; one below a gap of 100 is as good as the positive at any difficulty.
    assert preferred.undecided.tolist() == [[low - 1 >= 100, True, True, True]]
    assert preferred.columns["preferred"].tolist() == [[0, 1, 1, 0]]


def test_thresholds_by_hand() -> None:
    block = elo_block(
        [1.0] * 4, p_relevant=[np.nan, 0.5, 0.49, 0.0], dense_rank=[np.nan, 5, 4, 1], dense=[np.nan, 0.71, 0.69, 0]
    )
    after = apply(block, "denoise")
    assert [after.legend[code] for code in after.verdict[0]] == ["unjudged", "denoise", "open", "open"]
    assert apply(block, "denoise", unjudged="keep").undecided.tolist() == [[True, False, True, True]]
    assert apply(block, "rank_window", first=2, last=4).undecided.tolist() == [[False, False, True, False]]
    assert apply(block, "max_score", max_score=0.7).undecided.tolist() == [[False, False, True, True]]
    weighed = apply(block, "confidence")
    assert weighed.weight[0].tolist() == pytest.approx([0.5, 0.5, 0.51, 1.0])
    assert apply(weighed, "min_weight", weight=0.505).undecided[0].tolist() == [False, False, True, True]


@pytest.mark.parametrize(("policy", "kept"), [("drop", 1), ("keep", 2)])
def test_inconsistent_queries_are_dropped_or_kept(policy: str, kept: int) -> None:
    block = Candidates.concatenate([elo_block([1.0]), elo_block([2.0])])
    block = block.with_columns(query_columns={"consistent": np.array([0.0, 1.0])})
    after = apply(block, "consistency", policy=policy)
    assert (after.query_verdict == 0).sum() == kept and after.query_verdict[1] == 0


@given(block=BLOCKS, count=st.integers(0, 8), seed=st.integers(0, 99))
def test_the_largest_keys_are_chosen_and_ties_go_to_the_smaller_document(
    block: Candidates, count: int, seed: int
) -> None:
    key = np.random.default_rng(seed).integers(-2, 3, block.documents.shape).astype(np.float32)
    key[block.documents % 7 == 0] = np.nan
    key[block.documents % 11 == 0] = -np.inf
    first = block.documents % 2 == 1
    block = apply(block, "denoise")
    for mask in (None, first):
        after = choose(block, key, count, mask)
        for i in range(len(block)):
            usable = [m for m in range(key.shape[1]) if block.undecided[i, m] and not np.isnan(key[i, m])]
            late = [m for m in usable if mask is not None and not mask[i, m]]
            ranked = sorted(usable, key=lambda m: (m in late, -key[i, m], block.documents[i, m]))[:count]
            choice = after.columns["choice"][i]
            assert [int(m) for m in np.argsort(choice)[: np.isfinite(choice).sum()]] == ranked
            assert (after.verdict[i] == NEGATIVE).nonzero()[0].tolist() == sorted(ranked)


def test_random_draws_are_uniform_and_without_replacement() -> None:
    block = make_block(3, queries=1, width=10)
    block.documents[0] = np.arange(10)
    counts = np.zeros(10)
    for seed in range(500):
        taken = apply(block, "random", negatives=3, seed=seed).negatives[0]
        assert taken.sum() == 3
        counts += taken
    assert chisquare(counts).pvalue > 1e-3


def test_the_shift_passes_over_candidates_whether_or_not_a_positive_stands_among_them() -> None:
    # The positive is third; the candidate of rank 6 was rejected before, and counts all the same.
    block = elo_block([0] * 7, dense_rank=[1, 2, 4, 5, 6, 101, np.nan])
    block = block.rejected("margin", block.columns["dense_rank"] == 2)
    after = apply(block, "shift", skip=3)
    assert after.undecided.tolist() == [[False, False, False, True, True, False, False]]
    assert apply(block, "shift", skip=0).undecided.tolist() == [[True, False, True, True, True, False, False]]
