from __future__ import annotations

import numpy as np
from tests.mined import row

from anmi.training.batch import Row
from anmi.training.options import TrainingOptions
from anmi.training.sampling import build_sampler, round_at_random, with_hardness


def named(name: str, query: str = "what is it") -> Row:
    return row(query, f"{name} positive", [f"{name}-n{i}" for i in range(4)], query_id=name)


def sampler(rows: list[Row], seed: int = 1, **hans):
    options = TrainingOptions(hardness={"hans": hans}, negatives=3)
    return build_sampler(with_hardness(rows), options, None, seed)


def test_rounding_is_right_on_average_and_exact_for_whole_numbers():
    values = np.array([1.0, 1.3, 2.75, 3.0])
    ids = ["a", "b", "c", "d"]
    drawn = np.array([round_at_random(values, ids, step, seed=3) for step in range(1000)])
    assert (drawn[:, [0, 3]] == [1, 3]).all()
    assert set(drawn[:, 1]) == {1, 2}
    assert set(drawn[:, 2]) == {2, 3}
    # Four standard errors.
    assert np.abs(drawn.mean(0) - values).max() < 4 * 0.5 / np.sqrt(1000)


def test_a_draw_depends_on_seed_query_and_step_only():
    values, ids = np.linspace(1, 3, 30), [f"q{i}" for i in range(30)]
    drawn = round_at_random(values, ids, step=5, seed=1)
    order = np.random.default_rng(0).permutation(30)
    assert (round_at_random(values[order], [ids[i] for i in order], 5, 1) == drawn[order]).all()
    assert round_at_random(values[7:8], ids[7:8], 5, 1) == drawn[7]
    assert (round_at_random(values, ids, 6, 1) != drawn).any()
    assert (round_at_random(values, ids, 5, 2) != drawn).any()


def test_harder_queries_bring_more_of_the_best_negatives():
    rows = [named("easy", "go"), named("hard", "why, oh! " * 30)]
    draw = sampler(rows)
    counts = {"easy": [], "hard": []}
    for step in range(50):
        for found in draw(np.array([0, 1]), step):
            counts[found.query_id].append(len(found.negatives))
            assert found.negatives == named(found.query_id).negatives[: len(found.negatives)]
    assert min(map(min, counts.values())) >= 1
    assert max(map(max, counts.values())) <= 3
    assert np.mean(counts["hard"]) > np.mean(counts["easy"]) + 0.5
    assert draw.report() == {"negatives": (counts["easy"][-1] + counts["hard"][-1]) / 2}
