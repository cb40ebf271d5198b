import math

import pytest
import torch
from torch import Tensor

from anmi.errors import AnmiError
from anmi.training.losses.around import HardnessAdaptive
from anmi.training.losses.common import Facts
from anmi.training.losses.contrastive import Triplet, WeightedInfoNCE
from anmi.training.losses.temperature import Temperature
from anmi.training.parts import Adaptation, HansOptions, TripletOptions

OFF = Adaptation(low=0, high=0, direction="off")
NONE = {"negatives": OFF, "weight": OFF, "temperature": OFF, "margin": OFF}
AS_PUBLISHED = {
    "weight": {"low": 0.5, "high": 1.5, "direction": "falling"},
    "temperature": {"low": 0.5, "high": 1.0, "direction": "rising"},
    "margin": {"low": 0.1, "high": 0.5, "direction": "falling"},
    "margin_is": "added",
}
T = 0.1


def facts(hardness: list[float], dimensions: int = 8) -> Facts:
    query = torch.randn(len(hardness), dimensions, generator=torch.Generator().manual_seed(0))
    return Facts(query=query.requires_grad_(), hardness=torch.tensor(hardness))


def numbers(rows: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    return torch.full((rows,), 0.5), torch.full((rows, 3), 0.45), torch.zeros(rows, 3)


class Told(torch.nn.Module):
    """A predictor that predicts the heuristic, so that its own error is 0."""

    def forward(self, query: Tensor) -> Tensor:
        return self.hardness


def adaptive(t: torch.nn.Module | None = None, given=NONE, **changes) -> HardnessAdaptive:
    loss = HardnessAdaptive(WeightedInfoNCE(t or Temperature(T)), HansOptions(**(given | changes)), 8)
    loss.predictor = Told()
    loss.register_forward_pre_hook(lambda module, args: setattr(module.predictor, "hardness", args[3].hardness))
    return loss


def by_hand(positive: float, negative: float, t: float, margin: float = 0.0, weight: float = 1.0) -> float:
    """InfoNCE of three equal negatives with a margin subtracted from the positive's logit."""
    own = positive / t - margin
    return weight * (math.log(math.exp(own) + 3 * math.exp(negative / t)) - own)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"weight": Adaptation(low=0.5, high=1.5, direction="rising")}, lambda h: {"weight": 0.5 + h}),
        ({"weight": Adaptation(low=0.5, high=1.5, direction="falling")}, lambda h: {"weight": 1.5 - h}),
        ({"temperature": Adaptation(low=0.5, high=1, direction="falling")}, lambda h: {"t": T * (1 - h / 2)}),
        ({"temperature": Adaptation(low=0.5, high=1, direction="rising")}, lambda h: {"t": T * (0.5 + h / 2)}),
        ({"margin": Adaptation(low=0.1, high=0.5, direction="rising")}, lambda h: {"margin": 0.1 + 0.4 * h}),
        ({"margin": Adaptation(low=0.1, high=0.5, direction="falling")}, lambda h: {"margin": 0.5 - 0.4 * h}),
        (
            {"margin": Adaptation(low=0.1, high=0.5, direction="falling"), "margin_is": "added"},
            lambda h: {"margin": -(0.5 - 0.4 * h)},
        ),
    ],
)
def test_each_adaptation_is_linear_in_hardness_in_its_direction(change, expected):
    hardness = [0.0, 0.25, 1.0]
    found = adaptive(**change)(*numbers(3), facts(hardness)).tolist()
    assert found == pytest.approx([by_hand(0.5, 0.45, **({"t": T} | expected(h))) for h in hardness], rel=1e-5)


def test_as_published_the_temperature_is_the_number_itself_and_the_margin_stands_on_the_similarity():
    hardness = [0.0, 0.25, 1.0]
    letter = {**AS_PUBLISHED, "temperature_is": "absolute", "margin_on": "similarity"}
    # Whatever the temperature of the training.
    for base in (0.05, 0.9):
        loss = adaptive(Temperature(base), **letter)
        found = loss(*numbers(3), facts(hardness)).tolist()
        expected = [by_hand(0.5 + (0.5 - 0.4 * h), 0.45, t=0.5 + 0.5 * h, weight=1.5 - h) for h in hardness]
        assert found == pytest.approx(expected, rel=1e-5)
    assert loss.temperature.report()["temperature"] == pytest.approx(0.5 + 0.5 * sum(hardness) / 3)


@pytest.mark.parametrize("detached", [True, False])
def test_the_predictor_learns_the_heuristic_and_moves_the_embedding_only_if_it_may(detached):
    loss, about = (
        HardnessAdaptive(WeightedInfoNCE(Temperature(T)), HansOptions(**NONE, detached=detached), 8),
        facts([0.2, 0.9]),
    )
    result = loss(*numbers(), about)
    predicted = loss.predictor(about.query)
    expected = WeightedInfoNCE(Temperature(T))(*numbers()) + 0.1 * (predicted - about.hardness) ** 2
    assert result.tolist() == pytest.approx(expected.tolist())
    result.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in loss.predictor.parameters())
    assert (about.query.grad is None) == detached


def test_calling_queries_easy_is_no_way_to_a_lower_loss(monkeypatch):
    """With the predictor's own term off nothing pulls at it, however the adaptations depend on it."""
    monkeypatch.setattr("anmi.training.losses.around.PREDICTOR_WEIGHT", 0.0)
    loss = HardnessAdaptive(WeightedInfoNCE(Temperature(T)), HansOptions(detached=False), 8)
    loss(*numbers(), facts([0.2, 0.9])).sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in loss.predictor.parameters())


def test_a_loss_without_temperature_says_what_to_turn_off():
    with pytest.raises(AnmiError, match=r"Triplet has no temperature.*off"):
        HardnessAdaptive(Triplet(None, TripletOptions(margin=0.2)), HansOptions(), 8)
    options = HansOptions(**(NONE | {"weight": Adaptation(low=0.5, high=1.5, direction="rising")}))
    loss = HardnessAdaptive(Triplet(None, TripletOptions(margin=0.2)), options, 8)
    loss.predictor = Told()
    loss.predictor.hardness = torch.tensor([0.0, 1.0])
    losses = loss(*numbers(), facts([0.0, 1.0])).tolist()
    assert losses[1] == pytest.approx(3 * losses[0])
