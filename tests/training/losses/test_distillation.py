import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mined import row

from anmi.errors import AnmiError
from anmi.training.losses import build_loss
from anmi.training.losses.common import Facts
from anmi.training.losses.contrastive import WeightedInfoNCE
from anmi.training.losses.judged import Distillation
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions
from anmi.training.parts import DistillationOptions


def softmax(values):
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def slow_kl(similarities, judged, t, label_temperature):
    labels, model = softmax([p / label_temperature for p in judged]), softmax([s / t for s in similarities])
    return sum(p * math.log(p / q) for p, q in zip(labels, model, strict=True) if p > 0)


judgments = st.one_of(st.floats(0, 1), st.just(math.nan))


@given(
    positive=st.tuples(st.floats(-1, 1), judgments),
    others=st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0.0, 0.5]), judgments), max_size=6),
    t=st.floats(0.05, 1), label_temperature=st.floats(0.05, 1), share=st.floats(0, 1),
)  # fmt: skip
def test_it_is_the_formula(positive, others, t, label_temperature, share):
    options = DistillationOptions(share=share, label_temperature=label_temperature)
    loss = Distillation(Temperature(t).double(), options)
    t = loss.temperature()[0].item()
    as_row = {"dtype": torch.float64}
    similarity = torch.tensor([[s for s, _, _ in others]], **as_row)
    block = torch.tensor([positive[0]], **as_row), similarity, torch.tensor([[w for _, w, _ in others]], **as_row).log()
    facts = Facts(
        positive_judged={"p_relevant": torch.tensor([positive[1]], **as_row)},
        judged={"p_relevant": torch.tensor([[p for _, _, p in others]], **as_row)},
    )
    judged = [positive, *((s, p) for s, _, p in others if not math.isnan(p))]
    if math.isnan(positive[1]):
        # What the label says.
        judged[0] = (positive[0], 1.0)
    kl = slow_kl(*zip(*judged, strict=True), t, label_temperature) if len(judged) > 1 else 0.0
    expected = share * kl + (1 - share) * WeightedInfoNCE(loss.temperature)(*block).item()
    assert loss(*block, facts).item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def minmax(values):
    known = [value for value in values if not math.isnan(value)]
    return [(value - min(known)) / (max(known) - min(known) + 1e-6) if known else math.nan for value in values]


@given(
    first=st.lists(st.one_of(st.floats(-20, 20), st.just(math.nan)), min_size=4, max_size=4),
    second=st.lists(st.one_of(st.floats(0, 30), st.just(math.nan)), min_size=4, max_size=4),
    similarities=st.lists(st.floats(-1, 1), min_size=4, max_size=4),
)
def test_several_judges_are_scaled_in_every_row_and_averaged(first, second, similarities):
    exact = {"dtype": torch.float64}
    loss = Distillation(Temperature(1.0).double(), DistillationOptions(column=["dense", "bm25"], share=1.0))
    both = {"dense": first, "bm25": second}
    facts = Facts(
        positive_judged={name: torch.tensor(values[:1], **exact) for name, values in both.items()},
        judged={name: torch.tensor([values[1:]], **exact) for name, values in both.items()},
    )
    found = loss(
        torch.tensor(similarities[:1], **exact), torch.tensor([similarities[1:]], **exact), torch.zeros(1, 3, **exact),
        facts,
    )  # fmt: skip
    means = []
    for said in zip(minmax(first), minmax(second), strict=True):
        known = [value for value in said if not math.isnan(value)]
        means.append(sum(known) / len(known) if known else math.nan)
    known = [(s, mean) for s, mean in zip(similarities, means, strict=True) if not math.isnan(mean)]
    usable = not math.isnan(means[0]) and len(known) > 1
    expected = slow_kl(*zip(*known, strict=True), loss.temperature()[0].item(), 1 / 30) if usable else 0.0
    assert found.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def facts_of(judged, positive_column):
    return Facts(
        positive_column=torch.tensor([positive_column]),
        positive_judged={"p_relevant": torch.tensor([judged[positive_column]])},
        judged={"p_relevant": torch.tensor([judged])},
    )


def test_the_own_positive_counts_once():
    """In a batch it is a column like any other, and judged there, too."""
    loss = Distillation(Temperature(0.2), DistillationOptions(share=1.0))
    similarity, log_weights = torch.tensor([[0.3, 0.7, 0.1]]), torch.tensor([[0.0, -torch.inf, 0.0]])
    got = loss(torch.tensor([0.7]), similarity, log_weights, facts_of([0.2, 0.9, 0.4], 1))
    assert got.item() == pytest.approx(slow_kl([0.7, 0.3, 0.1], [0.9, 0.2, 0.4], 0.2, 0.1), rel=1e-5)


@pytest.mark.parametrize(
    ("column", "judged", "same"), [("elo", [1400.0, 900.0], [2.0, -0.5]), ("cross", [3.0, 0.5], [3.0, 0.5])]
)
def test_wider_scales_have_a_temperature_of_their_own(column, judged, same):
    loss = Distillation(Temperature(0.5), DistillationOptions(column=column, share=1.0))
    facts = Facts(positive_judged={column: torch.tensor(judged[:1])}, judged={column: torch.tensor([judged[1:]])})
    got = loss(torch.tensor([0.6]), torch.tensor([[0.2]]), torch.zeros(1, 1), facts)
    assert got.item() == pytest.approx(slow_kl([0.6, 0.2], same, 0.5, 1.0), rel=1e-5)


@pytest.mark.parametrize("name", ["distillation", "hybrid"])
def test_rows_that_nobody_judged_are_refused_before_the_first_step(name):
    options = TrainingOptions(loss=name)
    loss, judged = build_loss(options), {options.loss.reads[0]: (1.0, (math.nan, math.nan))}
    with pytest.raises(AnmiError, match="no negative of the training rows"):
        loss.prepare([row("q", "d", ["a", "b"], judged=judged)])
