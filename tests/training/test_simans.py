"""Learned SimANS: gradients, constraints, and the exact draw as its limit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anmi import seeds
from anmi.candidates import PADDING, Candidates
from anmi.selection.recipe import Step
from anmi.selection.steps import Context
from anmi.selection.steps.samplers import row_keys
from anmi.selection.steps.simans import SimAns, log_chances
from anmi.training.losses.drawn import LearnableSimAns

A, B = 30.0, -0.1


def rows(queries: int = 40, width: int = 12) -> Candidates:
    rng = np.random.default_rng(0)
    filled = np.arange(width) < rng.integers(0, width + 1, queries)[:, None]
    documents = np.where(filled, np.tile(np.arange(width), (queries, 1)), PADDING).astype(np.int32)
    return Candidates(
        query_ids=np.array([f"q{i}" for i in range(queries)]),
        positives=np.full((queries, 1), 1000, np.int32),
        documents=documents,
        source=np.ones(documents.shape, np.uint8),
        columns={"dense": np.where(filled, rng.uniform(0, 1, documents.shape), np.nan).astype(np.float32)},
        positive_columns={"dense": rng.uniform(0.5, 0.9, (queries, 1)).astype(np.float32)},
    )


def tensors(block: Candidates, seed: int = 5) -> tuple[torch.Tensor, ...]:
    uniform = seeds.uniform(seed, "selection/simans", row_keys(block), block.documents)
    return (
        torch.from_numpy(block.columns["dense"].astype(np.float64)),
        torch.from_numpy(block.positive_columns["dense"].astype(np.float64)),
        torch.from_numpy(block.undecided),
        torch.from_numpy(uniform),
    )


def test_its_chances_are_those_of_the_step() -> None:
    block = rows()
    scores, positive, usable, _ = tensors(block)
    ours = LearnableSimAns(A, B).log_chances(scores, positive, usable).detach().numpy()
    theirs = log_chances(block, SimAns(a=A, b=B, scale=False))
    np.testing.assert_allclose(ours[block.undecided], theirs[block.undecided], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 4])
def test_at_a_low_temperature_it_is_the_exact_draw(count: int) -> None:
    block = rows()
    item = Step.of("simans", {"a": A, "b": B, "scale": False})
    exact = item.type.apply(block, item.params, Context(5, count, 1.0)).negatives
    drawn = LearnableSimAns(A, B)(*tensors(block), count, temperature=1e-4).detach().numpy()
    np.testing.assert_allclose(drawn, exact, atol=1e-2)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_a_row_is_drawn_from_as_often_as_asked_or_as_it_has_candidates(temperature: float) -> None:
    block = rows()
    drawn = LearnableSimAns(A, B)(*tensors(block), 5, temperature=temperature).detach().numpy()
    assert (drawn >= 0).all() and (drawn[~block.undecided] == 0).all()
    np.testing.assert_allclose(drawn.sum(axis=1), np.minimum(block.undecided.sum(axis=1), 5), rtol=1e-6)


def test_a_and_b_learn_where_the_useful_negatives_are() -> None:
    scores, positive, usable, uniform = tensors(rows(queries=200))
    sampler = LearnableSimAns(20.0, 0.0)
    optimizer = torch.optim.Adam(sampler.parameters(), lr=0.02)
    # The loss wants negatives 0.2 below the positive, and only those.
    cost = torch.where(usable, (scores - positive + 0.2) ** 2, 0.0)
    for step in range(150):
        optimizer.zero_grad()
        loss = (sampler(scores, positive, usable, uniform, 2) * cost).sum()
        loss.backward()
        if step == 0:
            assert sampler.free_a.grad is not None and sampler.b.grad is not None
            assert sampler.free_a.grad.abs() > 0 and sampler.b.grad.abs() > 0
        optimizer.step()
    assert sampler.a.item() > 20.5 and sampler.b.item() == pytest.approx(-0.2, abs=0.1)


def test_a_stays_above_zero_whatever_the_gradient() -> None:
    sampler = LearnableSimAns(0.5)
    optimizer = torch.optim.SGD(sampler.parameters(), lr=5.0)
    for _ in range(5):
        optimizer.zero_grad()
        sampler.a.backward()
        optimizer.step()
    assert 0 < sampler.a.item() < 0.1
    with pytest.raises(ValueError, match="above 0"):
        LearnableSimAns(0.0)


@pytest.mark.parametrize("a", [1e-3, 0.5, 5000.0])
def test_it_starts_where_it_is_told(a: float) -> None:
    assert LearnableSimAns(a).a.item() == pytest.approx(a, rel=1e-3)
