import numpy as np
import pytest

from anmi.training.curriculum import Bandit
from anmi.training.parts import BanditOptions


def posteriors(bandit: Bandit) -> list[tuple[float, float]]:
    state = bandit.state_dict()
    return list(zip(state["alpha"], state["beta"], strict=True))


def simulate(best: int, seed: int, arms: int = 4, periods: int = 200) -> Bandit:
    """A model whose loss falls by a tenth in the steps of one arm and stays as it is in those of the others."""
    bandit = Bandit(BanditOptions(arms=arms, window_steps=4), 4 * periods, 7, seed)
    random, step = np.random.default_rng(seed), 0
    for _ in range(periods):
        arm = round(bandit.state.difficulty * (arms - 1))
        for late in (0, 0, 1, 1):
            step += 1
            bandit.observe(step, 1.0 - 0.1 * late * (arm == best) + random.normal(0, 0.02), 1.0, None)
    return bandit


@pytest.mark.parametrize(("best", "seed"), [(0, 1), (3, 2), (1, 3)])
def test_the_arm_that_learns_is_found(best, seed):
    alpha, beta = np.array(posteriors(simulate(best, seed))).T
    pulls, means = alpha + beta, alpha / (alpha + beta)
    assert int(np.argmax(means)) == best
    assert pulls[best] > 0.7 * sum(pulls)


def test_every_period_adds_one_to_the_posteriors():
    assert sum(alpha + beta - 2 for alpha, beta in posteriors(simulate(1, 1, periods=50))) == pytest.approx(50)


def test_a_validation_credits_the_arms_by_their_steps():
    bandit = Bandit(BanditOptions(arms=2, window_steps=1000), 1000, 7, 1)
    held = round(bandit.state.difficulty)
    bandit.observe(1, 1.0, 1.0, None)
    bandit.observe(2, 1.0, 1.0, 0.5)  # the first has nothing to be compared with
    assert posteriors(bandit) == [(1, 1), (1, 1)]
    bandit.observe(3, 1.0, 1.0, 0.6)
    assert posteriors(bandit)[held] == (2, 1)
    bandit.observe(4, 1.0, 1.0, 0.55)
    assert posteriors(bandit)[held] == (2, 2)
    bandit.observe(5, 1.0, 1.0, 0.55)
    assert posteriors(bandit)[held] == (2.5, 2.5)
    assert posteriors(bandit)[1 - held] == (1, 1)


def test_draws_depend_on_the_seed_and_on_nothing_else():
    def walk(seed: int) -> list[float]:
        np.random.default_rng().random()
        bandit = Bandit(BanditOptions(window_steps=2), 100, 7, seed)
        return [bandit.observe(step, 1.0 / step, 1.0, None).difficulty for step in range(1, 60)]

    assert walk(1) == walk(1)
    assert walk(1) != walk(2)
    assert set(walk(1)) <= {0.0, 0.25, 0.5, 0.75, 1.0}
