import numpy as np
import pytest
import torch
from torch.nn import functional

from anmi.training.losses.common import Facts
from anmi.training.losses.temperature import Adaptive, Temperature, build_temperature
from anmi.training.parts import AdaptiveTemperature


@pytest.mark.parametrize(("direction", "bound"), [(1.0, 0.01), (-1.0, 1.0)])
def test_learned_temperature_stops_at_its_bounds_and_comes_back(direction, bound):
    temperature = Temperature(0.07, learnable=True)
    optimizer = torch.optim.SGD(temperature.parameters(), lr=10.0)
    for _ in range(5):
        optimizer.zero_grad()
        (direction * temperature()[0].log()).backward()
        optimizer.step()
        # The log is written after the step, and must not show what the next step will not use.
        assert 0.0099 < temperature.report()["temperature"] < 1.0001
    assert temperature()[0].item() == pytest.approx(bound, rel=1e-5)
    optimizer.zero_grad()
    (-direction * temperature()[0].log()).backward()
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    assert abs(temperature()[0].item() - bound) > 0.005


QUERIES = functional.normalize(torch.randn(5, 8, generator=torch.Generator().manual_seed(1)))


def test_adaptive_is_learned_for_each_query_and_does_not_move_it():
    queries = QUERIES.clone().requires_grad_()
    torch.manual_seed(0)
    temperature = Adaptive(8, AdaptiveTemperature())
    optimizer = torch.optim.Adam(temperature.parameters(), lr=0.01)
    wanted = torch.tensor([0.02, 0.12, 0.05, 0.1, 0.03])[:, None]
    for _ in range(300):
        optimizer.zero_grad()
        ((temperature(Facts(query=queries))[0] / wanted).log() ** 2).sum().backward()
        optimizer.step()
    torch.testing.assert_close(temperature(Facts(query=queries))[0], wanted, atol=0.01, rtol=0)
    assert queries.grad is None
    assert temperature.report()["temperature"] == pytest.approx(wanted.mean().item(), abs=0.01)


@pytest.mark.parametrize(("base", "bias", "bound"), [(0.07, -9.0, 0.01), (0.5, 9.0, 0.5)])
def test_adaptive_is_clamped_and_comes_back(base, bias, bound):
    temperature = Adaptive(8, AdaptiveTemperature(base=base))
    last = temperature.network[-1]
    torch.nn.init.constant_(last.bias, bias)
    t = temperature(Facts(query=QUERIES))[0]
    torch.testing.assert_close(t, torch.full((5, 1), bound))
    outwards = 1.0 if bias < 0 else -1.0
    for direction, moves in ((outwards, False), (-outwards, True)):
        temperature.zero_grad()
        (direction * temperature(Facts(query=QUERIES))[0]).sum().backward()
        assert bool(last.bias.grad.abs() > 0) == moves


def test_adaptive_may_see_the_positive_and_learn_its_base():
    options = AdaptiveTemperature(hidden=64, sees="query_and_positive", learned_base=True)
    temperature = build_temperature(options, 8)
    shapes = [tuple(p.shape) for p in temperature.network.parameters()]
    assert shapes == [(64, 16), (64,), (1, 64), (1,)]
    torch.nn.init.normal_(temperature.network[-1].weight, std=0.5)
    column = torch.tensor([2, 0, 1, 1, 2])
    documents = QUERIES[:3].flip(1).clone().requires_grad_()
    facts = Facts(query=QUERIES, document=documents, positive_column=column)
    t = temperature(facts)[0]
    weights = [p.detach().double().numpy() for p in temperature.network.parameters()]
    for row in range(5):
        seen = np.concatenate([QUERIES[row].numpy(), documents[column[row]].detach().numpy()])
        offset = weights[2] @ np.maximum(weights[0] @ seen + weights[1], 0) + weights[3]
        assert t[row].item() == pytest.approx(0.07 * 2 / (1 + np.exp(-offset[0])), rel=1e-4)
    t.sum().backward()
    # d/d(log base) of the sum is the sum itself.
    assert temperature.log_base.grad.item() == pytest.approx(t.sum().item(), rel=1e-4)
    assert documents.grad is None
    assert temperature.report()["temperature_base"] == pytest.approx(0.07)
