"""Trainings with a curriculum, from rows to weights."""

import pandas as pd
import pytest
import torch
from tests.mined import mined

from anmi.errors import AnmiError
from anmi.training.options import TrainingOptions
from anmi.training.trainer import TrainingResult, train

WORDS = [f"w{i}" for i in range(40)]
STATE = ["difficulty", "low", "high", "negatives", "inside"]


def rows() -> pd.DataFrame:
    """Query w_i belongs to the document w_{i+20}; the others are in its pool, 40 Elo apart."""
    elo = {"positive_elo": 1500.0, "negative_elo": [1500.0 - 40 * j for j in range(1, 20)]}
    return mined(WORDS[:20], WORDS[20:], 19, **elo)


@pytest.fixture
def fit(word_encoder):
    def run(table: pd.DataFrame | None = None, seed: int = 1, dev=lambda model: 0.5, **options) -> TrainingResult:
        chosen = {
            "epochs": 8, "batch_size": 8, "learning_rate": 0.05, "negatives": 4, "in_batch": "none", "keep_best": False,
        }  # fmt: skip
        return train(
            rows() if table is None else table, encoder=word_encoder(WORDS), output=None, seed=seed,
            options=TrainingOptions(**chosen | options), evaluate_dev=dev,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(("kind", "window"), [("tiers", "rank"), ("learning_progress", "elo"), ("bandit", "elo")])
def test_training_learns_under_each_curriculum_and_says_what_it_showed(fit, kind, window):
    result = fit(curriculum={kind: {"window": window}})
    log = result.log
    assert len(log) == 24
    assert set(STATE) <= set(log.columns)
    assert log.difficulty.between(0, 1).all()
    assert (log.inside == 1).all(), "each pool has enough in every window"
    assert log.difficulty.min() < log.difficulty.max()
    with torch.no_grad():
        queries, documents = (
            torch.from_numpy(result.model.encode([f"w{i + shift}" for i in range(20)])) for shift in (0, 20)
        )
    found = queries @ documents.T
    assert (found.diagonal()[:, None] >= found).float().mean() > 0.85


def test_the_first_gain_is_over_the_dev_metric_before_the_first_step(fit):
    def after_two_windows(start: float) -> float:
        measured = iter([start, 0.5, 0.5, 0.5])
        options = {"curriculum": {"learning_progress": {"window_steps": 3}}, "learning_rate": 1e-6}
        return fit(epochs=3, dev=lambda model: next(measured), **options).log.difficulty[6]

    assert after_two_windows(0.1) == 0.05 and after_two_windows(0.9) == 0


def test_rows_without_elo_are_refused(fit):
    unrated = rows().drop(columns=["positive_elo", "negative_elo"])
    with pytest.raises(AnmiError, match="the judgments elo, which were not mined"):
        fit(unrated, curriculum="tiers")
