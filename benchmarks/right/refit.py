"""What training again on train and dev brings on SciFact's test queries, and what it costs.

For each of three seeds SciFact is mined and trained as ``kedro run`` does with the recipe ``anmi`` and the encoder
``static``, once with ``training.refit`` and once without it on the very same rows. A seed cuts its own dev split from
train. Nothing is chosen by these figures. Run from the repository's root, about twenty minutes on two idle cores:

    python benchmarks/right/refit.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

ROOT: Final = Path(__file__).parents[2]
DATA: Final = Path(os.environ.get("ANMI_DATA", ROOT.parent / "shared" / "data"))
WORK: Final = ROOT / "data" / "benchmarks" / "refit"
SEEDS: Final = (1, 2, 3)
RECIPE: Final = "anmi"
METRIC: Final = "ndcg@10"


def refit_gain(work: Path = WORK) -> list[dict[str, Any]]:
    """Return rows ``case, value, unit, note``: gains over all queries and those of unseen documents, and the cost."""
    found = {seed: _trained(seed, work / f"seed{seed}") for seed in SEEDS}
    scores = {kind: pd.concat({seed: found[seed][kind][0] for seed in SEEDS}, axis=1) for kind in ("once", "twice")}
    unseen = _unseen(work / f"seed{SEEDS[0]}")
    rows = [
        _gain("refit_gain_scifact", scores, scores["once"].index),
        _gain("refit_gain_scifact, unseen documents", scores, scores["once"].index[scores["once"].index.isin(unseen)]),
    ]
    for case, read in (("rows", lambda summary: summary["rows"]), ("steps of both passes", _steps)):
        once, twice = ([read(found[seed][kind][1]) for seed in SEEDS] for kind in ("once", "twice"))
        note = f"with refit, mean of three seeds; without it {np.mean(once):.1f}"
        rows.append(
            {"case": f"refit_gain_scifact, {case}", "value": round(float(np.mean(twice)), 1), "unit": "", "note": note}
        )
    return rows


def _gain(case: str, scores: dict[str, pd.DataFrame], queries: pd.Index) -> dict[str, Any]:
    from anmi.evaluation.significance import interval

    once, twice = (scores[kind].loc[queries] for kind in ("once", "twice"))
    mean, low, high = interval((twice - once).mean(axis=1).to_numpy(), seed=1)
    seeds = ", ".join(f"seed {seed} {once[seed].mean():.4f} to {twice[seed].mean():.4f}" for seed in SEEDS)
    return {
        "case": case,
        "value": round(float(mean), 4),
        "unit": "nDCG@10",
        "note": f"{len(queries)} test queries, {RECIPE}, static; {seeds}; 95 % interval of the difference, paired over "
        f"queries, {low:+.4f} to {high:+.4f}",
    }


def _trained(seed: int, place: Path) -> dict[str, tuple[pd.Series, dict[str, Any]]]:
    """Return the metric of every test query and the summary of a training in two passes, and of one in one."""
    parameters = f"collection=beir:{DATA}/scifact,recipe={RECIPE},encoder=static,seed={seed}"
    found = {}
    for kind, arguments in (
        ("twice", ["--params", parameters]),
        ("once", ["--pipelines", "training,evaluation", "--params", f"{parameters},training.refit=false"]),
    ):
        environment = os.environ | {"ANMI_DATA_ROOT": str(place.resolve())}
        kedro = Path(sys.executable).with_name("kedro")
        subprocess.run([str(kedro), "run", *arguments], cwd=ROOT, env=environment, check=True)
        scores = pd.read_parquet(_newest(place, "07_model_output/query_metrics.parquet"))
        summary = json.loads(_newest(place, "06_models/training_summary.json").read_text(encoding="utf-8"))
        found[kind] = (scores[scores.system == RECIPE].set_index("query_id")[METRIC].sort_index(), summary)
    return found


def _unseen(place: Path) -> set[str]:
    """Return the test queries none of whose documents is labelled for a training or dev query; the same of any seed."""
    qrels = pd.read_parquet(_newest(place, "02_intermediate/qrels.parquet"))
    seen = set(qrels.document_id[qrels.split != "test"])
    test = qrels[qrels.split == "test"]
    return set(test.query_id) - set(test.query_id[test.document_id.isin(seen)])


def _steps(summary: dict[str, Any]) -> int:
    return int(summary["steps"] + summary.get("first_pass", {}).get("steps", 0))


def _newest(place: Path, artifact: str) -> Path:
    return max(path for path in (place / artifact).glob("*/*") if path.is_file())


if __name__ == "__main__":
    for row in refit_gain():
        print(f"{row['case']:<45} {row['value']} {row['unit']}  {row['note']}", flush=True)
