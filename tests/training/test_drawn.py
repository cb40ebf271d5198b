"""What a training drew, and what it would have drawn for rows that it did not see."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from anmi.training.batch import Row, read_rows
from anmi.training.drawn import DrawnNegatives
from anmi.training.options import TrainingOptions
from anmi.training.replay import drawn_again

spec = importlib.util.spec_from_file_location("resuming", Path(__file__).with_name("resuming.py"))
resuming = importlib.util.module_from_spec(spec)
spec.loader.exec_module(resuming)
# Every row in every step, so that all that was drawn can be drawn again.
WHOLE = {**resuming.STATIC, "batch_size": resuming.ROWS, "epochs": 12}


@pytest.mark.parametrize(
    "changes",
    [{}, {"curriculum": "none", "draw": "random"}, {"curriculum": {"tiers": {"window": "rank"}}}],
    ids=["bandit", "random", "tiers"],
)
def test_what_is_drawn_again_is_what_training_drew(changes):
    asked = WHOLE | changes
    result = resuming.fit(resuming.static(), None, **asked)
    drawn = result.drawn
    assert len(result.log) == 12
    # A bandit asks for more than two where it is hard.
    wanted = result.log.negatives.sum() if "negatives" in result.log else 12 * 2
    assert drawn.groupby("query_id")["count"].sum().eq(wanted).all()
    mined = {(row.query_id, name) for row in resuming.table().itertuples() for name in row.negative_ids}
    assert set(zip(drawn.query_id, drawn.document_id, strict=True)) <= mined
    rows, options = read_rows(resuming.table(), ()), TrainingOptions(**{"negatives": 2, **asked})
    pd.testing.assert_frame_equal(drawn_again(rows, options, result.log, seed=1), drawn)


def test_where_nothing_is_drawn_nothing_is_counted():
    result = resuming.fit(resuming.static(), None, **{**resuming.STATIC, "curriculum": "none", "epochs": 1})
    assert result.drawn.empty
    assert list(result.drawn) == ["query_id", "document_id", "count"]


def test_of_many_queries_the_same_few_are_counted_whatever_the_order():
    def row(query):
        return Row(query, "?", "p", "yes", ("a", "b"), ("no", "not"), (1.0, 1.0), 1.0, frozenset("p"))

    names = [f"q{i}" for i in range(50)]
    tables = []
    for order in (names, names[::-1]):
        drawn = DrawnNegatives(order, seed=1, most=5)
        drawn.add([row(name) for name in order])
        tables.append(drawn.table())
    pd.testing.assert_frame_equal(*tables)
    assert tables[0].query_id.nunique() == 5
    again = DrawnNegatives(names, seed=1, most=5)
    again.load_state_dict(drawn.state_dict())
    again.add([row(name) for name in names])
    assert (again.table()["count"] == 2).all()
    assert len(again.table()) == 10


def test_what_draws_is_known_from_the_options():
    def draws(**options):
        return TrainingOptions(**{"negatives": 2, **options}).draws

    assert not draws()
    assert draws(draw="random")
    assert draws(sources="mixed")
    assert draws(hardness="hans", temperature="fixed")
    assert np.all([draws(curriculum=kind) for kind in ("tiers", "bandit", "learning_progress")])
