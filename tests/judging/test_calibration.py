"""From scores to probabilities: calibration, hidden positives, expected shares and stacked judges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit
from scipy.stats import binomtest
from tests.judging.conftest import block_of

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.calibration import cross_fitted, fit_platt, reliability, threshold_for
from anmi.judging.denoise import Stack
from anmi.judging.evidence import Material, Terms, gather_known, hide, would_be_retrieved
from anmi.judging.expected import ExpectedShare
from anmi.judging.fused import FEATURES, FusedModel
from anmi.judging.prior import (
    Examples,
    as_relevant,
    clusters,
    examples_of,
    fit_contaminated,
    share_by_known,
    with_mean,
)


def judged(seed: int, slope: float, offset: float, scale: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.normal(offset, scale, 3000)
    labels = rng.random(3000) < expit(slope * (scores - offset) / scale - 1)
    return scores, labels.astype(int)


@pytest.mark.parametrize(
    ("slope", "offset", "scale"), [(1.5, 0, 1), (3.0, 0.8, 0.05), (2.0, -40, 12)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_platt_is_the_plain_maximum_of_the_likelihood(
    slope: float, offset: float, scale: float, weighted: bool
) -> None:
    scores, labels = judged(0, slope, offset, scale)
    ones = np.ones(len(scores))
    weights = np.random.default_rng(1).uniform(0.2, 2, len(scores)) if weighted else ones

    def loss(parameters: np.ndarray) -> float:
        z = parameters[0] * (scores - offset) / scale + parameters[1]
        return -float((weights * np.where(labels == 1, log_expit(z), log_expit(-z))).sum())

    best = minimize(loss, np.zeros(2), method="BFGS").x
    grid = np.linspace(offset - 3 * scale, offset + 3 * scale, 50)
    expected = expit(best[0] * (grid - offset) / scale + best[1])
    # What has no score is left out of the fit and stays missing.
    columns = ((scores, np.nan), (labels, 1), (weights, 1))
    holes = [np.append(values, [extra] * 2) for values, extra in columns]
    for fitted in (fit_platt(scores, labels, weights), fit_platt(*holes)):
        np.testing.assert_allclose(fitted(grid), expected, atol=2e-3)
        assert np.isnan(fitted(np.array([np.nan, offset]))).tolist() == [True, False]


def test_a_score_is_calibrated_by_what_was_fitted_on_the_other_parts() -> None:
    scores, labels = judged(5, 2.0, -3, 4)
    folds = np.random.default_rng(6).integers(0, 3, len(scores))
    found, _ = cross_fitted(scores, labels, folds)
    for k in range(3):
        inside = folds == k
        expected = fit_platt(scores[~inside], labels[~inside])(scores[inside])
        np.testing.assert_allclose(found[inside], expected, rtol=1e-6)


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.05, 0.15, 0.12, 1.0]), np.array([0, 1, 0, 1]), bins=10)
    assert [row["count"] for row in found["bins"]] == [1, 2, 1]
    assert [row["predicted"] for row in found["bins"]] == pytest.approx([0.05, 0.135, 1.0])
    assert [row["observed"] for row in found["bins"]] == pytest.approx([0.0, 0.5, 1.0])
    assert found["expected_calibration_error"] == pytest.approx((0.05 + 2 * 0.365 + 0.0) / 4)
    half, labels, weights = np.array([0.5, 0.5]), np.array([1, 0]), np.array([3.0, 1.0])
    weighed = reliability(half, labels, bins=2, weights=weights)
    assert weighed["bins"][0]["observed"] == pytest.approx(0.75)
    assert weighed["expected_calibration_error"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([0.1, 0.2, np.nan], [1, 1, 0], "only one kind"),
        ([np.nan, np.nan], [0, 1], "no finite score among 2"),
        ([], [], "no finite score among 0"),
    ],
)
def test_what_cannot_be_calibrated_is_said(
    scores: list[float], labels: list[int], message: str
) -> None:
    with pytest.raises(AnmiError, match=message):
        fit_platt(np.array(scores), np.array(labels))


# Few distinct values, so that there are ties.
ROWS = st.lists(
    st.tuples(st.integers(0, 12).map(lambda i: i / 12), st.booleans()), min_size=2, max_size=60
).filter(lambda rows: len({label for _, label in rows}) == 2)


@given(rows=ROWS, target=st.fractions(0, Fraction(39, 40), max_denominator=40))
def test_the_threshold_is_the_highest_that_meets_the_target(
    rows: list[tuple[float, bool]], target: Fraction
) -> None:
    probability, label = (np.array(column) for column in zip(*rows, strict=True))
    found = threshold_for(probability, label, float(target))
    positives = [p for p, relevant in rows if relevant]

    def rate(threshold: float) -> Fraction:
        return Fraction(sum(p < threshold for p in positives), len(positives))

    # Every threshold that tells some documents apart, and one above all of them.
    meeting = [t for t in [*sorted({p for p, _ in rows}), 2.0] if rate(t) <= target]
    assert rate(found.threshold) == max(map(rate, meeting))
    assert not [t for t in meeting if t > found.threshold]
    assert found.rate == float(rate(found.threshold)) and found.positives == len(positives)
    passed = sum(p < found.threshold for p in positives)
    interval = binomtest(passed, len(positives)).proportion_ci(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


def value_of(row: int, document: int) -> float:
    return 100 * row + document


@st.composite
def blocks(draw: st.DrawFn) -> Candidates:
    """Up to four queries with up to four positives among ten documents; a column names row and document."""
    rows = draw(st.integers(1, 4))
    positives = np.full((rows, 4), PADDING, np.int32)
    documents = np.full((rows, 5), PADDING, np.int32)
    for row in range(rows):
        order = draw(st.permutations(range(10)))
        count = draw(st.integers(0, 4))
        positives[row, :count] = order[:count]
        width = draw(st.integers(0, 5))
        documents[row, :width] = order[count : count + width]
    number = np.arange(rows)[:, None] * 100.0
    dense, own = (np.where(each < 0, np.nan, number + each) for each in (documents, positives))
    columns = {"dense": dense, "of_candidates": documents * 1.0}
    return block_of(documents, positives, columns, {"dense": own})


@given(blocks(), st.integers(0, 6))
def test_each_positive_of_a_query_with_several_is_hidden_once_and_the_others_stay_known(
    block: Candidates, depth: int
) -> None:
    hidden, row, place = hide(block, depth)
    own = [[int(d) for d in each if d != PADDING] for each in block.positives]
    several = [(f"q{at}", d) for at, each in enumerate(own) for d in each if len(each) > 1]
    found = zip(hidden.query_ids.tolist(), hidden.documents[:, 0].tolist(), strict=True)
    assert Counter(found) == Counter(several)
    for at in range(len(hidden)):
        origin, document = int(row[at]), int(hidden.documents[at, 0])
        assert hidden.query_ids[at] == block.query_ids[origin]
        assert block.positives[origin, place[at]] == document
        known = [int(each) for each in hidden.positives[at] if each != PADDING]
        assert sorted([*known, document]) == sorted(own[origin])
        others = [int(each) for each in hidden.documents[at, 1:] if each != PADDING]
        nearest = sorted((int(d) for d in block.documents[origin] if d != PADDING), reverse=True)
        assert others == nearest[:depth], "here the larger number is the more similar document"
        for each, value in zip(hidden.documents[at], hidden.columns["dense"][at], strict=True):
            assert np.isnan(value) if each == PADDING else value == value_of(origin, int(each))
        similar = hidden.positive_columns["dense"][at]
        assert similar[np.isfinite(similar)].tolist() == [value_of(origin, each) for each in known]
    assert hidden.columns.keys() == {"dense"}, "others would tell positives apart"


@given(blocks(), st.integers(1, 3), st.integers(0, 9))
def test_a_few_of_many_are_drawn_by_the_query_alone(
    block: Candidates, most: int, seed: int
) -> None:
    _, row, place = hide(block, 2, most, seed)
    count = (block.positives != PADDING).sum(axis=1)
    expected = np.where(count > 1, np.minimum(count, most), 0)
    assert np.bincount(row, minlength=len(block)).tolist() == expected.tolist()
    for at in range(len(block)):
        _, _, alone = hide(block.take(slice(at, at + 1)), 2, most, seed)
        assert alone.tolist() == place[row == at].tolist()


def test_what_is_less_similar_than_every_candidate_would_never_have_been_one() -> None:
    rows = [[0.5, 0.6, 0.4], [0.3, 0.6, 0.4], [0.4, 0.4, np.nan], [0.9, np.nan, np.nan]]
    assert would_be_retrieved(np.array(rows, np.float32)).tolist() == [True, False, True, False]


WIDTH = len(FEATURES)


def model_of(intercept: float) -> FusedModel:
    return FusedModel((0.0,) * WIDTH, (1.0,) * WIDTH, (0.5,) * WIDTH, intercept)


@given(st.floats(-8, 2), st.floats(0.001, 0.5), st.integers(0, 99))
def test_all_odds_are_raised_by_one_factor_until_the_mean_is_the_share(
    intercept: float, least: float, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(size=(200, WIDTH)).astype(np.float32)
    model = model_of(intercept)
    found, share = with_mean(model, values, least)
    before = model(values)
    assert share == pytest.approx(max(before.mean(), least))
    assert found.coefficients == model.coefficients
    # Independent: the shift by bisection over a loop.
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(expit(float(each) + middle) for each in logit(before)) / len(before)
        low, high = (middle, high) if mean < least else (low, middle)
    expected = high if before.mean() < least else 0.0
    assert found.intercept - model.intercept == pytest.approx(expected, abs=1e-6)


def collection(queries: int, width: int = 12) -> tuple[Candidates, Material]:
    draw = np.random.default_rng(5)
    words = [f"w{number}" for number in range(50)]
    texts = [" ".join(draw.choice(words, 8)) for _ in range(80)]
    vectors = draw.normal(size=(80, 4)).astype(np.float32)
    material = Material(
        Terms.build(texts, lambda given: [text.split() for text in given]),
        {f"q{row}": " ".join(draw.choice(words, 3)) for row in range(queries)},
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
    )
    documents = np.array([draw.permutation(80)[: width + 1] for _ in range(queries)], np.int32)
    columns, own = {"dense": draw.random((queries, width))}, {"dense": np.full((queries, 1), 0.9)}
    return block_of(documents[:, 1:], documents[:, :1], columns, own), material


def test_too_few_known_positives_among_the_most_similar_say_nothing() -> None:
    block, material = collection(30)

    def share(fewest: int, *blocks: Candidates) -> float | None:
        known = [gather_known(each, material, 12) for each in blocks]
        return share_by_known(known, ridge=0.003, expected=0.02, fewest_queries=fewest)

    found = share(30, block)
    assert found is not None and 0 < found < 1 and share(31, block) is None
    far = replace(block, positive_columns={"dense": np.full((30, 1), -0.5, np.float32)})
    assert share(1, far) is None, "none of them would have been found"
    halves = [block.take(slice(0, 11)), block.take(slice(11, None))]
    assert share(30, *halves) == pytest.approx(found, rel=1e-3), "whatever the shards"


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 99))
def test_a_positive_is_one_of_at_most_so_many_as_relevant(
    relevant: int, shard: int, seed: int
) -> None:
    """Of ``relevant`` documents before all others one is labelled: it is first in one of so many queries."""
    draw = np.random.default_rng(seed)
    queries, width = 60 * relevant, 130
    order = np.arange(width)[None, :].repeat(queries, axis=0)
    place = np.tile(np.arange(relevant), 60)
    score = (width - order).astype(np.float32)
    own = np.take_along_axis(score, place[:, None], axis=1)
    rest = order != place[:, None]
    nothing = draw.random((queries, width)).astype(np.float32)
    columns = {"dense": score[rest].reshape(queries, -1), "bm25": nothing[:, 1:]}
    documents = (1 + order[rest]).reshape(queries, width - 1)
    positive_columns = {"dense": own, "bm25": nothing[:, :1]}
    block = block_of(documents, np.zeros((queries, 1)), columns, positive_columns)
    # The better of the rankings counts, whatever the shards.
    found = as_relevant([block.take(slice(at, None, shard)) for at in range(shard)], 100)
    assert found == (pytest.approx(relevant), 1.0)
    hopeless = replace(block, positive_columns=dict.fromkeys(("dense", "bm25"), 0 * own))
    assert as_relevant([hopeless], 100) == (2 * queries, 0.0)


def test_a_group_is_what_is_far_more_like_the_positive_than_all_others() -> None:
    group, others = np.linspace(0.9, 0.4, 20), np.linspace(0.19, 0.0, 40)
    cases = [
        (np.concatenate([group, others]), 20),
        (np.concatenate([group[:2], np.full(18, 0.19), others]), 0),
        (np.concatenate([group / 3, others / 3]), 0),
        (np.linspace(0.9, 0.2, 60), 0),
        (np.append(np.full(59, np.nan), 0.9), 0),
    ]
    order = np.random.default_rng(3).permutation(60)
    found = clusters(np.array([values[order] for values, _ in cases], np.float32))
    for row, (values, size) in zip(found, cases, strict=True):
        np.testing.assert_array_equal(row, np.isin(order, np.argsort(-values)[:size]))


QUERIES, POOL = 250, 100


def made(
    positives: int, prior: float, seed: int = 5
) -> tuple[Candidates, NDArray[np.float32], NDArray[np.bool_]]:
    """Make rows of a labelled document and a pool, inputs [R, 1 + M, 2], and what is relevant.

    Two pieces of evidence, together as good as an AUC of 0.96; all documents of a query are alike,
    and so are its positives, of which four are hidden at most.
    """
    draw = np.random.default_rng(seed)
    query = np.repeat(np.arange(QUERIES), min(positives, 4))
    of_pool = (draw.random((QUERIES, POOL)) < prior)[query]
    relevant = np.concatenate([np.ones((len(query), 1), bool), of_pool], axis=1)
    pool = draw.normal(size=(QUERIES, POOL, 2)) + 0.3 * draw.normal(size=(QUERIES, 1, 2))
    positive = draw.normal(size=(len(query), 1, 2))
    positive += 0.3 * draw.normal(size=(QUERIES, 1, 2))[query]
    values = np.concatenate([positive, pool[query]], axis=1)
    values += np.array([2.0, 1.5]) * relevant[:, :, None]
    documents = np.tile(np.arange(1 + POOL, dtype=np.int32), (len(query), 1))
    ids = np.array([f"q{each:03}" for each in query])
    no_positives = np.zeros((len(query), 0), np.int32)
    block = Candidates(ids, no_positives, documents, np.full(documents.shape, 2, np.uint8))
    return block, values.astype(np.float32), relevant


def taken(block: Candidates, values: NDArray[np.float32]) -> Examples:
    found = examples_of([(block, values, np.zeros(len(block), np.int64))])
    assert found is not None
    return found


def fitted(seen: Examples, expected: float = 0.016) -> tuple[NDArray[np.float64], float, float]:
    found = fit_contaminated(seen, np.array([1.0, 1.0]), 0.003, expected)
    return np.array(found.coefficients), found.intercept, found.share


@pytest.mark.parametrize(("positives", "prior"), [(1, 0.0001), (5, 0.01), (40, 0.05), (1, 0.2)])
def test_the_share_of_relevant_documents_in_the_pool_is_found_and_the_chances_say_it(
    positives: int, prior: float
) -> None:
    block, values, relevant = made(positives, prior)
    slopes, intercept, share = fitted(taken(block, values))
    assert share == pytest.approx(prior, rel=0.5, abs=0.006)
    first = np.unique(block.query_ids, return_index=True)[1]
    pool, truth = values[first, 1:], relevant[first, 1:]
    probability = expit(pool @ slopes + intercept)
    assert probability.mean() == pytest.approx(truth.mean(), rel=0.5, abs=0.006)
    if prior >= 0.05:
        assert truth[probability < np.median(probability)].mean() < 0.1 * truth.mean()


def test_positives_of_one_query_count_as_one() -> None:
    """Each of a query's positives many times over is the same evidence, and so are many rows of its pool."""
    block, values, _ = made(5, 0.05)
    seen = taken(block, values)
    again = np.repeat(np.arange(len(block)), np.where(np.arange(len(block)) < 400, 3, 1))
    # Only whole queries are repeated, four rows each.
    repeated = taken(block.take(again), values[again])
    one, other = fitted(seen), fitted(repeated)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-3)
    assert one[1:] == pytest.approx(other[1:], rel=5e-3)


def test_the_gradient_is_that_of_the_likelihood() -> None:
    """The optimum is a stationary point: no small step in any direction is better."""
    block, values, _ = made(1, 0.05)
    seen = taken(block, values)
    slopes, intercept, share = fitted(seen)
    odds = np.log(share / (1 - share))

    def loss(point: NDArray[np.float64]) -> float:
        ratio = np.exp(seen.values @ point[:2] + point[2])
        pi = expit(point[3])
        relevant = pi * ratio / (pi * ratio + 1 - pi)
        chance = relevant / (relevant + pi)
        fit = np.where(seen.labelled, np.log(chance), np.log1p(-chance))
        spread = (point[3] - np.log(0.016 / 0.984)) ** 2 / 8 / (10 * seen.queries)
        ridge = 0.003 * ((point[:2] - 1) ** 2).sum()
        return float(ridge + spread - np.average(fit, weights=seen.weights))

    best = np.array([*slopes, intercept - odds, odds])
    for axis in range(4):
        for step in (-0.05, 0.05):
            assert loss(best + step * np.eye(4)[axis]) > loss(best)


def test_it_is_the_mean_whatever_the_blocks_and_its_bounds_follow_the_formula() -> None:
    draw = np.random.default_rng(1)
    probability = np.where(draw.random((60, 5)) < 0.2, np.nan, draw.beta(0.5, 9, (60, 5)))
    queries = np.repeat(np.arange(30), 2)
    found, parts = ExpectedShare(), ExpectedShare()
    found.add(probability, queries)
    for start in range(0, 60, 4):
        parts.add(probability[start : start + 4], queries[start : start + 4])
    assert found.share == pytest.approx(np.nanmean(probability)) == parts.share
    assert found.interval == pytest.approx(parts.interval)
    # Independent: a loop over the queries.
    for factor, side, bound in ((0.05, -1, found.interval[0]), (3.0, 1, found.interval[1])):
        odds = factor * probability / (1 - probability)
        scaled = odds / (1 + odds)
        share, total = np.nanmean(scaled), np.isfinite(scaled).sum()
        groups = [scaled[queries == q] for q in range(30)]
        spread = sum((np.nansum(g) - share * np.isfinite(g).sum()) ** 2 for g in groups)
        variance = (30 / 29 * spread + np.nansum(scaled * (1 - scaled))) / total**2
        assert bound == pytest.approx(max(share + side * 1.96 * np.sqrt(variance), 0))


TWO_ROWS, TWO_WIDTH = 300, 10


def judged_by_two(informative: bool, seed: int = 0, hidden: int = TWO_ROWS) -> Candidates:
    """Two judges of noisy log-odds; the second one speaks of relevance, or of nothing."""
    draw = np.random.default_rng(seed)
    candidates = draw.random((TWO_ROWS, TWO_WIDTH)) < 0.05
    relevant = np.concatenate([np.ones((TWO_ROWS, 1)), candidates], axis=1)
    first = expit(-2 + 3 * relevant + draw.normal(size=relevant.shape))
    second = expit(-2 + 3 * relevant * informative + draw.normal(size=relevant.shape))
    held = first[:, :1].copy()
    held[hidden:] = np.nan
    documents = np.arange(1, TWO_WIDTH + 1, dtype=np.int32)[None, :].repeat(TWO_ROWS, axis=0)
    columns = {"p_evidence": first[:, 1:], "p_cross": second[:, 1:]}
    own = {"p_heldout": held, "p_cross": second[:, :1]}
    return block_of(documents, np.zeros((TWO_ROWS, 1)), columns, own)


def fit(block: Candidates) -> Stack:
    return Stack.fit(CandidateShards.of([block.take(slice(0, 70)), block.take(slice(70, None))]))


@pytest.mark.parametrize("informative", [True, False])
def test_the_weight_is_the_likeliest_with_the_first_judge_as_offset(informative: bool) -> None:
    block = judged_by_two(informative, seed=4)
    own, others = block.positive_columns, block.columns
    first = np.append(own["p_heldout"], others["p_evidence"]).astype(np.float64)
    second = np.append(own["p_cross"], others["p_cross"]).astype(np.float64)
    label = np.append(np.ones(TWO_ROWS), np.zeros(TWO_ROWS * TWO_WIDTH))
    found = fit(block)
    assert found.prior == pytest.approx(block.columns["p_cross"].mean(), rel=1e-5)
    more, base = logit(second) - logit(found.prior), logit(first)

    def likelihood(weight: float, intercept: float) -> float:
        score = base + weight * more + intercept
        return float((label * score - np.logaddexp(0, score)).mean())

    def profile(weight: float) -> float:
        return max(likelihood(weight, intercept) for intercept in np.linspace(-4, 4, 161))

    best = max(np.linspace(0, 3, 121), key=profile)
    assert found.weight == pytest.approx(best, abs=0.03)
    assert found.weight > 0.5 if informative else found.weight < 0.1
    assert found.hidden == TWO_ROWS


@pytest.mark.parametrize("hidden", [0, 49])
def test_too_few_hidden_positives_leave_the_fused_judge_alone(hidden: int) -> None:
    block = judged_by_two(informative=True, hidden=hidden)
    stack = fit(block)
    assert (stack.weight, stack.hidden) == (0, 0)
    found = stack(block)
    for got, known, name in (
        (found.columns, block.columns, "p_evidence"),
        (found.positive_columns, block.positive_columns, "p_heldout"),
    ):
        np.testing.assert_allclose(got["p_relevant"], known[name], rtol=1e-5)
