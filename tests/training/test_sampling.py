"""Which negatives, positives and pseudo-queries a step has, and what is counted of them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.mined import row as any_row
from tests.training import resuming

from anmi import seeds
from anmi.errors import AnmiError
from anmi.retrieval.pool import RelatedDocuments
from anmi.training import sampling
from anmi.training.batch import Row, assemble
from anmi.training.curriculum import Curriculum, State
from anmi.training.options import TrainingOptions
from anmi.training.parts import TiersOptions
from anmi.training.sampling import OneKindBatches, PseudoRows
from anmi.training.trainer import train

ELO = 1500.0


class Held:
    """A curriculum that stays where it is."""

    def __init__(self, low: float, high: float) -> None:
        self.state = State(0.5, low, high)


def row(number: int, gaps, weights=None) -> Row:
    """A row whose negatives are called by row, place and gap."""
    names = [f"{number}:{place}:{gap}" for place, gap in enumerate(gaps)]
    elo, cross = (ELO, tuple(ELO - gap for gap in gaps)), (0.9, tuple(map(float, range(len(gaps)))))
    judged = {"judged": {"elo": elo, "cross": cross}}
    weights = tuple(weights or [1.0] * len(names))
    return any_row(f"q{number}", f"d{number}", names, weights=weights, **judged)


def sampler(rows, count, curriculum, seed=1, **options):
    return sampling.PoolSampler(rows, count, seed, curriculum, TiersOptions(**options), ["cross"])


GAP = st.integers(-300, 900).map(float) | st.just(float("nan"))
POOLS = st.lists(st.lists(GAP, max_size=12), min_size=1, max_size=5)
WINDOWS = st.tuples(st.integers(-200, 700), st.integers(0, 400))


def slow_draw(one: Row, seed: int, step: int, low: float, high: float, count: int) -> list[str]:
    """Take candidates one by one, as a reader of the rules would."""
    places = np.arange(len(one.negatives))[None]
    key = f"{one.query_id}\x1f{one.positive_id}"
    (uniform,) = seeds.uniform(seed, f"training/pool/{step}", [key], places)
    left = []
    for place, rating in enumerate(one.judged["elo"][1]):
        gap = ELO - rating
        if not (gap < 100 or one.weights[place] == 0):
            distance = np.inf if np.isnan(gap) else max(low - gap, gap - high, 0.0)
            left.append((distance, uniform[place], one.negatives[place]))
    return [name for _, _, name in sorted(left)[:count]]


@given(pools=POOLS, window=WINDOWS, count=st.integers(0, 6), step=st.integers(0, 5))
def test_a_draw_from_a_window_is_that_of_the_rules_one_by_one(pools, window, count, step):
    low, high = float(window[0]), float(sum(window))
    rows = [
        row(number, gaps, [float(place % 4 != 3) for place in range(len(gaps))])
        for number, gaps in enumerate(pools)
    ]
    drawn = sampler(rows, count, Held(low, high))(np.arange(len(rows)), step)
    for one, found in zip(rows, drawn, strict=True):
        assert list(found.negatives) == slow_draw(one, 1, step, low, high, count)


@given(order=st.permutations(range(6)), step=st.integers(0, 3))
@settings(max_examples=20)
def test_neither_the_order_of_a_batch_nor_what_else_is_in_it_matters(order, step):
    rows = [row(number, range(100, 900, 50)) for number in range(6)]
    draw = sampler(rows, 4, Held(200, 500))
    alone = [draw(np.array([number]), step)[0] for number in order]
    assert draw(np.array(order), step) == alone
    # Nor does a longer row elsewhere, or the row's number in the table.
    others = sampler([row(9, range(100, 2000, 50)), *rows[::-1]], 4, Held(200, 500))
    assert others(np.array([6 - number for number in order]), step) == alone


def test_weights_and_judgments_go_with_the_negatives_and_elo_stays_behind():
    one = row(0, [150.0, 250.0, 350.0], [0.5, 1.0, 0.7])
    (picked,) = sampler([one], 2, Held(240, 400))(np.array([0]), 0)
    found = sorted(zip(picked.negatives, picked.weights, picked.judged["cross"][1], strict=True))
    assert found == [("0:1:250.0", 1.0, 1.0), ("0:2:350.0", 0.7, 2.0)]
    assert set(picked.judged) == {"cross"}


def test_what_is_too_close_does_not_come_back_through_another_row():
    close = row(0, [50.0, 300.0])
    # The second row brings the document that is too close to the first one's positive.
    other = replace(
        row(1, [300.0]), negative_ids=close.negative_ids[:1], negatives=close.negatives[:1]
    )
    assembly = assemble(sampler([close, other], 2, Held(100, 400))(np.array([0, 1]), 0), "all")
    weights = dict(zip(assembly.texts, assembly.weights[0], strict=True))
    assert [weights[name] for name in close.negatives] == [0, 1]


def test_by_rank_the_window_is_a_share_of_the_rows_own_pool():
    rows = [row(0, [float("nan")] * 5), row(1, [float("nan")] * 9)]
    draw = sampler(rows, 3, Held(0.5, 1.0), window="rank")
    first, second = (
        sorted(int(text.split(":")[1]) for text in one.negatives)
        for one in draw(np.array([0, 1]), 0)
    )
    assert first == [2, 3, 4] and set(second) < {4, 5, 6, 7, 8}


@pytest.mark.parametrize("negatives", [3, None])
def test_a_pool_with_nothing_to_choose_is_refused(negatives):
    with pytest.raises(AnmiError, match="no row has more than 3"):
        sampling._check_pool([row(0, [1.0, 2.0, 3.0])], negatives)
    sampling._check_pool([row(0, [1.0, 2.0, 3.0])], 2)


def test_rounding_is_right_on_average_and_a_draw_depends_on_seed_query_and_step_only():
    values, ids = np.array([1.0, 1.3, 2.75, 3.0] * 5), [f"q{i}" for i in range(20)]
    drawn = np.array([sampling.round_at_random(values, ids, step, seed=3) for step in range(1000)])
    assert (drawn[:, ::4] == 1).all() and (drawn[:, 3::4] == 3).all()
    # Four standard errors.
    assert np.abs(drawn.mean(0) - values).max() < 4 * 0.5 / np.sqrt(1000)
    order = np.random.default_rng(0).permutation(20)
    shuffled = sampling.round_at_random(values[order], [ids[i] for i in order], 5, 3)
    assert (shuffled == drawn[5][order]).all()
    assert sampling.round_at_random(values[6:7], ids[6:7], 5, 3) == drawn[5, 6]
    assert (drawn[6] != drawn[5]).any()
    assert (sampling.round_at_random(values, ids, 5, 2) != drawn[5]).any()


def test_harder_queries_bring_more_of_the_best_negatives():
    rows = [
        any_row(query, f"{name} positive", [f"{name}-n{i}" for i in range(4)], query_id=name)
        for name, query in (("easy", "go"), ("hard", "why, oh! " * 30))
    ]
    options = TrainingOptions(hardness="hans", negatives=3)
    draw = sampling.build_sampler(sampling.with_hardness(rows), options, Curriculum(), seed=1)
    counts: dict[str, list[int]] = {"easy": [], "hard": []}
    for step in range(50):
        for found in draw(np.array([0, 1]), step):
            count = len(found.negatives)
            counts[found.query_id].append(count)
            assert found.negatives == tuple(f"{found.query_id}-n{i}" for i in range(count))
    assert {*counts["easy"], *counts["hard"]} <= {1, 2, 3}
    assert np.mean(counts["hard"]) > np.mean(counts["easy"]) + 0.5
    assert draw.report() == {"negatives": (counts["easy"][-1] + counts["hard"][-1]) / 2}


def test_positives_without_a_row_have_their_turn_and_judged_ones_stay():
    known = pd.DataFrame(
        {"query_id": "q", "document_id": [f"d{n}" for n in range(20)], "text": "of the document"}
    )
    rows = [any_row("q", "a document", positive_id=f"d{n}") for n in (3, 7, 9)]
    rows += [replace(rows[0], positive_id="promoted"), replace(rows[0], judged={"elo": (0.0, ())})]
    turns = sampling.InTurn(
        lambda numbers, step: [rows[number] for number in numbers], rows, known, seed=1, steps=2
    )
    epochs = [[row.positive_id for row in turns(np.arange(5), step)] for step in range(0, 14, 2)]
    assert all(len(set(shown[:3])) == 3 and shown[3:] == ["promoted", "d3"] for shown in epochs)
    assert {name for shown in epochs for name in shown[:3]} == set(known.document_id)
    assert [row.positive_id for row in turns(np.arange(5), 1)] == epochs[0]


def test_of_many_queries_the_same_few_are_counted_whatever_the_order():
    names = [f"q{i}" for i in range(50)]
    tables = []
    for order in (names, names[::-1]):
        drawn = sampling.DrawnNegatives(order, seed=1, max_queries=5)
        drawn.add([any_row(name, "p", ["a", "b"]) for name in order])
        tables.append(drawn.table())
    pd.testing.assert_frame_equal(*tables)
    assert tables[0].query_id.nunique() == 5
    again = sampling.DrawnNegatives(names, seed=1, max_queries=5)
    again.load_state_dict(drawn.state_dict())
    again.add([any_row(name, "p", ["a", "b"]) for name in names])
    assert again.table()["count"].tolist() == [2] * 10


IDS = [f"d{i}" for i in range(12)]


def table(views=2):
    """Every document has a title and some sentences to ask with; the last is held out."""
    columns = ["query_id", "text", "document_id", "positive_text", "kind", "weight", "split"]
    rows = []
    for i, name in enumerate(IDS):
        for kind, view in [("title", 0), *(("cloze", view) for view in range(views))]:
            texts = (f"w{i} w{i + view}", name, f"w{i + 30} w{view + 8}")
            rows.append(
                (f"{kind}:{view}:{name}", *texts, kind, 1.0, "test" if i == 11 else "train")
            )
    return pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=0)


def pseudo(kinds=("title", "cloze"), related=None, **options):
    return PseudoRows(table(**options), kinds, related or RelatedDocuments.unrelated(len(IDS)), IDS)


def test_an_epoch_has_one_view_of_every_document_and_the_next_another():
    rows = pseudo(kinds=("cloze",))
    slots = np.arange(len(rows))
    first, second, third = (rows.rows(slots, epoch) for epoch in range(3))
    assert [row.positive_id for row in first] == IDS[:11]
    assert all(one.query_id != other.query_id for one, other in zip(first, second, strict=True))
    assert first == third
    assert all(row.query_id.split(":")[2] == row.positive_id for row in first)


def test_what_is_related_to_a_document_is_not_its_negative():
    pairs = [("d0", "d1", "near"), ("d2", "d3", "copy")]
    known = pd.DataFrame(pairs, columns=["document_id", "other_id", "kind"])
    related = RelatedDocuments.from_table(known, IDS)
    rows = pseudo(kinds=("title",), related=related).rows(np.arange(4), 0)
    excluded = [sorted(row.excluded_ids) for row in rows]
    assert excluded == [["d0", "d1"]] * 2 + [["d2", "d3"]] * 2


COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@given(counts=COUNTS, size=st.integers(1, 9), seed=st.integers(0, 99), epoch=st.integers(0, 5))
def test_batches_are_of_one_kind_and_an_epoch_has_every_row_once(counts, size, seed, epoch):
    ends = np.cumsum(counts)
    groups = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
    sizes = [size + place for place in range(len(groups))]
    batches, again = (OneKindBatches(groups, sizes, seed) for _ in range(2))
    batches.current_epoch = again.current_epoch = lambda: epoch
    made = list(batches)
    assert len(made) == len(batches)
    assert sorted(row for batch in made for row in batch) == list(range(ends[-1]))
    for batch in made:
        (kind,) = {int(np.searchsorted(ends, row, side="right")) for row in batch}
        assert len(batch) <= sizes[kind]
    assert made == list(again)


def test_mixed_batches_have_all_kinds_and_no_form_of_a_document_is_its_negative():
    forms = table().assign(positive_text=lambda made: made.query_id)
    rows = PseudoRows(forms, ("title", "cloze"), RelatedDocuments.unrelated(len(IDS)), IDS)
    options = TrainingOptions(pseudo_queries={"mixed": True, "batch_size": 22})
    (batch,) = list(OneKindBatches.of(0, rows, options, seed=1))
    assert sorted(batch) == list(range(22))
    mixed = rows.rows(np.array(batch), 0)
    made = assemble(mixed, "all")
    # A document has two forms, without its title and without a sentence.
    assert len(made.texts) == 22
    for row, weights in zip(mixed, made.weights, strict=True):
        assert weights.tolist() == [float(name != row.positive_id) for name in made.ids]


OPTIONS = {
    "epochs": 3,
    "batch_size": 4,
    "negatives": 2,
    "learning_rate": 0.05,
    "pseudo_queries": {"kinds": ["title", "cloze"], "batch_size": 5},
}


def test_it_learns_from_pseudo_queries_alone():
    data = {"options": TrainingOptions(**OPTIONS | {"epochs": 8}), "pseudo": pseudo()}
    rows = resuming.table()[:0]
    log = train(rows, encoder=resuming.static(), output=None, seed=1, **data).log
    assert len(log) == 8 * 6
    assert (log.pseudo_queries == 1.0).all()
    assert log.loss.tail(12).mean() < log.loss.head(12).mean()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loss": "distillation"}, "loss distillation"),
        ({"loss": "triplet"}, "loss triplet"),
        ({"curriculum": "bandit"}, "curriculum bandit"),
        ({"hardness": "hans"}, "hardness hans"),
        ({"sources": "mixed"}, "sources mixed"),
        ({"pseudo_queries": {"candidates": 8}, "loss": "triplet"}, "loss triplet"),
    ],
)
def test_what_needs_mined_negatives_does_not_go_with_pseudo_queries(changes, named):
    with pytest.raises(ValidationError, match=named):
        TrainingOptions(**OPTIONS | changes)
