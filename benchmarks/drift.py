"""What a profile costs, and whether drift is silent on noise and finds what is there.

Needs ``medquad`` mined once, and WebNLG in the shared data::

    export ANMI_DATA_ROOT=ROOT MEDQUAD=beir:../shared/data/medquad
    kedro run --pipelines mining --params collection=$MEDQUAD,encoder=static,ingestion.max_queries=4000
    python benchmarks/drift.py ROOT ../shared/data

writes benchmarks/results/drift.json, rows ``case, value, unit, note``; about 3 minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.sources import load_collection
from anmi.evaluation.drift import drift
from anmi.evaluation.training_profile import SCORES, profile

RESULT = Path(__file__).parent / "results" / "drift.json"
SIZES, SEEDS, QUERIES = (30, 100, 300), 60, 2_500


def newest(root: Path, name: str) -> Path:
    folder = root / name
    return max(folder.iterdir()) / folder.name


def medquad(root: Path) -> list[dict[str, Any]]:
    names = ("queries", "corpus", "qrels", "related_documents")
    tables = {name: pd.read_parquet(newest(root, f"ingestion/{name}.parquet")) for name in names}
    shards = CandidateShards.read(sorted(newest(root, "selection/selection").glob("*.parquet")))
    summary = json.loads(newest(root, "selection/selection_summary.json").read_text())
    options = {"language": "en", "wanted": summary["negatives_wanted"]}
    start = time.process_time()
    related = tables.pop("related_documents")
    made = profile(**tables, selection=shards, related=related, **options)
    seconds = time.process_time() - start
    rows = [
        {"case": "profile_medquad_seconds", "value": round(seconds, 1), "unit": "s", "note": "of the processor"},
        {"case": "profile_medquad_bytes", "value": len(json.dumps(made)), "unit": "bytes", "note": "as JSON"},
        {
            "case": "profile_medquad_terms",
            "value": made["vocabulary"]["documents"]["terms"],
            "unit": "terms",
            "note": "of documents",
        },
    ]
    train = tables["queries"][tables["queries"].split == "train"]
    chosen = np.sort(np.random.default_rng(0).choice(train.query_id.to_numpy(), QUERIES, replace=False)).astype(str)
    block = Candidates.concatenate([b.take(np.isin(b.query_ids, chosen)) for b in shards.only(*SCORES, "consistent")])

    def part(ids: Any) -> dict[str, Any]:
        qrels = tables["qrels"][tables["qrels"].query_id.isin(ids)]
        corpus = tables["corpus"][tables["corpus"].document_id.isin(qrels.document_id)]
        mine = CandidateShards.of([block.take(np.isin(block.query_ids, ids))])
        return profile(train[train.query_id.isin(ids)], corpus, qrels, mine, related=related, **options)

    for size in SIZES:
        quiet = 0
        for seed in range(SEEDS):
            drawn = np.random.default_rng(seed).permutation(chosen)[: 2 * size]
            quiet += drift(part(drawn[:size]), part(drawn[size:]))["verdict"] == "none"
        note = f"of {SEEDS} pairs of disjoint random samples of {size} queries with their documents"
        rows.append({"case": f"drift_silent_{size}", "value": quiet / SEEDS, "unit": "share", "note": note})
    return rows


def webnlg(shared: Path) -> list[dict[str, Any]]:
    made = load_collection(f"beir:{shared / 'kg_webnlg' / 'beir_en'}", seed=1)
    category = dict(
        zip(made.queries.query_id, made.queries.metadata.map(lambda m: json.loads(m)["category"]), strict=True)
    )
    seen = {category[query] for query in made.queries.query_id[made.queries.split == "train"]}
    queries = made.queries.assign(split="train")

    def of(ids: Any) -> dict[str, Any]:
        qrels = made.qrels[made.qrels.query_id.isin(ids)]
        corpus = made.corpus[made.corpus.document_id.isin(qrels.document_id)]
        return profile(queries[queries.query_id.isin(ids)], corpus, qrels, CandidateShards.of([]), language="en")

    known = [query for query, name in category.items() if name in seen]
    mixed = np.random.default_rng(0).permutation(known)
    rows = []
    pairs = {
        "unseen": (known, [query for query, name in category.items() if name not in seen]),
        "halves": (mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]),
    }
    for case, (one, two) in pairs.items():
        for kind, row in drift(of(one), of(two))["new_terms"].items():
            note = f"WebNLG, {case}: usual would be {row['reference']:.4f}; verdict {row['verdict']}"
            rows.append(
                {"case": f"new_terms_{case}_{kind}", "value": round(row["current"], 4), "unit": "share", "note": note}
            )
    return rows


def main() -> None:
    """Measure and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("shared", type=Path)
    given = parser.parse_args()
    rows = medquad(given.root) + webnlg(given.shared)
    RESULT.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    for row in rows:
        print(*row.values(), sep=" · ")


if __name__ == "__main__":
    main()
