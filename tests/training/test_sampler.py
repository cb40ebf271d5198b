from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from anmi.training.batch import Row
from anmi.training.curriculum import build_curriculum
from anmi.training.options import TrainingOptions
from anmi.training.sampling import InTurn, build_sampler

GAPS = range(100, 900, 50)


def row(number: int) -> Row:
    """A row whose negatives are called by row, place and gap."""
    names = tuple(f"{number}:{place}:{gap}" for place, gap in enumerate(GAPS))
    judged = {"elo": (0.0, tuple(-float(gap) for gap in GAPS)), "cross": (1.0, (0.5,) * len(GAPS))}
    return Row(
        f"q{number}", "query", "d", "document", names, names, (1.0,) * len(GAPS), 1.0, frozenset({"d"}), judged=judged
    )


ROWS = [row(number) for number in range(3)]


def drawn(steps=4, **options) -> list[tuple[str, ...]]:
    """The negatives of the second row in each step."""
    chosen = TrainingOptions(negatives=3, **options)
    curriculum = build_curriculum(chosen.curriculum, 100, 1, chosen.negatives)
    sampler = build_sampler(ROWS, chosen, curriculum, 1)
    return [sampler(np.array([1]), step)[0].negatives for step in range(steps)]


def test_first_is_the_same_best_in_every_step():
    assert set(drawn()) == {ROWS[1].negatives[:3]}


@pytest.mark.parametrize("kind", ["learning_progress", "bandit", "tiers"])
@pytest.mark.parametrize("window", ["elo", "rank"])
def test_a_curriculum_draws_from_its_window(kind, window):
    chosen = TrainingOptions(curriculum={kind: {"window": window}})
    state = build_curriculum(chosen.curriculum, 100, 1, 3).state
    names = {name for negatives in drawn(30, curriculum={kind: {"window": window}}) for name in negatives}
    gaps = [float(name.split(":")[2]) for name in names]
    places = [float(name.split(":")[1]) / 15 for name in names]
    found = gaps if window == "elo" else places
    assert state.low <= min(found) <= max(found) <= state.high
    assert len(found) > 3


def test_judgments_that_only_the_draw_reads_are_left_behind():
    chosen = TrainingOptions(negatives=3, curriculum="tiers")
    curriculum = build_curriculum(chosen.curriculum, 100, 1, 3)
    (left,) = build_sampler(ROWS, chosen, curriculum, 1, keep=("cross",))(np.array([0]), 0)
    assert set(left.judged) == {"cross"}


def test_positives_without_a_row_have_their_turn_and_judged_ones_stay():
    known = pd.DataFrame({"query_id": "q", "document_id": [f"d{n}" for n in range(20)], "text": "of the document"})
    rows = [replace(ROWS[0], query_id="q", positive_id=f"d{n}", judged={}) for n in (3, 7, 9)]
    rows += [replace(rows[0], positive_id="promoted"), replace(rows[0], judged=ROWS[0].judged)]
    sampler = InTurn(lambda numbers, step: [rows[number] for number in numbers], rows, known, seed=1, steps=2)
    epochs = [[row.positive_id for row in sampler(np.arange(5), step)] for step in range(0, 14, 2)]
    assert all(len(set(shown[:3])) == 3 and shown[3:] == ["promoted", "d3"] for shown in epochs)
    assert {name for shown in epochs for name in shown[:3]} == set(known.document_id)
    assert [row.positive_id for row in sampler(np.arange(5), 1)] == epochs[0]
