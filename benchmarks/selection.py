"""For how many rows enough negatives are found, beside the well-known miner.

The share of (query, positive) rows of MedQuAD with all their negatives; ``mine_hard_negatives`` is
sentence-transformers', on the same encoder. Run from the repository's root: ``python benchmarks/selection.py``.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "selection.json"
DATA = Path(os.environ.get("ANMI_DATA") or ROOT.parent / "shared" / "data")
WORK = ROOT / "data" / "benchmarks" / "selection"
NEGATIVES = 7
MEDQUAD = ("nv_retriever", "clean_top")


def mined(name: str) -> dict[str, Any]:
    """Mine MedQuAD by the project's command."""
    data = WORK / f"medquad-{name}"
    environment = os.environ | {"ANMI_DATA_ROOT": str(data), "ANMI_STORE": str(WORK / "store")}
    parameters = f"collection=beir:{DATA}/medquad,recipe={name},encoder=static"
    kedro = str(Path(sys.executable).with_name("kedro"))
    command = [kedro, "run", "--pipelines", "mining", "--params", parameters]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    summary = json.loads(max((data / "05_model_input" / "selection_summary.json").glob("*/*.json")).read_text())
    total = next(entry for entry in summary["funnel"] if entry["kind"] == "total")
    return {
        "case": "coverage", "collection": "medquad", "recipe": name, "queries": total["queries"],
        "candidates": round(total["candidates"] / total["queries"]), "coverage": summary["coverage"],
        "origins": summary.get("origins"),
    }  # fmt: skip


def library() -> dict[str, Any]:
    """Mine MedQuAD with the well-known function."""
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    from anmi.corpus.sources import load_collection
    from anmi.corpus.texts import document_texts
    from anmi.retrieval.encoders import load_encoder

    read = load_collection(f"beir:{DATA}/medquad")
    train = read.queries[read.queries.split == "train"].set_index("query_id").text
    text = dict(zip(read.corpus.document_id, document_texts(read.corpus), strict=True))
    labels = read.qrels[read.qrels.query_id.isin(train.index)]
    pairs = Dataset.from_dict(
        {"query": [train[q] for q in labels.query_id], "answer": [text[d] for d in labels.document_id]}
    )
    model = load_encoder("static", WORK / "store" / "models", 256)
    found = mine_hard_negatives(
        pairs, model, corpus=list(dict.fromkeys(text.values())), num_negatives=NEGATIVES, range_max=100,
        relative_margin=0.05, output_format="n-tuple", use_faiss=False, verbose=False,
    )  # fmt: skip
    return {
        "case": "coverage", "collection": "medquad", "recipe": "mine_hard_negatives", "queries": len(pairs),
        "candidates": 100, "coverage": len(found) / len(pairs),
    }  # fmt: skip


def main() -> None:
    """Measure and write the result."""
    from anmi.pipelines.reporting.nodes import machine, versions

    WORK.mkdir(parents=True, exist_ok=True)
    rows = [*map(mined, MEDQUAD), library()]
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    saved = {"date": date, "machine": machine(), "versions": versions(), "rows": rows}
    RESULT.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
