"""Pseudo-queries in training: views by epoch, batches of one kind, and what is nobody's negative."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from anmi.retrieval.related import RelatedDocuments
from anmi.training.loop import CheckpointPlan
from anmi.training.options import TrainingOptions
from anmi.training.pseudo import OneKindBatches, PseudoRows, WithPseudoQueries
from anmi.training.trainer import train

spec = importlib.util.spec_from_file_location("resuming", Path(__file__).with_name("resuming.py"))
resuming = importlib.util.module_from_spec(spec)
spec.loader.exec_module(resuming)

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
    return PseudoRows(table(**options), kinds, related or RelatedDocuments.of_none(len(IDS)), IDS)


def test_an_epoch_has_one_view_of_every_document_and_the_next_another():
    rows = pseudo(kinds=("cloze",))
    slots = np.arange(len(rows))
    first, second, third = (rows.rows(slots, epoch) for epoch in range(3))
    assert [row.positive_id for row in first] == IDS[:11]
    assert all(one.query_id != other.query_id for one, other in zip(first, second, strict=True))
    assert first == third
    assert all(row.query_id.split(":")[2] == row.positive_id for row in first)


def test_held_out_documents_are_not_trained_on():
    rows = pseudo()
    trained = {row.positive_id for epoch in range(3) for row in rows.rows(np.arange(len(rows)), epoch)}
    assert trained == set(IDS[:11])


def test_what_is_related_to_a_document_is_not_its_negative():
    known = pd.DataFrame({"document_id": ["d0", "d2"], "other_id": ["d1", "d3"], "kind": ["near", "copy"]})
    rows = pseudo(kinds=("title",), related=RelatedDocuments.from_table(known, IDS)).rows(np.arange(4), 0)
    assert [sorted(row.excluded_ids) for row in rows] == [["d0", "d1"], ["d0", "d1"], ["d2", "d3"], ["d2", "d3"]]


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    size=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 5),
)
def test_batches_are_of_one_kind_and_an_epoch_has_every_row_once(counts, size, seed, epoch):
    ends = np.cumsum(counts)
    groups = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
    sizes = [size + place for place in range(len(groups))]
    batches = OneKindBatches(groups, sizes, seed, lambda: epoch)
    made = list(batches)
    assert len(made) == len(batches)
    assert sorted(row for batch in made for row in batch) == list(range(ends[-1]))
    for batch in made:
        (kind,) = {int(np.searchsorted(ends, row, side="right")) for row in batch}
        assert len(batch) <= sizes[kind]
    assert made == list(OneKindBatches(groups, sizes, seed, lambda: epoch))


def test_labelled_rows_are_drawn_as_they_were():
    rows = WithPseudoQueries(lambda numbers, step: [f"row {n} of step {step}" for n in numbers], 5, pseudo(), 3)
    assert rows(np.array([4, 1]), 7) == ["row 4 of step 7", "row 1 of step 7"]
    assert rows.report() == {"pseudo_queries": 0.0}
    assert [row.query_id for row in rows(np.array([5, 6]), 0)] == ["title:0:d0", "title:0:d1"]
    assert rows.report() == {"pseudo_queries": 1.0}


OPTIONS = {
    "epochs": 3, "batch_size": 4, "negatives": 2, "learning_rate": 0.05,
    "pseudo_queries": {"kinds": ["title", "cloze"], "batch_size": 5},
}  # fmt: skip


def fit(rows, evaluate_dev=None, plan=None, **changes):
    return train(
        rows, encoder=resuming.static(), options=TrainingOptions(**OPTIONS | changes), output=None, seed=1,
        evaluate_dev=evaluate_dev, checkpoints=plan, pseudo=pseudo(),
    )  # fmt: skip


@pytest.fixture
def one_thread():
    """Threads may change the last bits of a sum."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_it_learns_from_pseudo_queries_alone():
    log = fit(resuming.table()[:0]).log
    assert len(log) == 3 * 6
    assert (log.pseudo_queries == 1.0).all()
    assert log.loss.tail(6).mean() < log.loss.head(6).mean()


def test_a_training_that_was_stopped_goes_on_with_the_same_batches(tmp_path, one_thread):
    calls = []

    def fails_in_the_second_epoch(_):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return 0.0

    plan = CheckpointPlan(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(resuming.table(), fails_in_the_second_epoch, plan, checkpoint_minutes=1e-9, keep_best=False)
    done = fit(resuming.table(), lambda _: 0.0, plan, checkpoint_minutes=1e-9, keep_best=False)
    whole = fit(resuming.table(), lambda _: 0.0, keep_best=False)
    assert done.summary["resumed_from_step"] == 23
    pd.testing.assert_frame_equal(done.log, whole.log, check_exact=True)
    wanted = whole.model.state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in done.model.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loss": "distillation"}, "loss distillation"),
        ({"loss": "triplet"}, "loss triplet"),
        ({"curriculum": "bandit"}, "curriculum bandit"),
        ({"hardness": "hans"}, "hardness hans"),
        ({"sources": "mixed"}, "sources mixed"),
    ],
)
def test_what_needs_mined_negatives_does_not_go_with_pseudo_queries(changes, named):
    with pytest.raises(ValidationError, match=named):
        TrainingOptions(**OPTIONS | changes)
