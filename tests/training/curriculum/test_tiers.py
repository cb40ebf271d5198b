import math

from anmi.training.curriculum import Tiers
from anmi.training.parts import TiersOptions


def walk(options: TiersOptions, steps: int) -> list[int]:
    """The tier in which each step is made."""
    curriculum, tiers = Tiers(options, steps, 7), []
    for step in range(steps):
        tiers.append(curriculum.state.tier)
        curriculum.observe(step + 1, 1.0, 1.0, None)
    return tiers


def test_tiers_follow_each_other_in_equal_parts():
    assert walk(TiersOptions(), 8) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_each_tier_sees_the_gaps_of_methods():
    curriculum, seen = Tiers(TiersOptions(), 4, 7), []
    for step in range(1, 5):
        seen.append((curriculum.state.low, curriculum.state.high))
        curriculum.observe(step, 1.0, 1.0, None)
    assert seen == [(600, math.inf), (400, math.inf), (200, math.inf), (100, math.inf)]


def test_by_rank_a_quarter_of_the_pool_is_added_from_its_end():
    curriculum = Tiers(TiersOptions(window="rank"), 4, 7)
    lows = [curriculum.observe(step, 1.0, 1.0, None).low for step in range(4)]
    assert lows == [0.75, 0.5, 0.25, 0.0]
