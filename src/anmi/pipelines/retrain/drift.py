"""Nodes of the comparison with the champion's training data."""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd

from anmi.candidates import CandidateShards
from anmi.pipelines.retrain.drift_params import DriftParams

_LOG = logging.getLogger(__name__)


def profile_training_data(
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    related_documents: pd.DataFrame,
    selection: CandidateShards,
    selection_summary: dict[str, Any],
    encoder_info: dict[str, Any],
    info: dict[str, Any],
    params: DriftParams,
) -> dict[str, Any]:
    """Write down what a later version of the collection will be compared with."""
    from anmi.corpus.mined import of_train
    from anmi.evaluation.training_profile import profile
    from anmi.retrieval.tokenize import resolve

    language = info["language"]
    kind = params.tokenizer
    if kind == "auto" and resolve(kind, language) == "kiwi":
        kind = "whitespace"
    return profile(
        queries,
        corpus,
        qrels,
        # Like its other figures those of the selection are about training queries.
        of_train(selection, queries),
        language=language,
        kind=kind,
        wanted=selection_summary["negatives_wanted"],
        related=related_documents,
        made_with={
            "collection": info["collection"],
            "recipe": selection_summary["recipe"],
            "encoder": encoder_info["encoder"],
            "encoder fingerprint": encoder_info["fingerprint"],
            # Only where there is one, so that a profile from before prompts were noted does not seem to differ.
            **{f"{role} prompt": text for role, text in (encoder_info.get("prompts") or {}).items() if text},
        },
        hard=params.hardness,
        most_terms=params.terms,
        most_texts=params.texts,
    )


def measure_drift(
    training_profile: dict[str, Any], champion_profile: dict[str, Any] | None, params: DriftParams
) -> dict[str, Any]:
    """Compare with what the champion was trained on; without a champion the result says so."""
    from anmi.evaluation.drift import drift
    from anmi.report.drift import summary

    found = drift(champion_profile, training_profile, params.thresholds)
    for line in summary(found):
        _LOG.info("%s", line)
    return found


def render_drift(
    drift: dict[str, Any], training_profile: dict[str, Any], champion_profile: dict[str, Any] | None
) -> str:
    """Return the drift as one self-contained HTML document."""
    from anmi.report.drift import render

    return render(drift, training_profile, champion_profile)
