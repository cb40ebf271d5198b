import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.training.losses import DebiasedContrastive, HardDebiasedContrastive, build_loss
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions


def slow_hard_debiased(positive, negatives, weights, t, tau, beta):
    """As in the paper's released code, with weights."""
    n = sum(weights)
    importance = [math.exp(beta * s / t) for s in negatives]
    mean = sum(w * r for w, r in zip(weights, importance, strict=True)) / n
    total = sum(w * r * math.exp(s / t) for s, w, r in zip(negatives, weights, importance, strict=True)) / mean
    negative = max((total - tau * n * math.exp(positive / t)) / (1 - tau), n * math.exp(-1 / t))
    return -math.log(math.exp(positive / t) / (math.exp(positive / t) + negative))


@settings(max_examples=100, deadline=None)
@given(
    positive=st.floats(-1, 1),
    negatives=st.lists(st.tuples(st.floats(-1, 1), st.floats(0.1, 3)), min_size=1, max_size=8),
    t=st.floats(0.1, 1),
    tau=st.floats(0, 0.5),
    beta=st.floats(0, 3),
)
def test_it_is_the_formula(positive, negatives, t, tau, beta):
    loss = HardDebiasedContrastive(Temperature(t).double(), tau, beta=beta)
    similarity, weights = ([pair[i] for pair in negatives] for i in (0, 1))
    as_row = {"dtype": torch.float64}
    got = loss(
        torch.tensor([positive], **as_row),
        torch.tensor([similarity], **as_row),
        torch.tensor([weights], **as_row).log(),
    )
    t = loss.temperature()[0].item()
    expected = slow_hard_debiased(positive, similarity, weights, t, tau, beta)
    assert got.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_without_hardness_it_is_debiased():
    generator = torch.Generator().manual_seed(1)
    positive, similarity, weights = (
        torch.rand(*shape, generator=generator, dtype=torch.float64) for shape in ((16,), (16, 9), (16, 9))
    )
    block = positive * 0.3, similarity, weights.log()
    debiased = DebiasedContrastive(Temperature(0.2).double(), 0.05)(*block)
    distances = []
    for beta in (1.0, 1e-3, 1e-6, 0.0):
        hard = HardDebiasedContrastive(Temperature(0.2).double(), 0.05, beta=beta)(*block)
        distances.append((hard - debiased).abs().median().item())
    assert distances == sorted(distances, reverse=True)
    torch.testing.assert_close(hard, debiased, rtol=1e-12, atol=1e-12)


def test_the_harder_a_negative_the_more_it_gains_by_beta():
    similarity = torch.tensor([[0.1, 0.3, 0.5]], requires_grad=True)
    shares = []
    for beta in (0.0, 1.0):
        loss = HardDebiasedContrastive(Temperature(0.5), 0.0, beta=beta)
        (gradient,) = torch.autograd.grad(loss(torch.tensor([0.4]), similarity, torch.zeros(1, 3)).sum(), similarity)
        shares.append(gradient[0] / gradient.sum())
    assert shares[1][2] > shares[0][2]
    assert shares[1][0] < shares[0][0]


def test_options_choose_the_loss():
    loss = build_loss(TrainingOptions(loss={"hard_debiased": {"tau_plus": 0.05, "beta": 0.5}}))
    assert isinstance(loss, HardDebiasedContrastive)
    assert (loss.tau_plus.initial, loss.beta) == (0.05, 0.5)
    with pytest.raises(ValueError, match="beta"):
        HardDebiasedContrastive(Temperature(), beta=-1.0)
