"""What a corpus teaches without labels, and what a hybrid adds: the matrices ``adaptation`` and ``adaptation_more``.

Every cell trains as a run does, and is measured alone and together with BM25, on three kinds of test
queries: ``seen`` (a relevant document was a positive in training), ``unseen`` (none was), ``added`` (the relevant ones
were also held out of adaptation). Settings were chosen on dev (`benchmarks/fusion.py`). Cells that are
there are kept, so the script may be interrupted. Run from the repository's root (``--collect`` runs no cell, and takes
what the last runs of the sets left):

    python benchmarks/adaptation.py
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ablation import newest, run
from anmi.evaluation.significance import compare, interval

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "adaptation.json"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results.md"
# Between these lines of both.
MARKS = ("<!-- made by benchmarks/adaptation.py -->\n", "<!-- end -->")
# Rows of that table: system, share of the labels, and how they are called.
SHOWN = (
    ("bm25", 0.0, "BM25"), ("zero_shot", 0.0, "zero-shot"), ("mine_hard_negatives", 1.0, "`mine_hard_negatives`, MNRL"),
    ("anmi", 0.0, "`anmi_pseudo_only`, no labels"),
    ("hybrid", 0.0, "the same with BM25"), ("anmi_labels_only", 1.0, "`anmi_labels_only`"),
    ("anmi_labels_only_hybrid", 1.0, "the same with BM25"), ("anmi", 1.0, "`anmi`"),
    ("hybrid", 1.0, "**the same with BM25 (default)**"),
)  # fmt: skip
# Of these the README has those that people choose between, on queries for documents that training never saw.
BRIEF = (
    ("bm25", 0.0),
    ("zero_shot", 0.0),
    ("mine_hard_negatives", 1.0),
    ("hybrid", 0.0),
    ("anmi", 1.0),
    ("hybrid", 1.0),
)
SETS = ("adaptation", "adaptation_more")
BUCKETS = ("all", "seen", "unseen", "added")
METRIC = "ndcg@10"
RESAMPLES = 10_000
# By recipe: the name of its encoder in the rows, and the share of the labels that it is trained on.
SYSTEMS = {
    "anmi": ("anmi", 1.0), "labels_10": ("anmi", 0.1), "labels_1": ("anmi", 0.01), "anmi_pseudo_only": ("anmi", 0.0),
    "anmi_labels_only": ("anmi_labels_only", 1.0), "in_batch": ("in_batch", 1.0),
}  # fmt: skip
KEPT = ("date", "machine", "versions", "from")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "benchmarks" / "ablation")
    parser.add_argument("--collect", action="store_true", help="only write the result, from cells that are there")
    arguments = parser.parse_args()
    rows, tests, about = [], [], {}
    committed = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {"about": {}}
    for name in SETS:
        if not arguments.collect:
            run(name, arguments.work)
        found = newest(name, arguments.work)
        if found is None:
            # What was measured before stays; `about` says when.
            print(f"the set {name} has no new result")
            if of := committed["about"].get(name):
                about[name] = of
                rows += [row for row in committed["rows"] if row["collection"] in of["from"]]
                tests += [row for row in committed["tests"] if row["collection"] in of["from"]]
            continue
        results, queries = found
        about[name] = {key: results[key] for key in KEPT} | {"failed": results["failed"]}
        for (collection, judgments), table in queries.groupby(["collection", "judgments"], sort=False):
            values = per_query(table)
            key = {"collection": collection, "encoder": results["encoder"], "judgments": judgments}
            rows += [key | row for row in rows_of(values, table)]
            tests += [key | row for row in tests_of(values)]
    rows += beside(arguments.work)
    document = {"about": about, "rows": rows, "tests": tests}
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for page, made in ((README, brief_table(document)), (PAGE, whole_table(document))):
        before, rest = page.read_text(encoding="utf-8").split(MARKS[0])
        page.write_text(before + MARKS[0] + made + MARKS[1] + rest.split(MARKS[1], 1)[1], encoding="utf-8")


def beside(work: Path) -> list[dict[str, Any]]:
    """Return the rows of what `benchmarks/adaptation_peers.py` has trained and measured."""
    found = [pd.read_parquet(path) for path in sorted((work / "peers").glob("*/queries.parquet"))]
    rows: list[dict[str, Any]] = []
    keys = ["collection", "encoder", "judgments", "system", "labels"]
    for key, table in pd.concat(found).groupby(keys, sort=False) if found else ():
        collection, encoder, judgments, system, labels = key
        values = {(str(system), float(labels)): table.groupby("query_id")[METRIC].mean()}
        about = {"collection": collection, "encoder": encoder, "judgments": judgments}
        rows += [about | row for row in rows_of(values, table)]
    return rows


def per_query(table: pd.DataFrame) -> dict[tuple[str, float], pd.Series[float]]:
    """Return the mean over seeds of every query by (system, share of the labels)."""
    found = {}
    for recipe, cells in table.groupby("recipe", sort=False):
        system, labels = SYSTEMS[str(recipe)]
        means = cells.groupby("query_id")[[METRIC, *(f"{name}_{METRIC}" for name in ("hybrid", "bm25", "zero_shot"))]]
        mean = means.mean()
        found[system, labels] = mean[METRIC]
        found["hybrid" if system == "anmi" else f"{system}_hybrid", labels] = mean[f"hybrid_{METRIC}"]
        # Neither is trained, so labels say nothing of them.
        found["bm25", 0.0], found["zero_shot", 0.0] = mean[f"bm25_{METRIC}"], mean[f"zero_shot_{METRIC}"]
    return found


def rows_of(values: dict[tuple[str, float], pd.Series[float]], table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row per system, share of labels and bucket."""
    bucket = table.drop_duplicates("query_id").set_index("query_id")["documents"]
    seeds = int(table.seed.nunique())
    for (system, labels), series in values.items():
        for name in BUCKETS:
            chosen = series if name == "all" else series[bucket.reindex(series.index) == name]
            if chosen.empty:
                continue
            mean, low, high = interval(chosen.to_numpy(), seed=1, resamples=RESAMPLES, confidence=0.95)
            yield {
                "system": system, "labels": labels, "bucket": name, "ndcg_10": round(mean, 4), "low": plain(low),
                "high": plain(high), "seeds": seeds, "queries": len(chosen),
            }  # fmt: skip


def tests_of(values: dict[tuple[str, float], pd.Series[float]]) -> Iterator[dict[str, Any]]:
    """Yield paired tests over all queries: the hybrids against BM25, and the default's against its parts."""
    pairs = [(("hybrid", labels), ("bm25", 0.0)) for system, labels in values if system == "hybrid"]
    pairs += [(("hybrid", 1.0), ("anmi", 1.0)), (("anmi", 1.0), ("anmi_labels_only", 1.0))]
    for first, second in pairs:
        found = compare(
            values[first].to_numpy(), values[second].reindex(values[first].index).to_numpy(), seed=1,
            resamples=RESAMPLES, confidence=0.95,
        )  # fmt: skip
        yield {
            "system": first[0], "labels": first[1], "against": second[0], "difference": round(found.difference, 4),
            "low": plain(found.low), "high": plain(found.high), "p_value": round(found.p_value, 5),
        }  # fmt: skip


def whole_table(document: dict[str, Any]) -> str:
    """Return nDCG@10 of the systems on every collection: over all test queries, and over the unseen ones."""

    def cell(all_of: dict[str, Any] | None, unseen: dict[str, Any] | None) -> str:
        return " / ".join("–" if row is None else f"{row['ndcg_10']:.3f}" for row in (all_of, unseen))

    return _table(document, list(SHOWN), cell)


def brief_table(document: dict[str, Any]) -> str:
    """Return nDCG@10 with its interval over the unseen queries, of the systems that people choose between."""

    def cell(_: dict[str, Any] | None, unseen: dict[str, Any] | None) -> str:
        if unseen is None:
            return "–"
        return f"{unseen['ndcg_10']:.3f} [{unseen['low']:.2f}, {unseen['high']:.2f}]".replace("0.", ".")

    names = {(system, labels): name for system, labels, name in SHOWN}
    names |= {("hybrid", 0.0): "hybrid, no labels", ("hybrid", 1.0): "**hybrid (default)**"}
    return _table(document, [(*key, names[key]) for key in BRIEF], cell)


def _table(document: dict[str, Any], systems: list[tuple[str, float, str]], cell: Callable[[Any, Any], str]) -> str:
    # By the best judgments known.
    kinds = {row["collection"]: "original" for row in document["rows"]}
    kinds |= {row["collection"]: "completed" for row in document["rows"] if row["judgments"] == "completed"}
    found = {
        (row["collection"], row["system"], row["labels"], row["bucket"]): row
        for row in document["rows"]
        if row["judgments"] == kinds[row["collection"]] and row["encoder"] == "static"
    }
    lines = [f"| system | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for system, labels, name in systems:
        cells = [
            cell(*(found.get((collection, system, labels, bucket)) for bucket in ("all", "unseen")))
            for collection in kinds
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plain(value: float) -> float | None:
    """Return a number for JSON; None where there is no interval."""
    return None if math.isnan(value) else round(float(value), 4)


if __name__ == "__main__":
    main()
