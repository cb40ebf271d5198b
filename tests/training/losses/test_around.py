"""Losses around others: adapted to hardness, and a draw by a learned SimANS."""

import math

import numpy as np
import pytest
import torch
from tests.mined import row
from tests.reports import class_of
from torch import Tensor

from anmi import seeds
from anmi.errors import AnmiError
from anmi.training.batch import Row, assemble
from anmi.training.losses import build_loss
from anmi.training.losses.around import SLOT, DrawnBySimAns, HardnessAdaptive, LearnableSimAns
from anmi.training.losses.common import Facts
from anmi.training.losses.contrastive import Triplet, WeightedInfoNCE
from anmi.training.losses.temperature import Temperature
from anmi.training.options import TrainingOptions
from anmi.training.parts import Adaptation, HansOptions, TripletOptions
from anmi.training.sampling import SimAnsSampler

OFF = Adaptation(low=0, high=0, direction="off")
NONE = {"negatives": OFF, "weight": OFF, "temperature": OFF, "margin": OFF}
ADDED = NONE | {"margin_is": "added"}
T = 0.1


def adaptation(low: float, high: float, direction: str) -> Adaptation:
    return Adaptation(low=low, high=high, direction=direction)


AS_PUBLISHED = {"weight": adaptation(0.5, 1.5, "falling"), "margin_is": "added"}
AS_PUBLISHED |= {"temperature": adaptation(0.5, 1.0, "rising")}
AS_PUBLISHED |= {"margin": adaptation(0.1, 0.5, "falling")}


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
    options = HansOptions(**(given | changes))
    loss = HardnessAdaptive(WeightedInfoNCE(t or Temperature(T)), options, 8)
    loss.predictor = Told()
    tell = lambda module, args: setattr(module.predictor, "hardness", args[3].hardness)  # noqa: E731
    loss.register_forward_pre_hook(tell)
    return loss


def by_hand(
    positive: float, negative: float, t: float = T, margin: float = 0.0, weight: float = 1.0
) -> float:
    """InfoNCE of three equal negatives with a margin subtracted from the positive's logit."""
    own = positive / t - margin
    return weight * (math.log(math.exp(own) + 3 * math.exp(negative / t)) - own)


@pytest.mark.parametrize(
    ("name", "low", "high", "direction", "expected", "changes"),
    [
        ("weight", 0.5, 1.5, "rising", lambda h: {"weight": 0.5 + h}, NONE),
        ("weight", 0.5, 1.5, "falling", lambda h: {"weight": 1.5 - h}, NONE),
        ("temperature", 0.5, 1, "falling", lambda h: {"t": T * (1 - h / 2)}, NONE),
        ("temperature", 0.5, 1, "rising", lambda h: {"t": T * (0.5 + h / 2)}, NONE),
        ("margin", 0.1, 0.5, "rising", lambda h: {"margin": 0.1 + 0.4 * h}, NONE),
        ("margin", 0.1, 0.5, "falling", lambda h: {"margin": 0.5 - 0.4 * h}, NONE),
        ("margin", 0.1, 0.5, "falling", lambda h: {"margin": 0.4 * h - 0.5}, ADDED),
    ],
)
def test_each_adaptation_is_linear_in_hardness_in_its_direction(
    name, low, high, direction, expected, changes
):
    hardness = [0.0, 0.25, 1.0]
    changes = changes | {name: adaptation(low, high, direction)}
    found = adaptive(**changes)(*numbers(3), facts(hardness)).tolist()
    assert found == pytest.approx([by_hand(0.5, 0.45, **expected(h)) for h in hardness], rel=1e-5)


def test_as_published_the_temperature_is_the_number_itself_and_the_margin_stands_on_the_similarity():
    hardness = [0.0, 0.25, 1.0]
    letter = {**AS_PUBLISHED, "temperature_is": "absolute", "margin_on": "similarity"}
    # Whatever the temperature of the training.
    for base in (0.05, 0.9):
        loss = adaptive(Temperature(base), **letter)
        found = loss(*numbers(3), facts(hardness)).tolist()
        for h, value in zip(hardness, found, strict=True):
            expected = by_hand(1 - 0.4 * h, 0.45, t=0.5 + 0.5 * h, weight=1.5 - h)
            assert value == pytest.approx(expected, rel=1e-5)
    assert loss.temperature.report()["temperature"] == pytest.approx(0.5 + 0.5 * sum(hardness) / 3)


@pytest.mark.parametrize("detached", [True, False])
def test_the_predictor_learns_the_heuristic_and_moves_the_embedding_only_if_it_may(detached):
    options = HansOptions(**NONE, detached=detached)
    loss = HardnessAdaptive(WeightedInfoNCE(Temperature(T)), options, 8)
    about = facts([0.2, 0.9])
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


WIDTH, COUNT, SEED = 9, 3, 4


def options(form: str = "score") -> TrainingOptions:
    draw = {"simans": {"form": form}}
    return TrainingOptions(negatives=COUNT, temperature={"fixed": {"value": 0.5}}, draw=draw)


def rows(form: str = "score", count: int = 6) -> list[Row]:
    rng = np.random.default_rng(0)
    by_score = form == "score"
    made = []
    for number in range(count):
        names = [f"{number}:{place}" for place in range(WIDTH - number % 2)]
        size = len(names)
        scores = rng.uniform(0, 1, size) if by_score else rng.permutation(40)[:size] + 1.0
        own = rng.uniform(0.4, 0.8) if by_score else float(rng.integers(1, 12))
        judged = {"dense" if by_score else "dense_rank": (own, tuple(map(float, scores)))}
        judged["cross"] = (1.0, (0.0,) * size)
        weights = tuple(0.0 if place == 2 else 1.0 for place in range(size))
        name = {"query_id": f"q{number}", "weights": weights, "judged": judged}
        made.append(row("what", f"answer {number}", names, **name))
    return made


def made(form: str = "score") -> tuple[DrawnBySimAns, SimAnsSampler, list[Row]]:
    loss, data = build_loss(options(form)), rows(form)
    assert isinstance(loss, DrawnBySimAns)
    loss.prepare(data)
    column = "dense" if form == "score" else "dense_rank"
    return loss, SimAnsSampler(data, COUNT, SEED, loss, column, ["cross"]), data


def energy(row: Row, form: str, a: float, b: float, variance: float) -> np.ndarray:
    own, values = next(value for name, value in row.judged.items() if name != "cross")
    if form == "rank":
        return np.array([-a * abs((rank - 1) - b * (own - 1)) for rank in values])
    return np.array([-a / variance * (score - own - b) ** 2 for score in values])


@pytest.mark.parametrize("form", ["score", "rank"])
def test_a_step_has_the_gumbel_top_of_the_chances(form: str) -> None:
    loss, sampler, data = made(form)
    if form == "score":
        judged = [row.judged["dense"] for row in data]
        a, b, variance = 0.5, 0.0, np.var([s - own for own, scores in judged for s in scores])
    else:
        (a, b), variance = np.log1p(np.exp([1.0, 1.5])), 1.0
    report = loss.report()
    assert (report["simans_a"], report["simans_b"]) == (pytest.approx(a), pytest.approx(b))
    chosen = np.array([4, 0, 3])
    for step in (0, 7):
        drawn = sampler(chosen, step)
        for number, found in zip(chosen, drawn, strict=True):
            row = data[number]
            key = f"{row.query_id}\x1f{row.positive_id}"
            slots = np.arange(WIDTH, dtype=np.int32)[None, :]
            keys = seeds.uniform(SEED, f"training/simans/{step}", [key], slots)[0]
            gumbel = -np.log(-np.log(keys[: len(row.negatives)]))
            keys = energy(row, form, a, b, variance) + gumbel
            keys[2] = -np.inf  # weighs nothing
            best = np.argsort(-keys)[:COUNT]
            assert found.negatives == tuple(row.negatives[place] for place in best)
            assert found.judged[SLOT][1] == tuple(map(float, best))
            assert set(found.judged) == {"cross", SLOT}


def test_by_rank_its_start_and_its_chances_are_those_of_the_report() -> None:
    report, sampler = class_of("000", "AdaptiveSimANS")(), LearnableSimAns("rank")
    assert (sampler.a.item(), sampler.b.item()) == report.get_parameters()
    ranks = torch.arange(9.0)
    a, b = report.get_parameters()
    expected = torch.log_softmax(-a * (ranks - 3 * b).abs(), dim=0)
    found = sampler.log_chances(1 + ranks[None], torch.tensor([[4.0]]), torch.ones(1, 9).bool())
    torch.testing.assert_close(found[0], expected)


def test_the_loss_is_that_of_the_draw_and_its_gradient_goes_through_the_softmax() -> None:
    loss, sampler, data = made()
    chosen = np.arange(len(data))
    drawn = sampler(chosen, 3)
    layout = assemble(drawn, "none")
    similarity = torch.rand(layout.weights.shape, generator=torch.Generator().manual_seed(0))
    positive = similarity.gather(1, torch.from_numpy(layout.positive)[:, None])[:, 0]
    facts = Facts(judged={SLOT: torch.from_numpy(layout.judged[SLOT])})
    block = positive, similarity, torch.from_numpy(layout.weights).log()
    value = loss(*block, facts)
    torch.testing.assert_close(value, loss.loss(*block))
    value.sum().backward()

    slots = torch.tensor([row.judged[SLOT][1] for row in drawn]).long()

    def soft() -> Tensor:
        sampler(chosen, 3)
        assert loss.relaxed is not None
        return loss.relaxed.detach().gather(1, slots)

    # ∂ log(1 + Σ wᵢ exp((sᵢ - s⁺)/t)) / ∂wᵢ at w = 1, times how the softmax changes with a and b.
    near = similarity.gather(1, torch.from_numpy(layout.negatives))
    share = ((near - positive[:, None]) / 0.5).exp()
    share = share / (1 + share.sum(dim=1, keepdim=True))
    for parameter in (loss.drawing.free_a, loss.drawing.free_b):
        with torch.no_grad():
            parameter.add_(1e-3)
            up = soft()
            parameter.sub_(2e-3)
            down = soft()
            parameter.add_(1e-3)
        expected = (share * (up - down) / 2e-3).sum().item()
        assert parameter.grad is not None
        assert parameter.grad.item() == pytest.approx(expected, rel=0.02, abs=1e-3)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"curriculum": "tiers"}, "so does curriculum tiers; take one"),
        ({"hardness": "hans"}, "so does hardness hans; take one"),
        ({"loss": "triplet"}, "which triplet has no place for"),
        ({"pseudo_queries": {"kinds": ["cloze"]}}, "which draw simans needs"),
    ],
)
def test_what_does_not_go_with_it_is_refused(other: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingOptions(negatives=3, draw="simans", **other)
    assert TrainingOptions(negatives=3, draw="simans").draws
    assert TrainingOptions(draw={"simans": {"form": "rank"}}).reads == {"dense_rank"}
