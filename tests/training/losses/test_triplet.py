import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.training.losses import Triplet, build_loss
from anmi.training.options import TrainingOptions


@settings(max_examples=60, deadline=None)
@given(
    positive=st.floats(-1, 1),
    negatives=st.lists(st.tuples(st.floats(-1, 1), st.floats(0.1, 3)), min_size=1, max_size=8),
    margin=st.floats(0.01, 1),
)
def test_it_is_the_formula(positive, negatives, margin):
    loss = Triplet(margin)
    as_row = {"dtype": torch.float64}
    got = loss(
        torch.tensor([positive], **as_row),
        torch.tensor([[s for s, _ in negatives]], **as_row),
        torch.tensor([[w for _, w in negatives]], **as_row).log(),
    )
    # By distances, as triplets are usually told.
    short = [(1 - positive) + margin - (1 - s) for s, _ in negatives]
    total = sum(w * max(0.0, x) for x, (_, w) in zip(short, negatives, strict=True))
    assert got.item() == pytest.approx(total / sum(w for _, w in negatives), rel=1e-9, abs=1e-12)
    share = sum(x > 0 for x in short) / len(short)
    assert loss.report()["margin_violation_rate"] == pytest.approx(share, abs=1.01 / len(short) if 0 in short else 1e-6)


def test_violations_are_counted_among_negatives_only():
    loss = Triplet(0.2)
    log_weights = torch.tensor([[0.0, 0.0, -torch.inf], [-torch.inf] * 3])
    loss(torch.tensor([0.5, 0.5]), torch.tensor([[0.9, 0.1, 0.9], [0.9, 0.9, 0.9]]), log_weights)
    assert loss.report() == {"margin_violation_rate": 0.5}


def test_options_choose_it():
    assert build_loss(TrainingOptions(loss={"triplet": {"margin": 0.4}})).margin == 0.4
    with pytest.raises(ValueError, match="margin"):
        Triplet(0.0)
