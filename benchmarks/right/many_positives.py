"""A collection with forty labels a query, from collection to report.

Run from the repository's root: ``python benchmarks/right/many_positives.py``; some minutes on two idle cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from interval_coverage import made

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS, QUERIES, LABELS, HELD_OUT = 3400, 2500, 40, 100


def write(folder: Path) -> None:
    """Write the collection as a BEIR folder; all that is relevant is labelled."""
    each = made(LABELS, documents=DOCUMENTS, queries=QUERIES + 2 * HELD_OUT, topics=60)
    (folder / "qrels").mkdir(parents=True)
    for name, prefix, texts in (("corpus", "d", each.documents), ("queries", "q", each.queries)):
        lines = [json.dumps({"_id": f"{prefix}{n}", "text": text}) for n, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    query, document = np.nonzero(each.relevance)
    table = pd.DataFrame({"query-id": [f"q{n}" for n in query], "corpus-id": [f"d{n}" for n in document]})
    table["score"] = each.relevance[query, document]
    cuts = {
        "train": (0, QUERIES),
        "dev": (QUERIES, QUERIES + HELD_OUT),
        "test": (QUERIES + HELD_OUT, len(each.queries)),
    }
    for split, (first, end) in cuts.items():
        table[(query >= first) & (query < end)].to_csv(folder / "qrels" / f"{split}.tsv", sep="\t", index=False)


def run(place: Path, *settings: str) -> dict[str, Any]:
    """Run all pipelines in a data root of its own; return nDCG@10 by system."""
    environment = os.environ | {"ANMI_DATA_ROOT": str(place / "data"), "ANMI_STORE": str(ROOT / "data" / "store")}
    kedro = str(Path(sys.executable).with_name("kedro"))
    subprocess.run([kedro, "run", "--params", ",".join(settings)], cwd=ROOT, env=environment, check=True)
    metrics = pd.read_parquet(sorted(place.glob("data/07_model_output/metrics.parquet/*/*"))[-1])
    own = metrics[(metrics.metric == "ndcg@10") & (metrics.bucket == "all")]
    return dict(zip(own.recipe, own.value.round(4), strict=True))


def many_positives() -> list[dict[str, Any]]:
    """Return seconds and memory of a whole run, and what it trained."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write(place / "made")
        began = time.monotonic()
        found = run(place, "recipe=anmi", "encoder=static", f"collection=beir:{place}/made")
        seconds = time.monotonic() - began
        record = json.loads(next(place.glob("data/runs/*/run.json")).read_text(encoding="utf-8"))
        most = max(record["nodes"], key=lambda node: node["peak_mib"])
        rows = len(pd.read_parquet(next(place.glob("data/05_model_input/training_rows.parquet/*/*"))))
    told = (
        f"{DOCUMENTS} documents, {QUERIES} training queries with about {LABELS} labels: {rows} rows; nDCG@10: {found}"
    )
    return [
        {"case": "many_positives_seconds", "value": round(seconds), "unit": "s", "note": told},
        {"case": "many_positives_gib", "value": round(most["peak_mib"] / 1024, 2), "unit": "GiB", "note": most["node"]},
    ]


if __name__ == "__main__":
    for row in many_positives():
        print(row)
