"""How far nDCG@10 of the hybrid moves when a training is repeated with another seed: ``retrain.rule.training_noise``.

Each collection is mined once, and trained and evaluated with three seeds; seeds that are there are
not trained again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from common import METRIC, WORK, kedro, save_cases

COLLECTIONS, SEEDS = ("scifact", "medquad", "xquad/es"), (1, 2, 3)
PARAMS: Final = "recipe=anmi,encoder=static,collection=beir:../shared/data/"


def measured(place: Path) -> dict[int, float]:
    """Return by seed the hybrid's nDCG@10 of the runs that are there."""
    found = {}
    for file in sorted(place.glob("runs/*/run.json")):
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if told["status"] == "finished" and "metrics" in told["saved"]:
            table = pd.read_parquet(
                place / "07_model_output/metrics.parquet" / told["run_id"] / "metrics.parquet"
            )
            here = table[
                (table.metric == METRIC) & (table.bucket == "all") & (table.recipe == "hybrid")
            ]
            found[told["runtime_parameters"]["seed"]] = float(here.value.iloc[0])
    return found


def main() -> None:
    spread = {}
    for name in COLLECTIONS:
        place = WORK / "training_noise" / name.replace("/", "_")
        if not place.exists():
            kedro("run", "--pipelines", "mining,adaptation", "--params", PARAMS + name, data=place)
        for seed in sorted(set(SEEDS) - measured(place).keys()):
            words = [
                "--pipelines",
                "training,evaluation",
                "--params",
                f"{PARAMS}{name},seed={seed}",
            ]
            kedro("run", *words, data=place)
        spread[name] = [measured(place)[seed] for seed in SEEDS]
    deviations = {name: float(np.std(values, ddof=1)) for name, values in spread.items()}
    told = (
        f"{name} {', '.join(f'{v:.4f}' for v in spread[name])} ({deviations[name]:.4f})"
        for name in spread
    )
    note = (
        f"largest standard deviation over seeds {SEEDS} of one mining, recipe anmi, static:"
        f" {'; '.join(told)}"
    )
    row = {"case": "training_noise", "value": round(max(deviations.values()), 4)}
    save_cases(__file__, [row | {"unit": "nDCG@10", "note": note}])


if __name__ == "__main__":
    main()
