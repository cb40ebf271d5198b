import math

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.pipelines.training.params import estimate_tau_plus
from anmi.training.losses import DebiasedContrastive, HardDebiasedContrastive, TauPlus, build_loss
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions

START = 0.05
T = 0.5
NEGATIVES = 8


def learned(prior_strength, kind=DebiasedContrastive, steps=100):
    """Learn τ⁺ alone, the encoder frozen: the positives lead a little."""
    generator = torch.Generator().manual_seed(0)
    positive = torch.full((6,), 0.5)
    similarity = (0.46 + 0.02 * torch.rand(6, NEGATIVES, generator=generator)).requires_grad_()
    loss = kind(Temperature(T), TauPlus(START, learnable=True, prior_strength=prior_strength))
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        similarity.grad = None
        values = loss(positive, similarity, torch.zeros_like(similarity))
        values.mean().backward()
        optimizer.step()
    return loss.report()["tau_plus"], values.detach(), similarity.grad


@pytest.mark.parametrize("kind", [DebiasedContrastive, HardDebiasedContrastive])
def test_without_a_prior_it_runs_away_and_the_loss_lies_at_its_clamp(kind):
    tau_plus, values, gradient = learned(0.0, kind)
    clamp = math.log1p(NEGATIVES * math.exp(-1 / T) / math.exp(0.5 / T))
    assert tau_plus > 0.9
    torch.testing.assert_close(values, torch.full_like(values, clamp))
    # Nothing is left for the encoder to learn from.
    assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("kind", [DebiasedContrastive, HardDebiasedContrastive])
@pytest.mark.parametrize("strength", [2.0, 20.0])
def test_with_a_prior_it_stays_below_the_bound(kind, strength):
    tau_plus, _, gradient = learned(strength, kind)
    assert START < tau_plus <= START * strength / (strength - 1) * 1.001
    assert (gradient > 0).all()


@settings(max_examples=100, deadline=None)
@given(start=st.floats(1e-4, 0.9), now=st.floats(1e-4, 0.9), strength=st.floats(0.1, 10), count=st.floats(0.1, 500))
def test_the_prior_is_the_log_density_of_a_beta_distribution(start, now, strength, count):
    share = TauPlus(start, learnable=True, prior_strength=strength).double()
    with torch.no_grad():
        share.logit.fill_(math.log(now / (1 - now)))

    def log_density(tau):
        # Over the logit: the density over tau times tau (1 - tau), which takes the -1 out of both exponents.
        return strength * count * (start * math.log(tau) + (1 - start) * math.log1p(-tau))

    got = share.penalty(torch.tensor([count], dtype=torch.float64)).item()
    assert got == pytest.approx(log_density(start) - log_density(now), rel=1e-4, abs=1e-4 * strength * count)
    assert got >= 0


def test_the_prior_is_zero_at_its_start_and_pulls_back_from_both_sides():
    share = TauPlus(0.001, learnable=True, prior_strength=2.0)
    count = torch.tensor([1000.0])
    assert share.penalty(count).item() == 0.0
    for distance in (-1.0, 1.0):
        with torch.no_grad():
            share.logit.fill_(math.log(0.001 / 0.999) + distance)
        share.zero_grad()
        share.penalty(count).sum().backward()
        assert share.logit.grad * distance > 0


def test_it_starts_as_the_fixed_one():
    block = torch.tensor([0.4, 0.1]), torch.tensor([[0.5, 0.3], [0.2, 0.6]]), torch.zeros(2, 2)
    fixed = DebiasedContrastive(Temperature(T), 0.1)
    learning = DebiasedContrastive(Temperature(T), TauPlus(0.1, learnable=True, prior_strength=3.0))
    torch.testing.assert_close(learning(*block), fixed(*block))
    assert fixed.report() == {}
    assert learning.report() == pytest.approx({"tau_plus": 0.1})


def test_options_choose_it():
    loss = build_loss(TrainingOptions(loss={"debiased": {"tau_plus": 0.2, "learned": True, "prior_strength": 7.0}}))
    assert (loss.tau_plus.learnable, loss.tau_plus.prior_strength) == (True, 7.0)
    with pytest.raises(AnmiError, match="starts at 0"):
        build_loss(TrainingOptions(loss={"debiased": {"tau_plus": 0.0, "learned": True}}))
    with pytest.raises(ValueError, match="outside"):
        TrainingOptions(loss={"debiased": {"tau_plus": 1.5}})
    with pytest.raises(ValueError, match="above 0"):
        TauPlus(0.0, learnable=True)


def test_estimates_are_shares_or_refused():
    rows = pd.DataFrame(
        {
            "query_id": ["a", "a", "b"],
            "positive_ids": [["1", "2"], ["1", "2"], ["3"]],
            "negative_p_relevant": [[0.9, 0.2], [math.nan], [0.4, 0.6]],
        }
    )
    assert estimate_tau_plus("labelled", rows, 100) == pytest.approx(0.015)
    assert estimate_tau_plus("judged", rows, 100) == pytest.approx(0.5)
    assert estimate_tau_plus("labelled", rows.iloc[:0], 100) == 0.0
    with pytest.raises(AnmiError, match="must be below 1"):
        estimate_tau_plus("labelled", rows, 1)
    with pytest.raises(AnmiError, match="nobody judged"):
        estimate_tau_plus("judged", rows.drop(columns="negative_p_relevant"), 100)
