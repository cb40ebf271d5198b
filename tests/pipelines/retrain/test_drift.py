"""The nodes of drift, on a collection that was really mined."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from anmi.candidates import Candidates, CandidateShards
from anmi.datasets.files import JsonDataset
from anmi.pipelines.retrain.drift import measure_drift, profile_training_data, render_drift
from anmi.pipelines.retrain.drift_params import DriftParams


def given(language: str = "en", word: str = "") -> dict[str, Any]:
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
        "qrels": pd.DataFrame({"query_id": ids, "document_id": documents, "relevance": 1, "split": "train"}),
        "related_documents": pd.DataFrame(
            {
                "document_id": ["d1", "d2"],
                "other_id": ["d0", "d3"],
                "kind": ["copy", "sibling"],
                "similarity": 1.0,
            }
        ),
        "selection": CandidateShards.of([selection]),
        "selection_summary": {"recipe": "anmi", "negatives_wanted": 7},
        "encoder_info": {"encoder": "static", "fingerprint": "f"},
        "info": {"collection": "mine", "language": language},
        "params": DriftParams(),
    }


def test_a_profile_outlives_its_run_and_is_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = JsonDataset(filepath=str(tmp_path / "champion_profile.json"))
    dataset.save(profile_training_data(**given()))
    champion = dataset.load()
    assert champion["shares"]["near_duplicates"]["share"] == 2 / 60
    assert champion["made_with"]["encoder fingerprint"] == "f"
    same = measure_drift(champion, champion, DriftParams())
    assert same["verdict"] == "none"
    now = profile_training_data(**given(word="zebra quagga okapi"))
    with caplog.at_level(logging.INFO):
        found = measure_drift(now, champion, DriftParams())
    assert found["verdict"] == "strong"
    # Every text has a number of its own, so that some new terms are usual here.
    new = found["new_terms"]["queries"]
    assert new["current"] == pytest.approx(3 * 60 / 590, abs=0.05)
    assert new["reference"] == pytest.approx(60 / 410, abs=0.05)
    assert "differ strongly" in caplog.text
    saved = JsonDataset(filepath=str(tmp_path / "drift.json"))
    saved.save(found)
    assert "differ strongly" in render_drift(saved.load(), now, champion)


@pytest.mark.parametrize("champion", [None, {}])
def test_without_a_champion_there_is_no_drift(champion: dict[str, Any] | None) -> None:
    now = profile_training_data(**given())
    found = measure_drift(now, champion, DriftParams())
    assert found == {"compared": False, "verdict": "none", "reason": "there is no champion to compare with"}
    assert "no champion" in render_drift(found, now, champion)


def test_korean_is_counted_in_words_unless_morphemes_are_asked_for() -> None:
    assert profile_training_data(**given("ko"))["tokens"] == "whitespace (ko)"
    assert profile_training_data(**given("en"))["tokens"] == "snowball (en)"


@pytest.mark.parametrize(("name", "said"), [("shift_sligth", "shift_sligth"), ("psi_slight", "set distance_slight")])
def test_a_misspelt_threshold_is_refused_and_a_former_one_names_the_new(name: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DriftParams.model_validate({"thresholds": {name: 0.2}})
