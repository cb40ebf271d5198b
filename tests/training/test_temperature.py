import pytest
import torch

from anmi.training.temperature import Temperature


def test_fixed_temperature_has_nothing_to_learn():
    temperature = Temperature(0.07)
    assert list(temperature.parameters()) == []
    assert temperature()[0].item() == pytest.approx(0.07)


@pytest.mark.parametrize(("direction", "bound"), [(1.0, 0.01), (-1.0, 1.0)])
def test_learned_temperature_stops_at_its_bounds_and_comes_back(direction, bound):
    temperature = Temperature(0.07, learnable=True)
    optimizer = torch.optim.SGD(temperature.parameters(), lr=10.0)
    for _ in range(5):
        optimizer.zero_grad()
        (direction * temperature()[0].log()).backward()
        optimizer.step()
    assert temperature()[0].item() == pytest.approx(bound, rel=1e-5)
    optimizer.zero_grad()
    (-direction * temperature()[0].log()).backward()
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    assert abs(temperature()[0].item() - bound) > 0.005


@pytest.mark.parametrize("initial", [0.0, 0.001, 2.0])
def test_initial_outside_the_bounds_is_refused(initial):
    with pytest.raises(ValueError, match="temperature"):
        Temperature(initial)
