"""What a training drew."""

import pandas as pd
import pytest
from tests.mined import row
from tests.training import resuming

from anmi.training.sampling import DrawnNegatives

# Every row in every step.
WHOLE = {**resuming.STATIC, "batch_size": resuming.ROWS, "epochs": 12}


@pytest.mark.parametrize(
    "changes", [{}, {"curriculum": {"tiers": {"window": "rank"}}}], ids=["learning_progress", "tiers"]
)
def test_all_that_training_drew_is_counted(changes):
    result = resuming.fit(resuming.static(), None, **WHOLE | changes)
    assert result.drawn.groupby("query_id")["count"].sum().eq(result.log.negatives.sum()).all()
    mined = {(row.query_id, name) for row in resuming.table().itertuples() for name in row.negative_ids}
    assert set(zip(result.drawn.query_id, result.drawn.document_id, strict=True)) <= mined


def test_of_many_queries_the_same_few_are_counted_whatever_the_order():
    names = [f"q{i}" for i in range(50)]
    tables = []
    for order in (names, names[::-1]):
        drawn = DrawnNegatives(order, seed=1, most=5)
        drawn.add([row(name, "p", ["a", "b"]) for name in order])
        tables.append(drawn.table())
    pd.testing.assert_frame_equal(*tables)
    assert tables[0].query_id.nunique() == 5
    again = DrawnNegatives(names, seed=1, most=5)
    again.load_state_dict(drawn.state_dict())
    again.add([row(name, "p", ["a", "b"]) for name in names])
    assert (again.table()["count"] == 2).all()
    assert len(again.table()) == 10
