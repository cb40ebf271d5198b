"""The nodes of drift, on a collection that was really mined."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from anmi.candidates import Candidates, CandidateShards
from anmi.datasets.files import JsonDataset
from anmi.pipelines.retrain.nodes import measure_drift, profile_training_data, report_retraining


def given(word: str = "") -> dict[str, Any]:
    rng = np.random.default_rng(1)
    ids = [f"q{i}" for i in range(60)]
    documents = [f"d{i}" for i in range(60)]
    texts = [f"{word} how does function number {i} of the module work" for i in range(60)]
    selection = Candidates(
        query_ids=np.array(ids),
        positives=np.arange(60, dtype=np.int32)[:, None],
        documents=np.tile(np.arange(60, 70, dtype=np.int32), (60, 1)),
        source=np.ones((60, 10), np.uint8),
        columns={"bm25": rng.gamma(2, 3, (60, 10)).astype(np.float32)},
        positive_columns={"bm25": rng.gamma(4, 3, (60, 1)).astype(np.float32)},
        verdict=np.ones((60, 10), np.int16),
    )
    return {
        "queries": pd.DataFrame({"query_id": ids, "text": texts, "split": "train"}),
        "corpus": pd.DataFrame({"document_id": documents, "title": "", "text": texts}),
        "qrels": pd.DataFrame(
            {"query_id": ids, "document_id": documents, "relevance": 1, "split": "train"}
        ),
        "selection": CandidateShards.of([selection]),
        "selection_summary": {"recipe": "anmi", "negatives_wanted": 7},
        "encoder_info": {"encoder": "static", "fingerprint": "f"},
        "info": {"collection": "mine", "language": "en"},
    }


def test_a_profile_outlives_its_run_and_is_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = JsonDataset(filepath=str(tmp_path / "champion_profile.json"))
    first = profile_training_data(**given())
    dataset.save(first)
    champion = dataset.load()
    assert champion["counts"]["train_queries"] == 60
    assert champion["made_with"]["encoder fingerprint"] == "f"
    assert measure_drift(profile_training_data(**given()), champion)["verdict"] == "none"
    with caplog.at_level(logging.INFO):
        found = measure_drift(profile_training_data(**given(word="zebra quagga okapi")), champion)
    assert found["verdict"] == "strong"
    assert "differ strongly" in caplog.text
    saved = JsonDataset(filepath=str(tmp_path / "drift.json"))
    saved.save(found)
    decided = {"decision": "kept", "version": 2, "model": "m", "reasons": ["a <b> of reasons"]}
    audited = pd.DataFrame(
        [
            {
                "recipe": "anmi",
                "setting": "",
                "threshold": np.nan,
                "failed": "",
                "gap": 0.2,
                "false_negative_rate": 0.0125,
                "false_negative_rate_low": 0.0,
                "false_negative_rate_high": 0.02,
                "coverage": 1.0,
                "queries_lost": 3,
                "negatives": 70,
            }
        ]
    )
    shown = report_retraining("<html><main>x</main></html>", decided, saved.load(), audited)
    assert shown.startswith("<html><main>x")
    assert shown.endswith("</main></html>")
    assert "a &lt;b&gt; of reasons" in shown
    assert "differ strongly" in shown
    assert "<td>1.25%</td>" in shown
