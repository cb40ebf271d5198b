"""A small training with every loss, and gradient caching with each."""

import json

import pandas as pd
import pytest

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


def document(i: int) -> str:
    return f"w{i % 20 + 20} w{i % 20 + 40}"


def table() -> pd.DataFrame:
    """Query w_i belongs to the document "w_{i+20} w_{i+40}"; rows have 0 to 2 negatives."""
    rows = []
    for i in range(20):
        others = range(i + 1, i + 1 + i % 3)
        rows.append(
            {
                "query_id": f"q{i}", "query": f"w{i}", "positive_id": f"d{i}", "positive": document(i),
                "negative_ids": [f"d{j % 20}" for j in others], "negatives": [document(j) for j in others],
                "weights": [1.0, 0.5][: i % 3], "query_weight": 1.0, "positive_ids": [f"d{i}"],
                "positive_elo": 1400.0, "negative_elo": [900.0, 800.0][: i % 3],
                "positive_p_relevant": 0.95, "negative_p_relevant": [0.1, 0.05][: i % 3],
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize("in_batch", ["none", "positives", "all"])
@pytest.mark.parametrize("name", LOSSES)
def test_training_moves_the_encoder_and_lowers_the_loss(word_encoder, name, in_batch):
    options = TrainingOptions(
        loss=LOSSES[name], temperature="fixed", in_batch=in_batch, epochs=6, batch_size=10, learning_rate=0.05
    )
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
