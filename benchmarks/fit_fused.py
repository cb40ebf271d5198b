"""Fit the shipped coefficients of the fused judge on all collections with planted truth.

Writes src/anmi/judging/fused_transfer.json. Run: ``python benchmarks/fit_fused.py``.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from anmi.judging.fused import VECTOR_FEATURES, FusedModel, features, fit_model
from planted import COLLECTIONS, Planted, planted

ROOT = Path(__file__).parents[1]
WORK = ROOT / "data" / "benchmarks" / "mining_quality"
RIDGE = 0.001
SUPERSET_WEIGHT = 4.0


def fitted(collections: Sequence[Planted], without: Sequence[str] = ()) -> FusedModel:
    """Fit one model on several collections, each with the same weight."""
    inputs, labels, groups, extra = [], [], [], []
    for number, each in enumerate(collections):
        row, slot = np.nonzero(each.block.filled)
        inputs.append(features(each.block)[row, slot])
        labels.append(each.truth[row, slot])
        groups.append(np.full(len(row), number))
        extra.append(each.supersets)
    value, label, group, made = (np.concatenate(parts) for parts in (inputs, labels, groups, extra))
    return fit_model(value, label, group, RIDGE, extra=made, extra_weight=SUPERSET_WEIGHT, without=without)


def main() -> None:
    """Fit a model per encoder and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for embeddings and planted collections")
    work = parser.parse_args().work
    models, counts, judged = {}, {}, {}
    for encoder in ("minilm", "static"):
        collections = planted(list(COLLECTIONS), encoder, work)
        models[encoder] = fitted(collections)
        judged[encoder] = collections
        counts[encoder] = [
            {"collection": each.name, "queries": len(each.block), "candidates": int(each.block.filled.sum()),
             "planted": int(each.truth.sum())}
            for each in collections
        ]  # fmt: skip
    models["other"] = fitted(judged["minilm"], VECTOR_FEATURES)
    without = {name: held_out(judged, name) for name in COLLECTIONS}
    raw = {
        "format": 1,
        "models": {name: _rounded(model) for name, model in models.items()},
        "without": {
            name: {encoder: _rounded(model) for encoder, model in found.items()} for name, found in without.items()
        },
        "provenance": {
            "script": "benchmarks/fit_fused.py",
            "date": datetime.date.today().isoformat(),
            "versions": {name: importlib.metadata.version(name) for name in ("anmi", "numpy", "scipy", "scikit-learn")},
            "truth": "entailing triple sets (kg_webnlg), equal summaries (api_docs), hidden further positives (the "
            "others); and supersets of known positives, made up by joining two documents",
            "collections": counts,
            "auc_on_the_same_collections": {
                name: {each.name: _auc(model, each) for each in judged["static" if name == "static" else "minilm"]}
                for name, model in models.items()
            },
        },
    }
    target = ROOT / "src" / "anmi" / "judging" / "fused_transfer.json"
    target.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    for name, model in raw["models"].items():
        print(name, {k: round(v, 2) for k, v in model["coefficients"].items()}, round(model["intercept"], 2))
    print(f"written to {target}")


def held_out(judged: dict[str, list[Planted]], name: str) -> dict[str, FusedModel]:
    """Fit the same models on all collections but one, for measuring on that one."""
    others = {encoder: [each for each in parts if each.name != name] for encoder, parts in judged.items()}
    return {encoder: fitted(parts) for encoder, parts in others.items()} | {
        "other": fitted(others["minilm"], VECTOR_FEATURES)
    }


def _auc(model: FusedModel, each: Planted) -> float:
    mask = each.block.filled
    return round(float(roc_auc_score(each.truth[mask], model(features(each.block))[mask])), 4)


def _rounded(model: FusedModel) -> dict[str, object]:
    raw = model.as_dict()
    named = {key: {k: round(v, 5) for k, v in raw[key].items()} for key in ("mean", "scale", "coefficients")}
    return raw | named | {"intercept": round(model.intercept, 5)}


if __name__ == "__main__":
    main()
