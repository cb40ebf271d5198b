"""Seconds and memory of a whole run on a collection with forty labels a query; some minutes on two idle cores."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from common import METRIC, STORE, kedro, save_cases, table, write_beir
from interval_coverage import made

DOCUMENTS, QUERIES, LABELS, HELD_OUT = 3400, 2500, 40, 100


def write(folder: Path) -> None:
    """Write the collection as a BEIR folder; all that is relevant is labelled."""
    each = made(LABELS, documents=DOCUMENTS, queries=QUERIES + 2 * HELD_OUT, topics=60)
    corpus = pd.DataFrame(
        {"document_id": [f"d{n}" for n in range(DOCUMENTS)], "title": "", "text": each.documents}
    )
    queries = pd.DataFrame(
        {"query_id": [f"q{n}" for n in range(len(each.queries))], "text": each.queries}
    )
    query, document = np.nonzero(each.relevance)
    labels = pd.DataFrame({"query_id": queries.query_id.to_numpy()[query]})
    labels["document_id"] = corpus.document_id.to_numpy()[document]
    labels["relevance"] = each.relevance[query, document]
    labels["split"] = np.repeat(["train", "dev", "test"], [QUERIES, HELD_OUT, HELD_OUT])[query]
    write_beir(folder, corpus, queries, labels)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        write(Path(name) / "made")
        began = time.monotonic()
        params = f"recipe=anmi,encoder=static,collection=beir:{name}/made"
        kedro("run", "--params", params, data=data, store=STORE)
        seconds = time.monotonic() - began
        record = json.loads(next(data.glob("runs/*/run.json")).read_text(encoding="utf-8"))
        most = max(record["nodes"], key=lambda node: node["peak_mib"])
        metrics, rows = table(data, "metrics"), len(table(data, "training_rows"))
    own = metrics[(metrics.metric == METRIC) & (metrics.bucket == "all")]
    found = dict(zip(own.recipe, own.value.round(4), strict=True))
    told = (
        f"{DOCUMENTS} documents, {QUERIES} training queries with about {LABELS} labels: {rows}"
        f" rows; nDCG@10: {found}"
    )
    gib = round(most["peak_mib"] / 1024, 2)
    time_case = {"case": "many_positives_seconds", "value": round(seconds), "unit": "s"}
    memory_case = {"case": "many_positives_gib", "value": gib, "unit": "GiB", "note": most["node"]}
    save_cases(__file__, [time_case | {"note": told}, memory_case])


if __name__ == "__main__":
    main()
