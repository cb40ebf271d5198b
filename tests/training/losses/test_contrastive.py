"""InfoNCE, triplet and debiased losses, and the share of positives that these assume."""

import math

import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.pipelines.training.params import estimate_tau_plus
from anmi.training.losses import build_loss, contrastive
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions
from anmi.training.parts import DebiasedOptions, TripletOptions

NEAR = st.floats(-1, 1)
WEIGHTED = st.lists(st.tuples(NEAR, st.floats(0.1, 3)), min_size=1, max_size=8)


def of_row(loss, positive, negatives):
    """The loss of a row in double precision; negatives are similarities with their weights."""
    near, weights = (exact([[pair[i] for pair in negatives]]) for i in (0, 1))
    return loss(exact([positive]), near, weights.log()).item()


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


PAIRS = st.lists(st.tuples(NEAR, st.floats(0, 3)), max_size=8)


@given(positive=NEAR, negatives=PAIRS, t=st.floats(0.05, 1))
def test_infonce_is_the_formula(positive, negatives, t):
    mine = math.exp(positive / t)
    expected = -math.log(mine / (mine + sum(w * math.exp(s / t) for s, w in negatives)))
    got = of_row(contrastive.WeightedInfoNCE(Temperature(t).double()), positive, negatives)
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(positive=NEAR, negatives=WEIGHTED, margin=st.floats(0.01, 1))
def test_triplet_is_the_formula(positive, negatives, margin):
    loss = contrastive.Triplet(None, TripletOptions(margin=margin))
    got = of_row(loss, positive, negatives)
    # By distances, as triplets are usually told.
    short = [(1 - positive) + margin - (1 - s) for s, _ in negatives]
    total = sum(w * max(0.0, x) for x, (_, w) in zip(short, negatives, strict=True))
    assert got == pytest.approx(total / sum(w for _, w in negatives), rel=1e-9, abs=1e-12)
    share = sum(x > 0 for x in short) / len(short)
    tolerance = 1.01 / len(short) if 0 in short else 1e-6
    assert loss.report()["margin_violation_rate"] == pytest.approx(share, abs=tolerance)


def slow_debiased(positive, negatives, t, tau, form):
    """As in the released code, with weights."""
    n = sum(w for _, w in negatives)
    total = sum(w * math.exp(s / t) for s, w in negatives)
    mine = math.exp(positive / t)
    if form == "source":
        negative = max((total - tau * n * mine) / (1 - tau), n * math.exp(-1 / t))
    else:
        negative = n * max((total - tau * mine) / (n * (1 - tau)), 1e-8)
    return -math.log(mine / (mine + negative))


FORM = st.sampled_from(["source", "paraphrase"])
# The difference nearly cancels.
HARD = [(0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 2.0), (0.0, 3.0), (0.84375, 0.375)]


@example(positive=0.9375, negatives=HARD, t=0.21875, tau=0.34375, form="paraphrase")
@given(positive=NEAR, negatives=WEIGHTED, t=st.floats(0.1, 1), tau=st.floats(0, 0.5), form=FORM)
def test_debiased_is_the_formula(positive, negatives, t, tau, form):
    temperature = Temperature(t).double()
    loss = contrastive.DebiasedContrastive(temperature, DebiasedOptions(tau_plus=tau, form=form))
    # The temperature is kept in single precision, and where the difference nearly cancels its last
    # digits count.
    t = temperature()[0].item()
    expected = slow_debiased(positive, negatives, t, tau, form)
    assert of_row(loss, positive, negatives) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("expected", [0.135, 1.545])
def test_the_report_s_form_at_the_values_of_its_example(expected):
    # N = 7, t = 0.07, τ⁺ = 0.1. Solved by hand for the gap g at which seven equal negatives cost
    # what the example does: (7 exp(-g/t) - τ⁺) / (1 - τ⁺) = exp(loss) - 1. Without the outer N the
    # same rows would cost 0.020 and 0.423.
    gap = -0.07 * math.log((0.1 + 0.9 * math.expm1(expected)) / 7)
    options = DebiasedOptions(tau_plus=0.1, form="paraphrase")
    loss = contrastive.DebiasedContrastive(Temperature(0.07).double(), options)
    assert of_row(loss, 0.8, [(0.8 - gap, 1.0)] * 7) == pytest.approx(expected, abs=1e-6)


START = 0.05
T = 0.5
NEGATIVES = 8


def learned(prior_strength, steps=100):
    """Learn τ⁺ alone, the encoder frozen: the positives lead a little."""
    generator = torch.Generator().manual_seed(0)
    positive = torch.full((6,), 0.5)
    similarity = (0.46 + 0.02 * torch.rand(6, NEGATIVES, generator=generator)).requires_grad_()
    options = DebiasedOptions(tau_plus=START, learned=True, prior_strength=prior_strength)
    loss = contrastive.DebiasedContrastive(Temperature(T), options)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        similarity.grad = None
        values = loss(positive, similarity, torch.zeros_like(similarity))
        values.mean().backward()
        optimizer.step()
    return loss.report()["tau_plus"], values.detach(), similarity.grad


def test_without_a_prior_it_runs_away_and_the_loss_lies_at_its_clamp():
    tau_plus, values, gradient = learned(0.0)
    clamp = math.log1p(NEGATIVES * math.exp(-1 / T) / math.exp(0.5 / T))
    assert tau_plus > 0.9
    torch.testing.assert_close(values, torch.full_like(values, clamp))
    # Nothing is left for the encoder to learn from.
    assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("strength", [2.0, 20.0])
def test_with_a_prior_it_stays_below_the_bound(strength):
    tau_plus, _, gradient = learned(strength)
    assert START < tau_plus <= START * strength / (strength - 1) * 1.001
    assert (gradient > 0).all()


SHARE = st.floats(1e-4, 0.9)


@given(start=SHARE, now=SHARE, strength=st.floats(0.1, 10), count=st.floats(0.1, 500))
def test_the_prior_is_the_log_density_of_a_beta_distribution(start, now, strength, count):
    options = DebiasedOptions(tau_plus=start, learned=True, prior_strength=strength)
    share = contrastive.TauPlus(options).double()
    with torch.no_grad():
        share.logit.fill_(math.log(now / (1 - now)))

    def log_density(tau):
        # Over the logit: the density over tau times tau (1 - tau), which takes the -1 out of both
        # exponents.
        return strength * count * (start * math.log(tau) + (1 - start) * math.log1p(-tau))

    got = share.penalty(exact([count])).item()
    expected = log_density(start) - log_density(now)
    assert got == pytest.approx(expected, rel=1e-4, abs=1e-4 * strength * count)
    assert got >= 0


def test_options_choose_it_of_tau_plus():
    settings = {"tau_plus": 0.2, "learned": True, "prior_strength": 7.0}
    loss = build_loss(TrainingOptions(loss={"debiased": settings}))
    assert (loss.tau_plus.learnable, loss.tau_plus.prior_strength) == (True, 7.0)
    with pytest.raises(AnmiError, match="starts at 0"):
        build_loss(TrainingOptions(loss={"debiased": settings | {"tau_plus": 0.0}}))
    with pytest.raises(ValueError, match="outside"):
        TrainingOptions(loss={"debiased": {"tau_plus": 1.5}})


def test_estimates_are_shares_or_refused():
    values = [
        ("a", ["1", "2"], [0.9, 0.2]),
        ("a", ["1", "2"], [math.nan]),
        ("b", ["3"], [0.4, 0.6]),
    ]
    rows = pd.DataFrame(values, columns=["query_id", "positive_ids", "negative_p_relevant"])
    assert estimate_tau_plus("labelled", rows, 100) == pytest.approx(0.015)
    assert estimate_tau_plus("judged", rows, 100) == pytest.approx(0.5)
    assert estimate_tau_plus("labelled", rows.iloc[:0], 100) == 0.0
    with pytest.raises(AnmiError, match="must be below 1"):
        estimate_tau_plus("labelled", rows, 1)
    with pytest.raises(AnmiError, match="nobody judged"):
        estimate_tau_plus("judged", rows.drop(columns="negative_p_relevant"), 100)
