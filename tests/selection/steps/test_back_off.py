"""Back-off: where negatives come from when the window is short, and that nothing rejected comes back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.selection.conftest import candidates, run

from anmi.candidates import SOURCES, Candidates
from anmi.selection.steps.samplers import TIERS

BM25, DENSE, GRAPH, RANDOM = (SOURCES[name] for name in ("bm25", "dense", "graph", "random"))


def block_of(source: list[int], dense: list[float], rank: list[float]) -> Candidates:
    return candidates({"dense": dense, "dense_rank": rank}, {"dense": 0.8}, [source])


# The window holds 0 and 1; 2 is deeper (and 3, which BM25 found only), 4 graph-swapped, 5 and 6 random, 6 the nearer.
ROW = ([DENSE, BM25 | DENSE, DENSE, BM25, GRAPH, RANDOM, RANDOM], [0.7, 0.6, 0.5, 0.1, 0.9, 0.05, 0.3],
       [1, 2, 11, 400, 3, 900, 60])  # fmt: skip
STEPS = ({"back_off": {"last": 10}}, {"top": {"by": "dense"}})


@pytest.mark.parametrize(
    ("count", "taken"), [(2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (7, [0, 1, 2, 3, 4, 5])]
)
def test_one_goes_deeper_then_to_the_graph_then_far_away_and_no_further(count: int, taken: list[int]) -> None:
    after = run(block_of(*ROW), *STEPS, negatives=count)
    order = np.argsort(after.columns["choice"][0][: len(taken) + 1])
    assert np.flatnonzero(after.negatives[0]).tolist() == taken
    assert [TIERS[int(tier)] for tier in after.columns["tier"][0]] == [
        "window", "window", "deeper", "deeper", "graph", "random", "random",
    ]  # fmt: skip
    assert order[: len(taken)].tolist() == taken, "drawn tier by tier, the nearest first within each"
    assert after.legend[after.verdict[0, 6]] == "back_off", "the nearer half of the random ones is not far away"


def test_what_a_filter_rejected_never_fills_a_row() -> None:
    after = run(block_of(*ROW), {"max_ratio": {"max_ratio": 0.7}}, *STEPS, negatives=7)
    assert np.flatnonzero(after.negatives[0]).tolist() == [2, 3, 5]
    assert {after.legend[code] for code in after.verdict[0, [0, 1, 4]]} == {"max_ratio"}


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), min_size=1, max_size=9))
def test_the_half_that_is_taken_is_the_least_similar_and_at_least_one(similarities: list[float]) -> None:
    count = len(similarities)
    block = block_of([RANDOM] * count, similarities, [500] * count)
    after = run(block, "back_off", "top", negatives=count)
    taken = after.negatives[0]
    assert taken.sum() == int(np.ceil(count / 2))
    assert max(np.array(similarities)[taken]) <= min(np.array(similarities)[~taken], default=1)
