"""Which in-batch negatives are left out, and what that brings: in_batch.json.

Filters of in-batch negatives over the default, with labels, pseudo-queries and both, on collections
with many false negatives (WebNLG) and few. Measured on dev, by which a default would be chosen; one
seed, the corpus's own encoder. Cells that are there are kept. From the repository's root: ``python
benchmarks/in_batch.py``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import common
from ablation import Matrix, ablate
from common import save, table

WORK: Final = common.WORK / "in_batch"
OPTION: Final = "training.options.in_batch_filter"
FILTERS: Final = {
    "none": "none",
    "score": "score",
    "guide_start": "guide",
    "guide_bm25": "guide.by=bm25",
}
TRAININGS: Final = {
    "both": "anmi",
    "pseudo_queries": "anmi:training.options.labels=0",
    "labels": "anmi_labels_only",
}
PLACES: Final = ("api_docs", "kg_webnlg/beir_en")


def run(training: str) -> None:
    systems = []
    for name, value in FILTERS.items():
        setting = f"{OPTION}.{value}" if "=" in value else f"{OPTION}={value}"
        join = "," if ":" in TRAININGS[training] else ":"
        systems.append(f"{name}={TRAININGS[training]}{join}{setting}")
    ablate(
        Matrix(systems, list(PLACES), "1", "encoder=corpus,evaluation.split=dev"), WORK / training
    )


def rows(training: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each collection, judgments, bucket and filter, with the share that was left out."""
    file = WORK / training / "ablation.json"
    if not file.is_file():
        return
    for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
        cell = WORK / training / row["collection"].replace("/", "_") / row["system"] / "seed1"
        log = table(cell, "training_log")
        shown = (
            "collection",
            "judgments",
            "bucket",
            "queries",
            "ndcg_10",
            "low",
            "high",
            "difference",
            "p_value",
        )
        left_out = float(log.left_out.mean()) if "left_out" in log else 0.0
        yield {"training": training, "filter": row["system"], "left_out": left_out} | {
            name: row[name] for name in (*shown, "hybrid_ndcg_10")
        }


def main() -> None:
    for training in sys.argv[1:] or TRAININGS:
        run(training)
    found = [row for training in TRAININGS for row in rows(training)]
    save("in_batch", {"split": "dev", "rows": found})


if __name__ == "__main__":
    main()
