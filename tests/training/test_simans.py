"""Negatives drawn by a learned SimANS: the draw of the step, the gradient of the softmax, and a training with it."""

import math

import numpy as np
import pytest
import torch

from anmi import seeds
from anmi.training.batch import Row, assemble
from anmi.training.losses import build_loss
from anmi.training.losses.around import SLOT, DrawnBySimAns
from anmi.training.losses.common import Facts
from anmi.training.options import TrainingOptions
from anmi.training.sampling import SimAnsSampler

WIDTH, COUNT, SEED = 9, 3, 4


def options(form: str = "score") -> TrainingOptions:
    draw = {"simans": {"form": form}}
    return TrainingOptions(negatives=COUNT, temperature={"fixed": {"value": 0.5}}, draw=draw)


def rows(form: str = "score", count: int = 6) -> list[Row]:
    rng = np.random.default_rng(0)
    made = []
    for number in range(count):
        names = tuple(f"{number}:{place}" for place in range(WIDTH - number % 2))
        scores = rng.uniform(0, 1, len(names)) if form == "score" else rng.permutation(40)[: len(names)] + 1.0
        own = rng.uniform(0.4, 0.8) if form == "score" else float(rng.integers(1, 12))
        column = "dense" if form == "score" else "dense_rank"
        weights = tuple(0.0 if place == 2 else 1.0 for place in range(len(names)))
        made.append(
            Row(
                f"q{number}", "what", f"d{number}", f"answer {number}", names, names, weights, 1.0,
                frozenset({f"d{number}"}),
                judged={column: (own, tuple(map(float, scores))), "cross": (1.0, (0.0,) * len(names))},
            )
        )  # fmt: skip
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
    gaps = (
        [score - row.judged["dense"][0] for row in data for score in row.judged["dense"][1]] if form == "score" else []
    )
    a, b, variance = (0.5, 0.0, np.var(gaps)) if form == "score" else (1.0, 1.5, 1.0)
    assert loss.report()["simans_a"] == pytest.approx(a) and loss.report()["simans_b"] == pytest.approx(b)
    chosen = np.array([4, 0, 3])
    for step in (0, 7):
        drawn = sampler(chosen, step)
        for number, found in zip(chosen, drawn, strict=True):
            row = data[number]
            keys = seeds.uniform(
                SEED, f"training/simans/{step}", [f"{row.query_id}\x1f{row.positive_id}"],
                np.arange(WIDTH, dtype=np.int32)[None, :],
            )[0]  # fmt: skip
            gumbel = -np.log(-np.log(keys[: len(row.negatives)]))
            keys = energy(row, form, a, b, variance) + gumbel
            keys[2] = -np.inf  # weighs nothing
            best = np.argsort(-keys)[:COUNT]
            assert found.negatives == tuple(row.negatives[place] for place in best)
            assert found.judged[SLOT][1] == tuple(map(float, best)) and set(found.judged) == {"cross", SLOT}


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

    def soft() -> list[list[float]]:
        sampler(chosen, 3)
        assert loss.relaxed is not None
        return [[loss.relaxed[i, int(slot)].item() for slot in row.judged[SLOT][1]] for i, row in enumerate(drawn)]

    # ∂ log(1 + Σ wᵢ exp((sᵢ - s⁺)/t)) / ∂wᵢ at w = 1, times how the softmax changes with a and b.
    share = [
        [math.exp((similarity[i, column] - positive[i]).item() / 0.5) for column in layout.negatives[i]]
        for i in range(len(drawn))
    ]
    for name, parameter in (("a", loss.drawing.free_a), ("b", loss.drawing.b)):
        with torch.no_grad():
            parameter.add_(1e-3)
            up = soft()
            parameter.sub_(2e-3)
            down = soft()
            parameter.add_(1e-3)
        expected = sum(
            s / (1 + sum(share[i])) * (up[i][n] - down[i][n]) / 2e-3
            for i in range(len(drawn))
            for n, s in enumerate(share[i])
        )
        assert parameter.grad is not None and parameter.grad.item() == pytest.approx(expected, rel=0.02, abs=1e-3), name


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
