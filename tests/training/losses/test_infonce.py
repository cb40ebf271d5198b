import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from anmi.training.losses import DebiasedContrastive, WeightedInfoNCE
from anmi.training.temperature import Temperature

LOSSES = {
    "infonce": WeightedInfoNCE,
    "debiased": lambda t: DebiasedContrastive(t, tau_plus=0.1),
    "debiased_paraphrase": lambda t: DebiasedContrastive(t, tau_plus=0.1, form="paraphrase"),
}


def block(seed: int = 0, rows: int = 5, negatives: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    # Negatives mostly above the positive, so that the floor of the debiased losses is not what is tested.
    return uniform(rows) * 0.2, 0.3 + uniform(rows, negatives) * 0.5, (0.2 + uniform(rows, negatives)).log()


@pytest.fixture(params=LOSSES)
def make(request):
    return LOSSES[request.param]


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
    positive, similarity, _ = block()
    logits = torch.cat([positive[:, None], similarity], dim=1) / 0.07
    expected = functional.cross_entropy(logits, torch.zeros(len(positive), dtype=torch.long), reduction="none")
    got = WeightedInfoNCE(Temperature(0.07).double())(positive, similarity, torch.zeros_like(similarity))
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-9)


def test_gradients_are_those_of_finite_differences(make):
    loss = make(Temperature(0.3, learnable=True).double())
    positive, similarity, log_weights = (x.requires_grad_() for x in block())
    assert torch.autograd.gradcheck(loss, (positive, similarity, log_weights))

    def of_temperature(log_t: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(
            loss, {"temperature.log_t": log_t}, (positive.detach(), similarity.detach(), log_weights.detach())
        )

    assert torch.autograd.gradcheck(of_temperature, (torch.tensor(-1.2, dtype=torch.float64, requires_grad=True),))


def losses_and_gradients(loss, positive, similarity, log_weights):
    positive, similarity = positive.clone().requires_grad_(), similarity.clone().requires_grad_()
    values = loss(positive, similarity, log_weights)
    values.sum().backward()
    return values.detach(), positive.grad, similarity.grad, loss.temperature.log_t.grad.clone()


def test_a_negative_of_weight_zero_is_not_there(make):
    positive, similarity, log_weights = block()
    log_weights[:, 2] = -torch.inf
    # What stands in a removed slot must not matter at all, not even if it is not a number.
    similarity[:, 2] = torch.nan
    kept = [0, 1, 3, 4, 5]
    with_zero = losses_and_gradients(make(Temperature(0.2, learnable=True).double()), positive, similarity, log_weights)
    without = losses_and_gradients(
        make(Temperature(0.2, learnable=True).double()), positive, similarity[:, kept], log_weights[:, kept]
    )
    assert torch.equal(with_zero[2][:, 2], torch.zeros(5, dtype=torch.float64))
    for got, expected in zip((with_zero[0], with_zero[1], with_zero[2][:, kept], with_zero[3]), without, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), padding=st.integers(0, 5), name=st.sampled_from(sorted(LOSSES)))
def test_padding_and_order_of_negatives_do_not_matter(seed, padding, name):
    positive, similarity, log_weights = block(seed)
    loss = LOSSES[name](Temperature(0.1).double())
    expected = loss(positive, similarity, log_weights)
    order = torch.randperm(similarity.shape[1] + padding, generator=torch.Generator().manual_seed(seed))
    padded = functional.pad(similarity, (0, padding))[:, order]
    weights = functional.pad(log_weights, (0, padding), value=-torch.inf)[:, order]
    torch.testing.assert_close(loss(positive, padded, weights), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("columns", [0, 3])
def test_a_row_without_negatives_has_no_loss_and_no_gradient(make, columns):
    loss = make(Temperature(0.07, learnable=True).double())
    positive, similarity = torch.tensor([0.3, 0.4], dtype=torch.float64), torch.full((2, columns), 0.9).double()
    values, *gradients = losses_and_gradients(loss, positive, similarity, torch.full_like(similarity, -torch.inf))
    for tensor in (values, *gradients):
        assert tensor is None or torch.equal(tensor, torch.zeros_like(tensor))


@pytest.mark.parametrize("t", [0.01, 1.0])
def test_extreme_similarities_stay_finite_in_float32(make, t):
    values = torch.tensor([-1.0, 0.0, 1.0])
    positive = values.repeat_interleave(27)
    similarity = torch.cartesian_prod(values, values, values).repeat(3, 1)
    loss = make(Temperature(t, learnable=True))
    result, *gradients = losses_and_gradients(loss, positive, similarity, torch.zeros_like(similarity))
    for tensor in (result, *gradients):
        assert torch.isfinite(tensor).all()
    assert (result >= 0).all()
