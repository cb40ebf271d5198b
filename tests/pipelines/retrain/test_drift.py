"""The nodes of drift, on a collection that was really mined."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.pipelines.tables import corpus_of, labels_of

from anmi.candidates import Candidates, CandidateShards
from anmi.datasets.files import JsonDataset
from anmi.pipelines.retrain.nodes import measure_drift, profile_training_data, report_retraining


def profiled(word: str = "") -> dict[str, Any]:
    rng = np.random.default_rng(1)
    numbers = range(60)
    texts = [f"{word} how does function number {i} of the module work" for i in numbers]
    qrels = labels_of(*(f"q{i} d{i}" for i in numbers), split="train")
    selection = Candidates(
        query_ids=qrels.query_id.to_numpy(),
        positives=np.arange(60, dtype=np.int32)[:, None],
        documents=np.tile(np.arange(60, 70, dtype=np.int32), (60, 1)),
        source=np.ones((60, 10), np.uint8),
        columns={"bm25": rng.gamma(2, 3, (60, 10)).astype(np.float32)},
        positive_columns={"bm25": rng.gamma(4, 3, (60, 1)).astype(np.float32)},
        verdict=np.ones((60, 10), np.int16),
    )
    return profile_training_data(
        queries=pd.DataFrame({"query_id": qrels.query_id, "text": texts, "split": "train"}),
        corpus=corpus_of(texts),
        qrels=qrels,
        selection=CandidateShards.of([selection]),
        selection_summary={"recipe": "anmi", "negatives_wanted": 7},
        encoder_info={"encoder": "static", "fingerprint": "f"},
        info={"collection": "mine", "language": "en"},
    )


def test_a_profile_outlives_its_run_and_is_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = JsonDataset(filepath=str(tmp_path / "champion_profile.json"))
    dataset.save(profiled())
    champion = dataset.load()
    assert champion["counts"]["train_queries"] == 60
    assert champion["made_with"]["encoder fingerprint"] == "f"
    assert measure_drift(profiled(), champion)["verdict"] == "none"
    with caplog.at_level(logging.INFO):
        drift = measure_drift(profiled("zebra quagga okapi"), champion)
    assert drift["verdict"] == "strong"
    assert "differ strongly" in caplog.text
    saved = JsonDataset(filepath=str(tmp_path / "drift.json"))
    saved.save(drift)
    decided = {"decision": "kept", "version": 2, "model": "m", "reasons": ["a <b> of reasons"]}
    rate = {"false_negative_rate": 0.0125, "false_negative_rate_low": 0.0}
    rate |= {"false_negative_rate_high": 0.02, "threshold": np.nan, "gap": 0.2, "coverage": 1.0}
    counts = {"queries_lost": 3, "negatives": 70, "recipe": "anmi", "setting": "", "failed": ""}
    audited = pd.DataFrame([rate | counts])
    shown = report_retraining("<html><main>x</main></html>", decided, saved.load(), audited)
    assert shown.startswith("<html><main>x")
    assert shown.endswith("</main></html>")
    assert "a &lt;b&gt; of reasons" in shown
    assert "differ strongly" in shown
    assert "<td>1.25%</td>" in shown
