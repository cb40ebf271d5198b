import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anmi.training.losses import DebiasedContrastive, WeightedInfoNCE, build_loss
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions


def slow_debiased(positive, negatives, weights, t, tau, form):
    total = sum(w * math.exp(s / t) for s, w in zip(negatives, weights, strict=True))
    n = sum(weights)
    if form == "source":
        negative = max((total - tau * n * math.exp(positive / t)) / (1 - tau), n * math.exp(-1 / t))
    else:
        negative = n * max((total - tau * math.exp(positive / t)) / (n * (1 - tau)), 1e-8)
    return -math.log(math.exp(positive / t) / (math.exp(positive / t) + negative))


@example(
    positive=0.9375,
    negatives=[(0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 2.0), (0.0, 3.0), (0.84375, 0.375)],
    t=0.21875,
    tau=0.34375,
    form="paraphrase",
)
@settings(max_examples=100, deadline=None)
@given(
    positive=st.floats(-1, 1),
    negatives=st.lists(st.tuples(st.floats(-1, 1), st.floats(0.1, 3)), min_size=1, max_size=8),
    t=st.floats(0.1, 1),
    tau=st.floats(0, 0.5),
    form=st.sampled_from(["source", "paraphrase"]),
)
def test_debiased_is_the_formula(positive, negatives, t, tau, form):
    loss = DebiasedContrastive(Temperature(t).double(), tau, form)
    similarity, weights = ([pair[i] for pair in negatives] for i in (0, 1))
    as_row = {"dtype": torch.float64}
    got = loss(
        torch.tensor([positive], **as_row),
        torch.tensor([similarity], **as_row),
        torch.tensor([weights], **as_row).log(),
    )
    # The temperature is kept in single precision, and where the difference nearly cancels its last digits count.
    t = loss.temperature()[0].item()
    assert got.item() == pytest.approx(slow_debiased(positive, similarity, weights, t, tau, form), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("expected", [0.135, 1.545])
def test_the_report_s_form_at_the_values_of_its_example(expected):
    # N = 7, t = 0.07, τ⁺ = 0.1. Solved by hand for the gap g at which seven equal negatives cost what the example does:
    # (7 exp(-g/t) - τ⁺) / (1 - τ⁺) = exp(loss) - 1. Without the outer N the same rows would cost 0.020 and 0.423.
    gap = -0.07 * math.log((0.1 + 0.9 * math.expm1(expected)) / 7)
    loss = DebiasedContrastive(Temperature(0.07).double(), 0.1, "paraphrase")
    positive, weights = torch.tensor([0.8], dtype=torch.float64), torch.zeros(1, 7, dtype=torch.float64)
    assert loss(positive, (positive - gap).expand(1, 7), weights).item() == pytest.approx(expected, abs=1e-6)


def test_the_report_s_floor_counts_once_for_every_negative():
    # Far behind, Σ - τ⁺p is negative, and 1e-8 stands for the mean of N = 7.
    loss = DebiasedContrastive(Temperature(0.1).double(), 0.1, "paraphrase")
    positive, negatives = (
        torch.full(shape, value, dtype=torch.float64) for shape, value in (((1,), 0.5), ((1, 7), -0.9))
    )
    found = loss(positive, negatives, torch.zeros(1, 7, dtype=torch.float64))
    assert found.item() == pytest.approx(7e-8 / math.exp(0.5 / 0.1), rel=1e-4)


def test_without_false_negatives_it_is_infonce():
    generator = torch.Generator().manual_seed(1)
    positive = torch.rand(16, generator=generator, dtype=torch.float64) * 2 - 1
    similarity = torch.rand(16, 9, generator=generator, dtype=torch.float64) * 2 - 1
    log_weights = torch.rand(16, 9, generator=generator, dtype=torch.float64).log()
    infonce = WeightedInfoNCE(Temperature(0.07).double())(positive, similarity, log_weights)
    distances = []
    for tau in (1e-3, 1e-6, 1e-12, 0.0):
        debiased = DebiasedContrastive(Temperature(0.07).double(), tau)(positive, similarity, log_weights)
        distances.append((debiased - infonce).abs().median().item())
    assert distances == sorted(distances, reverse=True)
    torch.testing.assert_close(debiased, infonce, rtol=1e-9, atol=1e-9)


def test_the_floor_stops_the_gradient_of_negatives_already_beaten():
    similarity = torch.tensor([[0.1, 0.0]], requires_grad=True)
    loss = DebiasedContrastive(Temperature(0.07), tau_plus=0.1)(torch.tensor([0.9]), similarity, torch.zeros(1, 2))
    loss.sum().backward()
    assert torch.equal(similarity.grad, torch.zeros(1, 2))


def test_options_choose_the_loss():
    loss = build_loss(
        TrainingOptions(
            loss={"debiased": {"tau_plus": 0.05, "form": "paraphrase"}}, temperature={"fixed": {"value": 0.2}}
        )
    )
    assert isinstance(loss, DebiasedContrastive)
    assert (loss.tau_plus.initial, loss.form) == (0.05, "paraphrase")
    assert loss.temperature()[0].item() == pytest.approx(0.2)
    assert isinstance(build_loss(TrainingOptions()), WeightedInfoNCE)


@pytest.mark.parametrize("tau", [-0.1, 1.0])
def test_impossible_share_is_refused(tau):
    with pytest.raises(ValueError, match="tau_plus"):
        DebiasedContrastive(Temperature(), tau)
