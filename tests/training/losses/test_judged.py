"""Losses that learn what judges said, and entities, by their formulas and by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mined import row
from torch.nn import functional

from anmi.errors import AnmiError
from anmi.training.losses import build_loss
from anmi.training.losses.common import Facts
from anmi.training.losses.contrastive import WeightedInfoNCE
from anmi.training.losses.judged import Distillation, EntityClassification, Hybrid
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions
from anmi.training.parts import DistillationOptions, EntityOptions, HybridOptions

NEAR, UNKNOWN = st.floats(-1, 1), st.just(math.nan)


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


def block_of(positive, others):
    """One row: the positive's similarity and judgment, and similarity, weight and judgment of each other document."""
    near, weights, told = (exact([[other[i] for other in others]]) for i in range(3))
    return (exact([positive[0]]), near, weights.log()), exact([positive[1]]), told


def facts_of(column, own, others, **more):
    return Facts(positive_judged={column: own}, judged={column: others}, **more)


def softmax(values):
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def slow_kl(similarities, judged, t, label_temperature):
    labels = softmax([p / label_temperature for p in judged])
    model = softmax([s / t for s in similarities])
    return sum(p * math.log(p / q) for p, q in zip(labels, model, strict=True) if p > 0)


@given(
    positive=st.tuples(NEAR, st.floats(0, 1) | UNKNOWN),
    t=st.floats(0.05, 1),
    label_temperature=st.floats(0.05, 1),
    others=st.lists(
        st.tuples(NEAR, st.sampled_from([0.0, 0.5]), st.floats(0, 1) | UNKNOWN), max_size=6
    ),
    share=st.floats(0, 1),
)
def test_distillation_is_the_formula(positive, others, t, label_temperature, share):
    options = DistillationOptions(share=share, label_temperature=label_temperature)
    loss = Distillation(Temperature(t).double(), options)
    block, own, told = block_of(positive, others)
    # A positive that nobody judged has what the label says.
    first = (positive[0], 1.0 if math.isnan(positive[1]) else positive[1])
    judged = [first, *((s, p) for s, _, p in others if not math.isnan(p))]
    t = loss.temperature()[0].item()
    kl = slow_kl(*zip(*judged, strict=True), t, label_temperature) if len(judged) > 1 else 0.0
    expected = share * kl + (1 - share) * WeightedInfoNCE(loss.temperature)(*block).item()
    assert loss(*block, facts_of("p_relevant", own, told)).item() == pytest.approx(
        expected, rel=1e-6, abs=1e-9
    )


def minmax(values):
    values = np.array(values)
    if np.isnan(values).all():
        return values
    low, high = np.nanmin(values), np.nanmax(values)
    return (values - low) / (high - low + 1e-6)


def four(values):
    return st.lists(values, min_size=4, max_size=4)


@given(
    first=four(st.floats(-20, 20) | UNKNOWN),
    near=four(NEAR),
    second=four(st.floats(0, 30) | UNKNOWN),
)
def test_several_judges_are_scaled_in_every_row_and_averaged(first, second, near):
    options = DistillationOptions(column=["dense", "bm25"], share=1.0)
    loss = Distillation(Temperature(1.0).double(), options)
    both = {"dense": exact(first), "bm25": exact(second)}
    own = {name: values[:1] for name, values in both.items()}
    judged = {name: values[None, 1:] for name, values in both.items()}
    block = exact(near[:1]), exact([near[1:]]), exact([[0.0] * 3])
    found = loss(*block, Facts(positive_judged=own, judged=judged))
    values = np.array([minmax(first), minmax(second)])
    counts = np.isfinite(values).sum(axis=0)
    means = np.nansum(values, axis=0) / np.maximum(counts, 1)
    known = [pair for *pair, count in zip(near, means, counts, strict=True) if count]
    t = loss.temperature()[0].item()
    is_usable = counts[0] and len(known) > 1
    expected = slow_kl(*zip(*known, strict=True), t, 1 / 30) if is_usable else 0.0
    assert found.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_own_positive_counts_once():
    """In a batch it is a column like any other, and judged there, too."""
    loss = Distillation(Temperature(0.2), DistillationOptions(share=1.0))
    similarity = torch.tensor([[0.3, 0.7, 0.1]])
    log_weights = torch.tensor([[0.0, -torch.inf, 0.0]])
    judged, place = torch.tensor([[0.2, 0.9, 0.4]]), torch.tensor([1])
    told = facts_of("p_relevant", judged[:, 1], judged, positive_column=place)
    got = loss(torch.tensor([0.7]), similarity, log_weights, told)
    expected = slow_kl([0.7, 0.3, 0.1], [0.9, 0.2, 0.4], 0.2, 0.1)
    assert got.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("column", "judged", "same"),
    [("elo", [1400.0, 900.0], [2.0, -0.5]), ("cross", [3.0, 0.5], [3.0, 0.5])],
)
def test_wider_scales_have_a_temperature_of_their_own(column, judged, same):
    loss = Distillation(Temperature(0.5), DistillationOptions(column=column, share=1.0))
    told = facts_of(column, torch.tensor(judged[:1]), torch.tensor([judged[1:]]))
    got = loss(torch.tensor([0.6]), torch.tensor([[0.2]]), torch.zeros(1, 1), told)
    assert got.item() == pytest.approx(slow_kl([0.6, 0.2], same, 0.5, 1.0), rel=1e-5)


@pytest.mark.parametrize("name", ["distillation", "hybrid", "entity"])
def test_rows_of_which_nothing_is_known_are_refused_before_the_first_step(name):
    options = TrainingOptions(loss=name)
    judged = dict.fromkeys(options.loss.reads, (1.0, (math.nan, math.nan)))
    with pytest.raises(AnmiError, match=r"no (negative|positive) of the training rows"):
        build_loss(options, 3).prepare([row("q", "d", ["a", "b"], judged=judged)])


def rated(own, *others):
    return row("q", "d", [f"n{i}" for i in range(len(others))], judged={"elo": (own, others)})


def slow_head(loss, similarity):
    first, _, last = loss.head
    lines = zip(
        first.weight[:, 0].tolist(), first.bias.tolist(), last.weight[0].tolist(), strict=True
    )
    return sum(max(0.0, similarity * w + b) * out for w, b, out in lines) + last.bias.item()


ELO = st.floats(400, 2000) | UNKNOWN


@given(
    positive=st.tuples(NEAR, ELO),
    alpha=st.floats(0, 1),
    seed=st.integers(0, 20),
    raw=st.booleans(),
    others=st.lists(st.tuples(NEAR, st.sampled_from([0.0, 0.5, 1.0]), ELO), max_size=6),
)
def test_hybrid_is_the_formula(positive, others, alpha, seed, raw):
    torch.manual_seed(seed)
    options = HybridOptions(alpha=alpha, targets="raw" if raw else "standardised")
    loss = Hybrid(Temperature(0.1), options).double()
    loss.prepare([rated(1500.0, 900.0, 1100.0), rated(1300.0, math.nan, 700.0)])
    block, own, told = block_of(positive, others)
    pairs = [positive, *((s, elo) for s, w, elo in others if w > 0)]
    known = [(s, elo) for s, elo in pairs if not math.isnan(elo)]
    centre, unit = (0, 1) if raw else (1100, math.sqrt(80000))
    errors = [(slow_head(loss, s) - (elo - centre) / unit) ** 2 for s, elo in known]
    infonce = WeightedInfoNCE(loss.temperature)(*block).item()
    expected = alpha * infonce + (1 - alpha) * (sum(errors) / len(errors) if errors else 0.0)
    assert loss(*block, facts_of("elo", own, told)).item() == pytest.approx(
        expected, rel=1e-5, abs=1e-7
    )


def test_the_scale_is_that_of_the_training_set_and_of_elo_itself_before():
    loss = Hybrid(Temperature(0.1), HybridOptions())
    assert (loss.centre.item(), loss.unit.item()) == (1000.0, 200.0)
    loss.prepare([rated(1200.0, 800.0, math.nan), rated(math.nan)])
    assert (loss.centre.item(), loss.unit.item()) == (1000.0, 200.0)
    loss.prepare([rated(1500.0, 1300.0)])
    assert (loss.centre.item(), loss.unit.item()) == (1400.0, 100.0)


ENTITIES, DIMENSIONS = (2, 5, 7), 3


@given(
    about=st.lists(st.sampled_from([-1, 0, 2, 5, 7, 8, 1000]), min_size=1, max_size=5),
    share=st.floats(0, 1),
    seed=st.integers(0, 50),
)
def test_entities_are_the_formula_and_rows_about_no_class_have_infonce_alone(about, share, seed):
    draw = torch.Generator().manual_seed(seed)
    loss = EntityClassification(Temperature(0.1), EntityOptions(share=share), DIMENSIONS)
    loss.prepare([row("q", "d", about=number) for number in (5, -1, 2, 7, 5)])
    for parameter in (loss.weight, loss.bias):
        torch.nn.init.normal_(parameter, generator=draw)
    loss = loss.double()
    similarity, weights = (
        torch.rand(len(about), n, generator=draw, dtype=torch.float64) for n in (3, 2)
    )
    query = functional.normalize(
        torch.randn(len(about), DIMENSIONS, generator=draw, dtype=torch.float64), dim=1
    )
    block = similarity[:, 0], similarity[:, 1:], weights.log()
    errors = []
    for of, number in zip((query @ loss.weight.T + loss.bias).tolist(), about, strict=True):
        known = number in ENTITIES
        errors.append(
            math.log(sum(map(math.exp, of))) - of[ENTITIES.index(number)] if known else 0.0
        )
    infonce = WeightedInfoNCE(loss.temperature)(*block).tolist()
    expected = [(1 - share) * c + share * e for c, e in zip(infonce, errors, strict=True)]
    assert loss(*block, Facts(query=query, about=torch.tensor(about))).tolist() == pytest.approx(
        expected
    )
