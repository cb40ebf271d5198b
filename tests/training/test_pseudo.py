"""Pseudo-queries in training: views by epoch, batches of one kind, and what is nobody's negative."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.training import resuming

from anmi.retrieval.pool import RelatedDocuments
from anmi.training.options import TrainingOptions
from anmi.training.sampling import OneKindBatches, PseudoRows
from anmi.training.trainer import train

IDS = [f"d{i}" for i in range(12)]


def table(views=2):
    """Every document has a title and some sentences to ask with; the last is held out."""
    rows = [
        (f"{kind}:{view}:{name}", f"w{i} w{i + view}", name, f"w{i + 30} w{view + 8}", kind, 1.0, split)
        for i, name in enumerate(IDS)
        for split in ["test" if i == 11 else "train"]
        for kind, count in (("title", 1), ("cloze", views))
        for view in range(count)
    ]
    columns = ["query_id", "text", "document_id", "positive_text", "kind", "weight", "split"]
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
    known = pd.DataFrame({"document_id": ["d0", "d2"], "other_id": ["d1", "d3"], "kind": ["near", "copy"]})
    rows = pseudo(kinds=("title",), related=RelatedDocuments.from_table(known, IDS)).rows(np.arange(4), 0)
    assert [sorted(row.excluded_ids) for row in rows] == [["d0", "d1"], ["d0", "d1"], ["d2", "d3"], ["d2", "d3"]]


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=4), size=st.integers(1, 9), seed=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 5),
)  # fmt: skip
def test_batches_are_of_one_kind_and_an_epoch_has_every_row_once(counts, size, seed, epoch):
    ends = np.cumsum(counts)
    groups = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
    sizes = [size + place for place in range(len(groups))]
    batches, again = (OneKindBatches(groups, sizes, seed) for _ in range(2))
    batches.epoch = again.epoch = lambda: epoch
    made = list(batches)
    assert len(made) == len(batches)
    assert sorted(row for batch in made for row in batch) == list(range(ends[-1]))
    for batch in made:
        (kind,) = {int(np.searchsorted(ends, row, side="right")) for row in batch}
        assert len(batch) <= sizes[kind]
    assert made == list(again)


OPTIONS = {
    "epochs": 3, "batch_size": 4, "negatives": 2, "learning_rate": 0.05,
    "pseudo_queries": {"kinds": ["title", "cloze"], "batch_size": 5},
}  # fmt: skip


def fit(rows, evaluate_dev=None, plan=None, **changes):
    return train(
        rows, encoder=resuming.static(), options=TrainingOptions(**OPTIONS | changes), output=None, seed=1,
        evaluate_dev=evaluate_dev, checkpoints=plan, pseudo=pseudo(),
    )  # fmt: skip


def test_it_learns_from_pseudo_queries_alone():
    log = fit(resuming.table()[:0]).log
    assert len(log) == 3 * 6
    assert (log.pseudo_queries == 1.0).all()
    assert log.loss.tail(6).mean() < log.loss.head(6).mean()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loss": "distillation"}, "loss distillation"), ({"loss": "triplet"}, "loss triplet"),
        ({"curriculum": "bandit"}, "curriculum bandit"), ({"hardness": "hans"}, "hardness hans"),
        ({"sources": "mixed"}, "sources mixed"),
    ],
)  # fmt: skip
def test_what_needs_mined_negatives_does_not_go_with_pseudo_queries(changes, named):
    with pytest.raises(ValidationError, match=named):
        TrainingOptions(**OPTIONS | changes)
