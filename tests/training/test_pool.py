from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mined import row as any_row

from anmi import seeds
from anmi.errors import AnmiError
from anmi.training.batch import Row, assemble
from anmi.training.curriculum import State
from anmi.training.parts import TiersOptions
from anmi.training.sampling import PoolSampler, _check_pool

ELO = 1500.0


class Held:
    """A curriculum that stays where it is."""

    def __init__(self, low: float, high: float, negatives: int | None = None) -> None:
        self.state = State(0.5, low, high, negatives)


def row(number: int, gaps, weights=None) -> Row:
    """A row whose negative of gap g is the document "g" of query "q<number>"."""
    names = [f"{number}:{place}:{gap}" for place, gap in enumerate(gaps)]
    elo, cross = (ELO, tuple(ELO - gap for gap in gaps)), (0.9, tuple(map(float, range(len(gaps)))))
    weights = tuple(weights or [1.0] * len(names))
    return any_row(f"q{number}", f"d{number}", names, weights=weights, judged={"elo": elo, "cross": cross})


def sampler(rows, count=3, curriculum=None, seed=1, **options) -> PoolSampler:
    return PoolSampler(rows, count, seed, curriculum, TiersOptions(**options), ["cross"])


def gaps_of(picked: Row) -> list[float]:
    return [float(text.split(":")[2]) for text in picked.negatives]


POOLS = st.lists(
    st.lists(st.one_of(st.integers(-300, 900).map(float), st.just(float("nan"))), max_size=12), min_size=1, max_size=5
)
WINDOWS = st.tuples(st.integers(-200, 700), st.integers(0, 400)).map(lambda w: (float(w[0]), float(w[0] + w[1])))


def slow_draw(one: Row, seed: int, step: int, low: float, high: float, count: int) -> list[str]:
    """Take candidates one by one, as a reader of the rules would."""
    uniform = seeds.uniform(
        seed, f"training/pool/{step}", [f"{one.query_id}\x1f{one.positive_id}"], np.arange(len(one.negatives))[None]
    )[0]
    left = []
    for place, rating in enumerate(one.judged["elo"][1]):
        gap = ELO - rating
        if gap < 100 or one.weights[place] == 0:
            continue
        distance = np.inf if np.isnan(gap) else low - gap if gap < low else gap - high if gap > high else 0.0
        left.append((distance, uniform[place], one.negatives[place]))
    return [name for _, _, name in sorted(left)[:count]]


@given(pools=POOLS, window=WINDOWS, count=st.integers(0, 6), step=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_the_draw_is_that_of_the_rules_one_by_one(pools, window, count, step):
    rows = [
        row(number, gaps, [float(place % 4 != 3) for place in range(len(gaps))]) for number, gaps in enumerate(pools)
    ]
    found = sampler(rows, count, Held(*window))(np.arange(len(rows)), step)
    assert [list(one.negatives) for one in found] == [slow_draw(one, 1, step, *window, count) for one in rows]


@given(order=st.permutations(range(6)), step=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_neither_the_order_of_a_batch_nor_what_else_is_in_it_matters(order, step):
    rows = [row(number, range(100, 900, 50)) for number in range(6)]
    draw = sampler(rows, 4, Held(200, 500))
    alone = [draw(np.array([number]), step)[0] for number in order]
    assert draw(np.array(order), step) == alone
    # Nor does a longer row elsewhere, or the row's number in the table.
    others = [row(9, range(100, 2000, 50)), *rows[::-1]]
    assert sampler(others, 4, Held(200, 500))(np.array([6 - number for number in order]), step) == alone


def test_weights_and_judgments_go_with_the_negatives_and_elo_stays_behind():
    one = row(0, [150.0, 250.0, 350.0], [0.5, 1.0, 0.7])
    (picked,) = sampler([one], 2, Held(240, 400))(np.array([0]), 0)
    assert sorted(zip(gaps_of(picked), picked.weights, picked.judged["cross"][1], strict=True)) == [
        (250.0, 1.0, 1.0),
        (350.0, 0.7, 2.0),
    ]
    assert set(picked.judged) == {"cross"}


def test_what_is_too_close_does_not_come_back_through_another_row():
    close = row(0, [50.0, 300.0])
    # The second row brings the document that is too close to the first one's positive.
    other = replace(row(1, [300.0]), negative_ids=close.negative_ids[:1], negatives=close.negatives[:1])
    batch = sampler([close, other], 2, Held(100, 400))(np.array([0, 1]), 0)
    assembly = assemble(batch, "all")
    weights = dict(zip(assembly.texts, assembly.weights[0], strict=True))
    assert weights[close.negatives[0]] == 0
    assert weights[close.negatives[1]] == 1


def test_by_rank_the_window_is_a_share_of_the_rows_own_pool():
    rows = [row(0, [float("nan")] * 5), row(1, [float("nan")] * 9)]
    draw = PoolSampler(rows, 3, 1, Held(0.5, 1.0), TiersOptions(window="rank"))
    places = [sorted(int(text.split(":")[1]) for text in one.negatives) for one in draw(np.array([0, 1]), 0)]
    assert places[0] == [2, 3, 4]
    assert set(places[1]) < {4, 5, 6, 7, 8}


@pytest.mark.parametrize(("negatives", "message"), [(3, "3 negatives a row .* more than 3"), (None, "all negatives")])
def test_a_pool_with_nothing_to_choose_is_refused(negatives, message):
    with pytest.raises(AnmiError, match=message):
        _check_pool([row(0, [1.0, 2.0, 3.0])], negatives)
    _check_pool([row(0, [1.0, 2.0, 3.0])], 2)
