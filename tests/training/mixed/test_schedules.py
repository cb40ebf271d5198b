"""Trainings with a schedule and the loss of entities, from rows to weights."""

import pandas as pd
import pytest

from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(60)]
SOURCES = {"mixed": {"random": 0.2, "graph": 0.4, "latent": 0.4, "refresh": 2}}
TRIGGERED = {"triggered": {"advance": 0.9, "retreat": 0.95}}
SHARES = ["share_random", "share_graph", "share_latent"]


@pytest.fixture
def fit(made, word_encoder):
    def run(plan=None, evaluate_dev=None, **changes):
        rows = pd.DataFrame(
            {
                "query_id": row.query_id, "query": row.query, "positive_id": row.positive_id, "positive": row.positive,
                "negative_ids": [], "negatives": [], "weights": [], "query_weight": 1.0,
                "positive_ids": [row.positive_id],
            }
            for row in made.rows
        )  # fmt: skip
        options = {"epochs": 6, "batch_size": 4, "negatives": 3, "learning_rate": 0.05, "sources": SOURCES, **changes}
        return train(
            rows, encoder=word_encoder(WORDS), options=TrainingOptions(**options), output=None, seed=1,
            checkpoints=plan, stock=made.stock, evaluate_dev=evaluate_dev,
        )  # fmt: skip

    return run


def test_step_brings_one_source_after_the_other(fit):
    log = fit(curriculum={"step": {"warm_up": 2, "latent_from": 4}}).log
    assert log.stage.tolist() == [1] * 6 + [2] * 6 + [3] * 6
    assert (log.share_random[:6] == 1).all()
    assert (log.share_latent[:12] == 0).all()
    shares = log[SHARES].groupby(log.stage).mean()
    assert shares.share_graph[2] > 0.4
    assert shares.share_latent[3] > 0.1
    assert "low" not in log


def test_triggered_goes_by_the_violations_of_the_log(fit):
    made = fit(curriculum=TRIGGERED)
    log, changes = made.log, made.summary["transitions"]
    assert (log.margin_violations < 0.9).all()
    assert log.stage.tolist() == [1] * 3 + [2] * 3 + [3] * 12
    assert [(change["step"], change["origin"], change["target"]) for change in changes] == [(3, 1, 2), (6, 2, 3)]
    assert all("are below 0.9" in change["why"] for change in changes)


def test_the_head_learns_which_entity_a_query_is_about(fit):
    accuracy = fit(loss={"entity": {"share": 0.5}}, epochs=60).log.entity_accuracy
    assert accuracy.head(3).mean() < 0.4
    assert accuracy.tail(3).mean() > 0.8
