"""Trainings on negatives of mixed sources, with a schedule and the loss of entities, from rows to weights."""

import pandas as pd
import pytest
import torch
from tests.training.resuming import Killed, stop_at

from anmi.training.loop import CheckpointPlan
from anmi.training.options import TrainingOptions
from anmi.training.trainer import train

WORDS = [f"w{i}" for i in range(60)]
SOURCES = {"mixed": {"random": 0.2, "graph": 0.4, "latent": 0.4, "refresh": 2}}
TRIGGERED = {"triggered": {"advance": 0.9, "retreat": 0.95}}


@pytest.fixture
def fit(made, word_encoder):
    def run(plan=None, kill_at=0, **changes):
        rows = pd.DataFrame(
            {
                "query_id": row.query_id, "query": row.query, "positive_id": row.positive_id, "positive": row.positive,
                "negative_ids": [], "negatives": [], "weights": [], "query_weight": 1.0,
                "positive_ids": [row.positive_id],
            }
            for row in made.rows
        )  # fmt: skip
        options = {"epochs": 6, "batch_size": 4, "negatives": 3, "learning_rate": 0.05, "sources": SOURCES, **changes}
        encoder = word_encoder(WORDS)
        stop_at(encoder[0], kill_at)
        return train(
            rows, encoder=encoder, options=TrainingOptions(**options), output=None, seed=1,
            checkpoints=plan, stock=made.stock,
        )  # fmt: skip

    return run


def test_triggered_goes_by_the_violations_of_the_log(fit):
    made = fit(curriculum=TRIGGERED)
    log, changes = made.log, made.summary["transitions"]
    assert (log.margin_violations < 0.9).all()
    assert log.stage.tolist() == [1] * 3 + [2] * 3 + [3] * 12 and "low" not in log
    assert (log.share_random[:3] == 1).all() and (log.share_graph[3:] > 0).any()
    assert (log.share_latent[:6] == 0).all() and (log.share_latent[6:] > 0).any()
    assert [(change["step"], change["origin"], change["target"]) for change in changes] == [(3, 1, 2), (6, 2, 3)]
    assert all("are below 0.9" in change["why"] for change in changes)


def test_the_head_learns_which_entity_a_query_is_about(fit):
    accuracy = fit(loss={"entity": {"share": 0.5}}, epochs=60).log.entity_accuracy
    assert accuracy.head(3).mean() < 0.4
    assert accuracy.tail(3).mean() > 0.8


def test_all_sources_are_used_and_a_killed_training_goes_on_as_if_undisturbed(fit, tmp_path):
    shares = {"random": 0.1, "graph": 0.3, "latent": 0.4, "edit": 0.2, "refresh": 2, "boost": 0.5}
    options = {"sources": {"mixed": shares}, "temperature": "learnable", "checkpoint_minutes": 1e-9}
    expected = fit(**options)
    shares = expected.log[[f"share_{name}" for name in ("random", "graph", "latent", "edit")]]
    assert (shares.sum(axis=1) - 1).abs().max() < 1e-9 and (shares.tail(10).mean() > 0).all()
    assert expected.log.loss.tail(3).mean() < expected.log.loss.head(3).mean()
    assert len(expected.neighbours) and expected.neighbours.step.is_monotonic_increasing
    assert expected.drawn.groupby("query_id")["count"].sum().eq(6 * 3).all(), "three in each of six epochs"
    with pytest.raises(Killed):
        fit(CheckpointPlan(tmp_path), kill_at=10, **options)
    resumed = fit(CheckpointPlan(tmp_path), **options)
    assert resumed.summary["resumed_from_step"] == 9
    for table in ("neighbours", "log", "drawn"):
        pd.testing.assert_frame_equal(getattr(resumed, table), getattr(expected, table), check_exact=True)
    assert torch.equal(resumed.model[0].embedding.weight, expected.model[0].embedding.weight)
