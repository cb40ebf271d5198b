"""A small training with every loss, and gradient caching with each."""

import json

import pandas as pd
import pytest
from tests.mined import mined

from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(60)]
LOSSES = {
    "infonce": "infonce", "hybrid": "hybrid", "debiased": {"debiased": {"tau_plus": 0.01}},
    "debiased_learned": {"debiased": {"tau_plus": 0.01, "learned": True}},
    "hard_debiased": {"hard_debiased": {"tau_plus": 0.01, "beta": 0.2}}, "triplet": "triplet",
    "distillation": {"distillation": {"label_temperature": 0.3}},
}  # fmt: skip
LOGGED = {
    "hybrid": "elo_error", "debiased_learned": "tau_plus", "triplet": "margin_violation_rate",
    "distillation": "divergence",
}  # fmt: skip


def table() -> pd.DataFrame:
    """Query w_i belongs to the document "w_{i+20} w_{i+40}"; rows have 0 to 2 negatives."""
    judged = {"positive_elo": 1400.0, "negative_elo": [900.0, 800.0], "positive_p_relevant": 0.95}
    rows = mined(WORDS[:20], [f"w{i + 20} w{i + 40}" for i in range(20)], 2, negative_p_relevant=[0.1, 0.05], **judged)
    rows["weights"] = [[1.0, 0.5]] * 20
    for name in ("negative_ids", "negatives", "weights", "negative_elo", "negative_p_relevant"):
        rows[name] = [values[: i % 3] for i, values in enumerate(rows[name])]
    return rows


@pytest.mark.parametrize("name", LOSSES)
def test_training_moves_the_encoder_and_lowers_the_loss(word_encoder, name):
    options = TrainingOptions(loss=LOSSES[name], temperature="fixed", epochs=6, batch_size=10, learning_rate=0.05)
    result = train(table(), encoder=word_encoder(WORDS), options=options, output=None, seed=1)
    losses = result.log["loss"]
    assert losses.iloc[-2:].mean() < 0.9 * losses.iloc[:2].mean()
    assert result.summary["relative_weight_change"] > 0.01
    assert result.log.notna()[[LOGGED[name]] if name in LOGGED else []].all().all()
    json.dumps(result.summary, allow_nan=False)


@pytest.mark.parametrize("name", ["hybrid", "debiased_learned"])
def test_what_a_loss_learns_is_learned_at_its_own_rate_and_the_same_with_the_same_seed(word_encoder, name, monkeypatch):
    found, options = [], TrainingOptions(loss=LOSSES[name], epochs=2, batch_size=10)
    for rate in (1e-2, 1e-2, 1e-9):
        monkeypatch.setattr(type(options.loss), "learning_rate", rate)
        model = word_encoder(WORDS)
        found.append(train(table(), encoder=model, options=options, output=None, seed=1).log)
    pd.testing.assert_frame_equal(found[0], found[1])
    column = LOGGED[name]
    assert (found[0][column] - found[2][column]).abs().max() > 1e-4
