"""Which gaps are shown at a difficulty or tier."""

from __future__ import annotations

import math
from typing import Final

from anmi.selection.steps.elo_zones import BORDERS, EloWindow
from anmi.training.curriculum.protocol import State
from anmi.training.options.curricula import SlidingOptions, WindowOptions

TIERS: Final = 4


def sliding_state(options: SlidingOptions, difficulty: float, base: int | None) -> State:
    """Return the state at a difficulty.

    In Elo the window goes from 100 + 300(1 − d) to 400 + 200(1 − d) (methods §3.6). By rank it is half of the pool,
    from the half of the last places at d = 0 to that of the first at d = 1.

    ``base`` is how many negatives a row brings at difficulty 0; None leaves their number open.

    Examples
    --------
    >>> state = sliding_state(SlidingOptions(), 0.5, 7)
    >>> state.low, state.high, state.negatives
    (250.0, 500.0, 9)
    """
    if options.window == "elo":
        low, high = EloWindow(difficulty=difficulty).window
    else:
        low, high = 0.5 * (1 - difficulty), 0.5 + 0.5 * (1 - difficulty)
    # Not round(), which takes halves to the even number.
    negatives = None if base is None else math.floor(base * (1 + options.growth * difficulty) + 0.5)
    return State(difficulty, low, high, negatives)


def tier_state(options: WindowOptions, tier: int, base: int | None) -> State:
    """Return the state in a tier, from 1 to 4.

    In Elo tier 1 sees gaps from 600 on, 2 from 400, 3 from 200 and 4 from 100 (methods §2). By rank tier 1 sees the
    last quarter of the pool, and every further one a quarter more.

    Examples
    --------
    >>> state = tier_state(WindowOptions(), 2, 7)
    >>> state.low, state.high, state.tier
    (400.0, inf, 2)
    """
    by_elo = options.window == "elo"
    low = BORDERS[TIERS - tier] if by_elo else 1 - tier / TIERS
    return State((tier - 1) / (TIERS - 1), low, math.inf if by_elo else 1.0, base, tier)
