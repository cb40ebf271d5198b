"""What every step promises, and what each one does, candidate by candidate."""

import logging
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare, norm
from tests.selection.conftest import apply, candidates, make_block, run

from anmi.candidates import SOURCES, Candidates, CandidateShards
from anmi.selection.recipe import Recipe, Runner, Step
from anmi.selection.steps import STEPS, Context
from anmi.selection.steps.samplers import TIERS, choose


def verdicts(block: Candidates) -> dict[tuple[str, int], tuple[str, float, str]]:
    """Verdict, weight and the query's verdict of every (row, document)."""
    found = {}
    for i, m in zip(*np.nonzero(block.filled), strict=True):
        key = (f"{block.query_ids[i]} {block.positives[i, 0]}", int(block.documents[i, m]))
        verdict, query_verdict = block.verdict[i, m], block.query_verdict[i]
        found[key] = (block.legend[verdict], float(block.weight[i, m]), block.legend[query_verdict])
    return found


def shuffled(block: Candidates, seed: int) -> Candidates:
    """The same candidates in another order within each row."""
    places = np.tile(np.arange(block.documents.shape[1]), (len(block), 1))
    order = np.random.default_rng(seed).permuted(places, axis=1)

    def moved(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, order, axis=1)

    columns = {name: moved(values) for name, values in block.columns.items()}
    documents, source = moved(block.documents), moved(block.source)
    return replace(block, documents=documents, source=source, columns=columns)


BLOCKS = st.builds(
    make_block, st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 14), st.booleans()
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
    assert not (after.verdict != 0)[~after.filled].any()
    assert (after.documents == block.documents).all()
    assert ((after.weight >= 0) & (after.weight <= 1)).all()
    for column, values in block.columns.items():
        np.testing.assert_array_equal(after.columns[column], values)
    whole = verdicts(after)
    assert verdicts(item.type.apply(shuffled(block, seed), item.params, context)) == whole
    alone: dict[Any, Any] = {}
    for i in range(len(block)):
        alone |= verdicts(item.type.apply(block.take(np.array([i])), item.params, context))
    assert alone == whole
    # What all queries together give depends on neither the order of candidates nor the cuts between
    # shards.
    halves = [shuffled(block.take(part), seed) for part in (slice(0, 2), slice(2, None))]
    again = fit(halves, item.params, Context(seed, 3))
    assert verdicts(item.type.apply(block, item.params, Context(seed, 3, again))) == whole


def rejected(block: Candidates, name: str, **params: Any) -> np.ndarray:
    return ~apply(block, name, **params).undecided & block.filled


@given(block=BLOCKS, ratio=st.floats(0.5, 1.0), margin=st.floats(0.0, 0.5))
def test_ceilings_are_those_of_the_formulas_for_either_sign(
    block: Candidates, ratio: float, margin: float
) -> None:
    positive = block.positive_columns["dense"][:, :1].astype(float)
    score = block.columns["dense"].astype(float)
    by_ratio = rejected(block, "max_ratio", max_ratio=ratio)
    by_margin = rejected(block, "margin", margin=margin)
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


def test_the_danger_zone_by_interval() -> None:
    gaps, errors = [99, 100, 250, 250, np.nan, 500], [1, 1, 50, 200, 50, np.nan]
    chance = norm.cdf((100 - np.array(gaps)) / errors)
    found = rejected(elo_block(gaps, gap_se=errors), "elo_gap", max_probability=0.05)[0]
    assert found[:4].tolist() == (chance[:4] > 0.05).tolist() == [True, True, False, True]
    assert found[4:].all(), "a rating without its error is none by interval"


@pytest.mark.parametrize(
    ("difficulty", "low", "high"), [(0.0, 400, 600), (0.5, 250, 500), (1.0, 100, 400)]
)
def test_the_window_of_the_curriculum_moves_with_difficulty(
    difficulty: float, low: float, high: float
) -> None:
    gaps = [low - 1, low, high, high + 1]
    preferred = apply(elo_block(gaps), "elo_window", difficulty=difficulty)
    # Easier ones fill up; one below a gap of 100 is as good as the positive at any difficulty.
    assert preferred.undecided.tolist() == [[low - 1 >= 100, True, True, True]]
    assert preferred.columns["preferred"].tolist() == [[0, 1, 1, 0]]


NAN = float("nan")
RANKS_OF_SHIFT = {"dense_rank": [1, 2, 4, 5, 6, 101, NAN]}  # the positive is third
JUDGED, NEAR = {"p_relevant": [NAN, 0.5, 0.49, 0.0]}, {"dense": [0.89, 0.91, 0.96, 0.985]}


@pytest.mark.parametrize(
    ("name", "params", "columns", "own", "kept"),
    [
        ("denoise", {}, JUDGED, {}, "..xx"),
        ("denoise", {"unjudged": "keep"}, JUDGED, {}, "x.xx"),
        ("rank_window", {"first": 2, "last": 4}, {"dense_rank": [NAN, 5, 4, 1]}, {}, "..x."),
        ("max_score", {"max_score": 0.7}, {"dense": [NAN, 0.71, 0.69, 0]}, {}, "..xx"),
        ("shift", {"skip": 3}, RANKS_OF_SHIFT, {}, "...xx.."),
        ("shift", {"skip": 0}, RANKS_OF_SHIFT, {}, "xxxxx.."),
        ("max_ratio", {"max_ratio": "strict"}, NEAR, {"dense": 1.0}, "x..."),
        ("max_ratio", {"max_ratio": "balanced"}, NEAR, {"dense": 1.0}, "xx.."),
        ("max_ratio", {"max_ratio": "bold"}, NEAR, {"dense": 1.0}, "xxx."),
        ("elo_gap", {}, {"elo": [1401, 1400, 1250, NAN], "gap_se": [1] * 4}, {"elo": 1500}, ".xx."),
    ],
)
def test_what_is_kept_of_a_row(name, params, columns, own, kept):
    after = apply(candidates(columns, own), name, **params)
    assert "".join(".x"[int(usable)] for usable in after.undecided[0]) == kept
    names = {after.legend[code].split()[0] for code in after.verdict[0]}
    assert names <= {name, "open", "unjudged", "unrated"}


@pytest.mark.parametrize(
    ("positive", "stated", "ratio"),
    [(0.95, 0.95, 0.93), (0.9, 0.95, 0.95), (0.6, 0.95, 0.98), (0.6, 0.98, 1.0), (0.6, 1.1, 1.1)],
)
def test_an_adaptive_ratio_goes_by_the_positive(
    positive: float, stated: float, ratio: float
) -> None:
    """Above a similarity of 0.9 two hundredths less, below 0.7 three more, but no more than 1."""
    scores = {"dense": [positive * ratio - 1e-4, positive * ratio + 1e-4]}
    block = candidates(scores, {"dense": positive})
    after = apply(block, "max_ratio", max_ratio=stated, adaptive=True)
    assert after.undecided[0].tolist() == [True, False]


def test_what_was_rejected_before_counts_among_the_nearest() -> None:
    block = candidates(RANKS_OF_SHIFT)
    after = apply(block.rejected("margin", block.columns["dense_rank"] == 2), "shift", skip=3)
    assert after.undecided[0].tolist() == [False] * 3 + [True] * 2 + [False] * 2


def test_confidence_is_a_weight_and_little_weight_is_rejected() -> None:
    weighed = apply(candidates(JUDGED), "confidence")
    assert weighed.weight[0].tolist() == pytest.approx([0.5, 0.5, 0.51, 1.0])
    after = apply(weighed, "min_weight", weight=0.505)
    assert after.undecided[0].tolist() == [False, False, True, True]


@pytest.mark.parametrize(("policy", "kept"), [("drop", [False, True]), ("keep", [True, True])])
def test_inconsistent_queries_are_dropped_or_kept(policy: str, kept: list[bool]) -> None:
    consistent = {"consistent": np.array([0.0, 1.0])}
    block = candidates({"dense": [[1.0], [2.0]]}).with_columns(query_columns=consistent)
    assert (apply(block, "consistency", policy=policy).query_verdict == 0).tolist() == kept


@given(block=BLOCKS, count=st.integers(0, 8), seed=st.integers(0, 99))
def test_the_largest_keys_are_chosen_and_ties_go_to_the_smaller_document(block, count, seed):
    key = np.random.default_rng(seed).integers(-2, 3, block.documents.shape).astype(np.float32)
    key[block.documents % 7 == 0] = np.nan
    key[block.documents % 11 == 0] = -np.inf
    block = apply(block, "denoise")
    for mask in (None, block.documents % 2 == 1):
        after = choose(block, key, count, mask)
        for i in range(len(block)):
            usable = np.flatnonzero(block.undecided[i] & ~np.isnan(key[i])).tolist()
            late = [m for m in usable if mask is not None and not mask[i, m]]
            usable.sort(key=lambda m: (m in late, -key[i, m], block.documents[i, m]))
            choice = after.columns["choice"][i]
            assert np.argsort(choice)[: np.isfinite(choice).sum()].tolist() == usable[:count]
            assert np.flatnonzero(after.negatives[i]).tolist() == sorted(usable[:count])


@pytest.mark.parametrize(
    ("name", "strictness"), [("max_ratio", {"max_ratio": 0.9}), ("margin", {"margin": 0.05})]
)
def test_the_first_positive_is_compared_with(name: str, strictness: dict[str, float]) -> None:
    block = candidates({"dense": [0.5, 0.6, 0.7, 0.83]})
    for positives, below in (
        ([0.9, 0.66, NAN], [True, True, True, name == "margin"]),
        # Without a score of the positive nothing is known to be below it.
        ([NAN, 0.9], [False] * 4),
    ):
        documents = 1000 + np.arange(len(positives), dtype=np.int32)[None, :]
        scores = {"dense": np.array([positives], np.float32)}
        row = replace(block, positives=documents, positive_columns=scores)
        assert apply(row, name, **strictness).undecided[0].tolist() == below


@pytest.mark.parametrize(("doubt", "ratio"), [(0.0, 0.98), (0.35, None), (0.9, None), (40.0, 0.90)])
def test_auto_is_the_largest_ratio_at_which_the_nearest_are_expected_to_be_clean(
    doubt, ratio, caplog
):
    random = np.random.default_rng(3)
    scores = random.uniform(0.8, 1.0, (60, 40)).astype(np.float32)
    chance = doubt * random.random((60, 40)) * np.maximum(scores - 0.88, 0.002)
    chance = np.clip(chance, 0, 1).astype(np.float32)
    block = candidates({"dense": scores, "p_relevant": chance}, {"dense": 1.0})
    shares = {}
    for ceiling in (0.90, 0.92, 0.94, 0.95, 0.96, 0.98):
        below = np.where(scores < ceiling, scores, -1.0)
        nearest = np.argsort(below, axis=1)[:, -7:]
        taken = np.take_along_axis(below, nearest, axis=1) > 0
        shares[ceiling] = np.take_along_axis(chance, nearest, axis=1)[taken].mean()
    expected = max((ceiling for ceiling, share in shares.items() if share <= 0.015), default=0.90)
    assert ratio in (None, expected)
    steps = {"max_ratio": {"max_ratio": "auto"}, "top": {"by": "dense"}}
    runner = Runner(Recipe.model_validate({"description": "-", "negatives": 7, "steps": steps}), 1)
    assert runner.recipe.requires == {"dense", "p_relevant"}
    shards = CandidateShards.of([block.take(slice(0, 25)), block.take(slice(25, None))])
    with caplog.at_level(logging.INFO):
        after = runner.run(shards).whole()
    assert after.rules["max_ratio"].text.startswith(f"dense ≥ {expected:g} of the positive's")
    assert scores[after.negatives].max() < expected
    level = "WARNING" if shares[expected] > 0.015 else "INFO"
    assert {record.levelname for record in caplog.records} == {level}


def test_related_documents_are_rejected_under_their_own_names() -> None:
    after = apply(candidates({"related": [0, 1, 2]}), "duplicate_guard")
    names = [after.legend[code] for code in after.verdict[0]]
    assert names == ["open", "near_duplicate", "sibling"]
    # They may be relevant, so they are no negatives inside a training batch either.
    is_related = [[False, True, True]]
    assert after.of_kind("unsafe").tolist() == after.excluded_in_batch.tolist() == is_related


BM25, DENSE, GRAPH, RANDOM = (SOURCES[name] for name in ("bm25", "dense", "graph", "random"))


def found_by(source: list[int], dense: list[float], rank: list[float]) -> Candidates:
    return candidates({"dense": dense, "dense_rank": rank}, {"dense": 0.8}, [source])


# The window holds 0 and 1; 2 is deeper (and 3, which BM25 found only), 4 graph-swapped, 5 and 6
# random, 6 the nearer.
ROW = (
    [DENSE, BM25 | DENSE, DENSE, BM25, GRAPH, RANDOM, RANDOM],
    [0.7, 0.6, 0.5, 0.1, 0.9, 0.05, 0.3],
    [1, 2, 11, 400, 3, 900, 60],
)
BACK_OFF = ({"back_off": {"last": 10}}, {"top": {"by": "dense"}})


@pytest.mark.parametrize(
    ("count", "taken"),
    [(2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (7, [0, 1, 2, 3, 4, 5])],
)
def test_one_goes_deeper_then_to_the_graph_then_far_away_and_no_further(
    count: int, taken: list[int]
) -> None:
    after = run(found_by(*ROW), *BACK_OFF, negatives=count)
    order = np.argsort(after.columns["choice"][0][: len(taken) + 1])
    assert np.flatnonzero(after.negatives[0]).tolist() == taken
    tiers = ["window"] * 2 + ["deeper"] * 2 + ["graph"] + ["random"] * 2
    assert [TIERS[int(tier)] for tier in after.columns["tier"][0]] == tiers
    # Drawn tier by tier, the nearest first within each; the nearer half of the random ones is not
    # far away.
    assert order[: len(taken)].tolist() == taken
    assert after.legend[after.verdict[0, 6]] == "back_off"


def test_what_a_filter_rejected_never_fills_a_row() -> None:
    after = run(found_by(*ROW), {"max_ratio": {"max_ratio": 0.7}}, *BACK_OFF, negatives=7)
    assert np.flatnonzero(after.negatives[0]).tolist() == [2, 3, 5]
    assert {after.legend[code] for code in after.verdict[0, [0, 1, 4]]} == {"max_ratio"}


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), min_size=1, max_size=9))
def test_the_half_that_is_taken_is_the_least_similar_and_at_least_one(
    similarities: list[float],
) -> None:
    count = len(similarities)
    block = found_by([RANDOM] * count, similarities, [500] * count)
    after = run(block, "back_off", "top", negatives=count)
    taken = after.negatives[0]
    assert taken.sum() == int(np.ceil(count / 2))
    assert max(np.array(similarities)[taken]) <= min(np.array(similarities)[~taken], default=1)


SCORES = [0.9, 0.62, 0.55, 0.4, np.nan, 0.5]
RANKS = [1, 3, 4, 7, np.nan, 5]
TRIALS = 6000


def rows_of(count: int = 1, positive: float = 0.6, positive_rank: float = 3) -> Candidates:
    """The same tiny row under many queries, so that each draws from its own stream; the last candidate is out."""
    columns = {"dense": SCORES, "dense_rank": RANKS, "hardness": [0.1, 0.4, 0.0, -1.0, np.nan, 0.5]}
    own = {"dense": positive, "dense_rank": positive_rank}
    block = candidates({name: np.tile(values, (count, 1)) for name, values in columns.items()}, own)
    return block.rejected("margin", np.arange(len(SCORES)) == len(SCORES) - 1)


def expected_chances(form: str, a: float, b: float) -> NDArray[np.float64]:
    """Probabilities of the four candidates in play, written out."""
    scores, ranks = np.array(SCORES[:4]), np.array(RANKS[:4]) - 1
    if form == "rank":
        density = np.exp(-a * np.abs(ranks - b * 2))
    else:
        peak = b if form == "score" else -b
        density = np.exp(-a / np.var(scores - 0.6) * (scores - 0.6 - peak) ** 2)
    result: NDArray[np.float64] = density / density.sum()
    return result


def inclusion(chances: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Chance of being among ``count`` draws without replacement, by going through all orders."""
    result = np.zeros(len(chances))
    for order in permutations(range(len(chances)), count):
        chance, left = 1.0, 1.0
        for drawn in order:
            chance *= chances[drawn] / left
            left -= chances[drawn]
        result[list(order)] += chance
    return result


FORMS = [
    ({"form": "score"}, ("score", 0.5, 0.0)),
    ({"form": "released", "a": 1, "b": 0.1}, ("released", 1, 0.1)),
    ({"form": "rank"}, ("rank", 1.0, 1.5)),
    ({"form": "rank", "a": 0.3, "b": 1}, ("rank", 0.3, 1.0)),
]


@pytest.mark.parametrize(("params", "written"), FORMS)
def test_draws_have_exactly_the_distribution_of_the_formula(
    params: dict[str, Any], written: Any
) -> None:
    chances = expected_chances(*written)
    block = rows_of(TRIALS)
    after = apply(block, "simans", 2, **params)
    assert (after.negatives.sum(axis=1) == 2).all() and not after.negatives[:, 4:].any()
    first = (after.columns["choice"] == 1).sum(axis=0)[:4]
    assert chisquare(first, TRIALS * chances).pvalue > 1e-3
    # Each row holds two, so the counts are less spread than independent ones, and the test is on
    # the safe side.
    both = after.negatives.sum(axis=0)[:4]
    assert chisquare(both, TRIALS * inclusion(chances, 2)).pvalue > 1e-3
    # The test can fail: without the formula all would be alike.
    assert chisquare(first).pvalue < 1e-3


def test_draws_by_a_column_have_exactly_its_distribution_and_random_ones_are_even() -> None:
    even = apply(rows_of(TRIALS), "random", 2).negatives
    assert (even.sum(axis=1) == 2).all() and not even[:, 5].any()
    assert chisquare(even.sum(axis=0)[:5]).pvalue > 1e-3
    drawn = apply(rows_of(TRIALS), "draw", 1).negatives.sum(axis=0)[:2]
    assert chisquare(drawn, TRIALS * np.array([0.2, 0.8])).pvalue > 1e-3
    # What has no chance is never drawn, though a negative is missing then.
    assert (apply(rows_of(50), "draw", 3).negatives == [True, True] + [False] * 4).all()


def test_importance_is_the_inverse_chance_with_a_mean_of_one() -> None:
    block = rows_of(40)
    after, weighed = apply(block, "simans", 3), apply(block, "simans", 3, weigh=True)
    inverse = np.append(1 / expected_chances("score", 0.5, 0.0), [np.nan, np.nan])
    inverse = np.where(after.negatives, inverse, np.nan)
    means = np.nanmean(inverse, axis=1, keepdims=True)
    largest = np.nanmax(inverse, axis=1, keepdims=True)
    np.testing.assert_allclose(after.columns["importance"], inverse / means, rtol=1e-5)
    assert (after.weight == 1).all() and (weighed.negatives == after.negatives).all()
    expected = (inverse / largest)[after.negatives]
    np.testing.assert_allclose(weighed.weight[after.negatives], expected, rtol=1e-5)
