import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from anmi.training.losses import WeightedInfoNCE
from anmi.training.losses.temperature import Temperature


def slow_infonce(positive: float, negatives: list[float], weights: list[float], t: float) -> float:
    denominator = math.exp(positive / t) + sum(w * math.exp(s / t) for s, w in zip(negatives, weights, strict=True))
    return -math.log(math.exp(positive / t) / denominator)


@settings(max_examples=50, deadline=None)
@given(
    positive=st.floats(-1, 1),
    negatives=st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 3)), max_size=8),
    t=st.floats(0.05, 1),
)
def test_infonce_is_the_formula(positive, negatives, t):
    similarity = torch.tensor([[s for s, _ in negatives]], dtype=torch.float64)
    log_weights = torch.tensor([[w for _, w in negatives]], dtype=torch.float64).log()
    got = WeightedInfoNCE(Temperature(t).double())(
        torch.tensor([positive], dtype=torch.float64), similarity, log_weights
    )
    expected = slow_infonce(positive, [s for s, _ in negatives], [w for _, w in negatives], t)
    assert got.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_infonce_of_weight_one_is_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    positive, similarity = (torch.rand(*shape, generator=generator, dtype=torch.float64) for shape in ((5,), (5, 6)))
    logits = torch.cat([positive[:, None], similarity], dim=1) / 0.07
    expected = functional.cross_entropy(logits, torch.zeros(len(positive), dtype=torch.long), reduction="none")
    got = WeightedInfoNCE(Temperature(0.07).double())(positive, similarity, torch.zeros_like(similarity))
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-9)
