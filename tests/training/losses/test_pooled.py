"""InfoNCE on one scale for all queries."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from anmi.training.losses import PooledInfoNCE, WeightedInfoNCE
from anmi.training.temperature import Temperature


def similarities(seed=0, rows=5, negatives=7):
    random = np.random.default_rng(seed)
    own, others = random.uniform(0.2, 0.9, rows), random.uniform(-0.2, 0.8, (rows, negatives))
    weights = random.uniform(0.5, 2, others.shape) * (random.random(others.shape) < 0.8)
    return own, others, weights


def apply(loss, own, others, weights):
    tensors = (
        torch.from_numpy(part) for part in (own, others, np.log(weights, where=weights > 0, out=weights - np.inf))
    )
    return loss(*tensors).detach().numpy()


def test_every_positive_is_compared_with_the_negatives_of_all_rows():
    own, others, weights = similarities()
    found = apply(PooledInfoNCE(Temperature(0.2), share=1.0), own, others, weights)
    pool = (weights * np.exp(others / 0.2)).sum()
    assert found == pytest.approx(-np.log(np.exp(own / 0.2) / (np.exp(own / 0.2) + pool)), rel=1e-6)


def test_a_share_of_nothing_is_infonce_and_others_lie_between():
    given = similarities(seed=1)
    none, half, whole = (apply(PooledInfoNCE(Temperature(0.1), share), *given) for share in (0.0, 0.5, 1.0))
    assert none == pytest.approx(apply(WeightedInfoNCE(Temperature(0.1)), *given), rel=1e-6)
    assert half == pytest.approx((none + whole) / 2, rel=1e-6)


def test_it_lowers_what_infonce_does_not_see():
    """Two queries, each in order, whose similarities lie apart: only one scale for both brings the AUC to 1."""
    shift = torch.zeros(2, 1, requires_grad=True)
    base, loss = torch.tensor([[0.9, 0.7], [0.4, 0.2]]), PooledInfoNCE(Temperature(0.05), share=1.0)
    optimizer = torch.optim.Adam([shift], lr=0.02)

    def auc():
        return roc_auc_score([1, 0, 1, 0], (base + shift).detach().flatten())

    assert auc() == 0.75
    alone = WeightedInfoNCE(Temperature(0.05))((base + shift)[:, 0], (base + shift)[:, 1:], torch.zeros(2, 1)).sum()
    assert torch.autograd.grad(alone, shift)[0].abs().max() < 1e-4
    for _ in range(40):
        moved = base + shift
        optimizer.zero_grad()
        loss(moved[:, 0], moved[:, 1:], torch.zeros(2, 1)).sum().backward()
        optimizer.step()
    assert auc() == 1.0


def test_a_share_outside_of_its_range_is_refused():
    with pytest.raises(ValueError, match="outside"):
        PooledInfoNCE(Temperature(0.1), share=1.5)
