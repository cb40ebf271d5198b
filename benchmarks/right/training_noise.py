"""How far nDCG@10 of the hybrid moves when a training is repeated with another seed: ``retrain.rule.training_noise``.

Each collection is mined once, and trained and evaluated with three seeds by ``kedro run``, in a folder of its own under
``$ANMI_DATA_ROOT``; seeds that are there are not trained again. Run from the repository's root.
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
WORK: Final = Path(os.environ.get("ANMI_DATA_ROOT", ROOT / "data" / "benchmarks")) / "training_noise"
COLLECTIONS, SEEDS = ("scifact", "medquad", "xquad/es"), (1, 2, 3)


def run(place: Path, pipelines: str, params: str) -> None:
    """Start Kedro on a data root."""
    command = [str(Path(sys.executable).with_name("kedro")), "run", "--pipelines", pipelines, "--params", params]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"ANMI_DATA_ROOT": str(place)}, check=True)


def measured(place: Path) -> dict[int, float]:
    """Return by seed the hybrid's nDCG@10 of the runs that are there."""
    found = {}
    for file in sorted(place.glob("runs/*/run.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        if told["status"] == "finished" and "metrics" in told["saved"]:
            table = pd.read_parquet(place / "07_model_output/metrics.parquet" / told["run_id"] / "metrics.parquet")
            here = table[(table.metric == "ndcg@10") & (table.bucket == "all") & (table.recipe == "hybrid")]
            found[told["runtime_parameters"]["seed"]] = float(here.value.iloc[0])
    return found


def training_noise() -> list[dict[str, Any]]:
    """Return the row: the largest standard deviation between seeds of the collections."""
    spread = {}
    for name in COLLECTIONS:
        place = WORK / name.replace("/", "_")
        params = f"recipe=anmi,encoder=static,collection=beir:../shared/data/{name}"
        if not place.exists():
            run(place, "mining,adaptation", params)
        for seed in sorted(set(SEEDS) - measured(place).keys()):
            run(place, "training,evaluation", f"{params},seed={seed}")
        spread[name] = [measured(place)[seed] for seed in SEEDS]
    deviations = {name: float(np.std(values, ddof=1)) for name, values in spread.items()}
    told = (f"{name} {', '.join(f'{v:.4f}' for v in spread[name])} ({deviations[name]:.4f})" for name in spread)
    note = f"largest standard deviation over seeds {SEEDS} of one mining, recipe anmi, static: {'; '.join(told)}"
    return [{"case": "training_noise", "value": round(max(deviations.values()), 4), "unit": "nDCG@10", "note": note}]


if __name__ == "__main__":
    print(*training_noise(), sep="\n")
