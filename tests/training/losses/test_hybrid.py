import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.mined import row as any_row

from anmi.errors import AnmiError
from anmi.training.losses.common import Facts
from anmi.training.losses.contrastive import WeightedInfoNCE
from anmi.training.losses.judged import Hybrid
from anmi.training.losses.temperature import Temperature
from anmi.training.parts import HybridOptions


def row(own, others):
    return any_row("q", "d", [f"n{i}" for i in range(len(others))], judged={"elo": (own, others)})


def slow_head(loss, similarity):
    first, _, last = loss.head
    hidden = [
        max(0.0, similarity * w + b) for w, b in zip(first.weight[:, 0].tolist(), first.bias.tolist(), strict=True)
    ]
    return sum(h * w for h, w in zip(hidden, last.weight[0].tolist(), strict=True)) + last.bias.item()


elos = st.one_of(st.floats(400, 2000), st.just(math.nan))


@given(
    positive=st.tuples(st.floats(-1, 1), elos),
    others=st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0.0, 0.5, 1.0]), elos), max_size=6),
    alpha=st.floats(0, 1), seed=st.integers(0, 20), raw=st.booleans(),
)  # fmt: skip
def test_it_is_the_formula(positive, others, alpha, seed, raw):
    torch.manual_seed(seed)
    loss = Hybrid(Temperature(0.1), HybridOptions(alpha=alpha, targets="raw" if raw else "standardised")).double()
    loss.prepare([row(1500.0, (900.0, 1100.0)), row(1300.0, (math.nan, 700.0))])
    block = (
        torch.tensor([positive[0]], dtype=torch.float64),
        torch.tensor([[s for s, _, _ in others]], dtype=torch.float64),
        torch.tensor([[w for _, w, _ in others]], dtype=torch.float64).log(),
    )
    facts = Facts(
        positive_judged={"elo": torch.tensor([positive[1]], dtype=torch.float64)},
        judged={"elo": torch.tensor([[elo for _, _, elo in others]], dtype=torch.float64)},
    )
    rated = [positive] + [(s, elo) for s, w, elo in others if w > 0]
    centre, unit = (0, 1) if raw else (1100, math.sqrt(80000))
    errors = [(slow_head(loss, s) - (elo - centre) / unit) ** 2 for s, elo in rated if not math.isnan(elo)]
    infonce = WeightedInfoNCE(loss.temperature)(*block).item()
    expected = alpha * infonce + (1 - alpha) * (sum(errors) / len(errors) if errors else 0.0)
    assert loss(*block, facts).item() == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_the_scale_is_that_of_the_training_set_and_of_elo_itself_before():
    loss = Hybrid(Temperature(0.1), HybridOptions())
    assert (loss.centre.item(), loss.unit.item()) == (1000.0, 200.0)
    loss.prepare([row(1200.0, (800.0, math.nan)), row(math.nan, ())])
    assert (loss.centre.item(), loss.unit.item()) == (1000.0, 200.0)
    loss.prepare([row(1500.0, (1300.0,))])
    assert (loss.centre.item(), loss.unit.item()) == (1400.0, 100.0)
    with pytest.raises(AnmiError, match="no negative of the training rows has one"):
        loss.prepare([row(math.nan, (math.nan,))])
