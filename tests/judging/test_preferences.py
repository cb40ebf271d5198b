"""Which pairs are compared, and how scores become preferences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.special import expit

from anmi.errors import AnmiError
from anmi.judging.preferences import comparisons, fit_slope, fit_temperature, groups, pool, preference, sharpen, touched


def adjacency(first: np.ndarray, second: np.ndarray, valid: np.ndarray, size: int) -> np.ndarray:
    matrix = np.zeros((size, size), int)
    np.add.at(matrix, (first[valid], second[valid]), 1)
    return matrix + matrix.T


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    degree=st.sampled_from([2, 4, 8, 12, 20]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_graphs_are_regular_connected_and_without_repeats(sizes: list[int], degree: int, seed: int) -> None:
    first, second, valid = comparisons([f"q{i}" for i in range(len(sizes))], np.array(sizes), degree, seed)
    for q, size in enumerate(sizes):
        assert first[q][valid[q]].max(initial=0) < size and second[q][valid[q]].max(initial=0) < size
        matrix = adjacency(first[q], second[q], valid[q], size)
        assert matrix.max() <= 1 and not matrix.diagonal().any()
        assert (matrix.sum(axis=1) == min(degree, size - 1)).all()
        assert np.isfinite(shortest_path(csr_matrix(matrix), unweighted=True)).all()


@pytest.mark.parametrize("size", [9, 12, 13, 14, 21, 31, 60, 101])
def test_the_default_degree_works_for_many_queries_and_leaves_short_ways(size: int) -> None:
    ids = [f"q{i}" for i in range(60)]
    first, second, valid = comparisons(ids, np.full(60, size), 8, seed=3)
    for q in range(60):
        matrix = adjacency(first[q], second[q], valid[q], size)
        assert (matrix.sum(axis=1) == 8).all() and matrix.max() == 1
        assert shortest_path(csr_matrix(matrix), unweighted=True).max() <= np.log2(size) + 1


def test_a_graph_depends_on_its_own_query_alone() -> None:
    sizes = np.array([31, 5, 60, 14])
    first, second, valid = comparisons(["a", "b", "c", "d"], sizes, 8, seed=1)
    for q, name in enumerate("abcd"):
        alone = comparisons([name], sizes[[q]], 8, seed=1)
        together = adjacency(first[q], second[q], valid[q], 60)
        assert (together == adjacency(*(part[0] for part in alone), 60)).all()  # type: ignore[call-arg]


def test_other_queries_and_seeds_get_other_graphs() -> None:
    def graph(name: str, seed: int) -> bytes:
        parts = comparisons([name], np.array([31]), 8, seed)
        return adjacency(*(part[0] for part in parts), 31).tobytes()  # type: ignore[call-arg]

    assert len({graph("a", 1), graph("b", 1), graph("a", 2)}) == 3


def test_every_pair_is_equally_likely() -> None:
    count, size = 4000, 11
    first, second, valid = comparisons([str(i) for i in range(count)], np.full(count, size), 4, seed=0)
    total = sum(adjacency(f, s, v, size) for f, s, v in zip(first, second, valid, strict=True))
    share = np.asarray(total)[np.triu_indices(size, 1)] / count
    assert np.abs(share - 4 / (size - 1)).max() < 5 * np.sqrt(0.4 * 0.6 / count)


@pytest.mark.parametrize("degree", [0, 3, -2])
def test_a_degree_that_no_cycles_add_up_to_is_refused(degree: int) -> None:
    with pytest.raises(AnmiError, match="even degree"):
        comparisons(["q"], np.array([20]), degree, seed=0)


@pytest.mark.parametrize("scale", [0.02, 1.0, 30.0])
def test_the_temperature_of_simulated_judgments_is_found_again(scale: float) -> None:
    # The positive is the winner with probability σ(distance / T); seen is the difference of positive and other.
    rng = np.random.default_rng(0)
    distance = rng.gamma(2.0, 1.0, size=(20_000, 4)) * scale
    positive_wins = rng.random(distance.shape) < expit(distance / (0.7 * scale))
    others = -np.where(positive_wins, distance, -distance)
    others[::7, 0] = np.nan
    assert fit_temperature(np.zeros(20_000), others) == pytest.approx(0.7 * scale, rel=0.05)


def test_a_judge_without_any_skill_gets_preferences_near_one_half() -> None:
    differences = np.random.default_rng(0).normal(size=(2000, 3))
    temperature = fit_temperature(np.zeros(2000), np.concatenate([differences, -differences], axis=1))
    assert abs(expit(1.0 / temperature) - 0.5) < 0.05


def test_nothing_judged_is_an_error() -> None:
    with pytest.raises(AnmiError, match="no judged"):
        fit_temperature(np.zeros(2), np.full((2, 3), np.nan))


def test_a_preference_is_antisymmetric_and_missing_where_a_score_is() -> None:
    scores = np.array([[1.0, 3.0, np.nan]])
    a, b = np.array([[0, 1, 0]]), np.array([[1, 0, 2]])
    found = preference(scores, a, b, 2.0)[0]
    assert found[0] == pytest.approx(expit(-1.0)) and found[0] + found[1] == pytest.approx(1.0)
    assert np.isnan(found[2])


@given(
    votes=st.lists(
        st.lists(st.one_of(st.just(np.nan), st.floats(0, 1)), min_size=4, max_size=4), min_size=1, max_size=4
    ),
    weights=st.lists(st.floats(0.1, 5), min_size=4, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_pooling_is_the_weighted_mean_of_the_votes_there_are(votes: list[list[float]], weights: list[float]) -> None:
    found = pool([np.array([vote]) for vote in votes], weights[: len(votes)])[0]
    for place in range(4):
        cast = [(v[place], w) for v, w in zip(votes, weights, strict=False) if not np.isnan(v[place])]
        if cast:
            assert found[place] == pytest.approx(sum(v * w for v, w in cast) / sum(w for _, w in cast))
        else:
            assert np.isnan(found[place])


@given(
    size=st.integers(1, 9),
    pairs=st.lists(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=6), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_groups_are_those_found_by_walking_along_comparisons(size: int, pairs: list[list[tuple[int, int]]]) -> None:
    edges = np.zeros((len(pairs), 6, 2), int)
    present = np.zeros((len(pairs), 6), bool)
    for q, row in enumerate(pairs):
        for place, pair in enumerate(row):
            edges[q, place] = np.minimum(pair, size - 1)
            present[q, place] = True
    label = groups(edges[:, :, 0], edges[:, :, 1], present, size)
    used = touched(edges[:, :, 0], edges[:, :, 1], present, size)
    for q in range(len(pairs)):
        reach = {node: {node} for node in range(size)}
        for _ in range(size):
            for a, b in edges[q][present[q]]:
                union = reach[a] | reach[b]
                for node in union:
                    reach[node] = reach[node] | union
        for a in range(size):
            assert {b for b in range(size) if label[q, b] == label[q, a]} == reach[a]
            assert used[q, a] == (a in edges[q][present[q]])


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.5])
def test_the_slope_that_makes_pooled_preferences_calibrated_is_found_again(slope: float) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 1.5, size=(20_000, 2))
    stated = expit(odds)
    first_is_positive = rng.random(odds.shape) < expit(slope * odds)
    found = fit_slope(np.where(first_is_positive, stated, 1 - stated))
    assert found == pytest.approx(slope, rel=0.05)
    np.testing.assert_allclose(sharpen(stated, slope), expit(slope * odds), atol=1e-9)


def test_the_mean_of_independent_calibrated_judges_is_underconfident() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(0, 1, 40_000)
    wins = rng.random(truth.shape) < expit(truth)
    judged = []
    for _ in range(3):
        seen = (truth + rng.normal(0, 1, truth.shape))[:, None]
        turned = np.where(wins[:, None], seen, -seen)
        judged.append(expit(turned / fit_temperature(np.zeros(len(turned)), -turned)))
        assert fit_slope(judged[-1]) == pytest.approx(1.0, abs=0.02)
    assert fit_slope(pool(judged, [1.0, 1.0, 1.0])) > 1.2
