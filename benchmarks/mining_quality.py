"""How clean and how hard the negatives of each way of mining are, against planted truth.

On each collection the fused judge uses coefficients fitted on the other collections only. ``route, rate`` takes the
bar that lets a share of the planted documents pass, as the step ``route`` does with positives that it can hide (the bar
and its rate are measured on the same documents); ``route, expected`` takes the bar at which the judge itself expects a
share of relevant documents among the negatives. Everything selects 7 negatives from the same dense top 100 (MiniLM, 128
tokens). Rows are of two kinds: ``collection, without, recipe, threshold, false_negative_rate,
false_negative_rate_low, false_negative_rate_high, gap,
coverage`` and ``collection, without, judge, auc``. ``without`` names the collection that had no part in the judge's
coefficients. False-negative rates and coverages are shares, with intervals over queries; the gap is the mean of the
positive's minus
the negative's cosine. Run: ``python benchmarks/mining_quality.py``; ``--only route`` measures nothing but the step.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from anmi.candidates import Candidates, CandidateShards
from anmi.evaluation.significance import share
from anmi.judging.calibration import threshold_for
from anmi.judging.fused import EVIDENCE, features
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.selection.recipe import Recipe, Runner
from fit_fused import WORK, fitted
from planted import COLLECTIONS, UNTUNED, Planted, planted

RESULT = Path(__file__).parent / "results" / "mining_quality.json"
NEGATIVES = 7
THRESHOLDS = (0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.003)
RATES = (0.02, 0.05, 0.1, 0.2)
EXPECTED = (0.001, 0.002, 0.005, 0.01, 0.02)
PEERS: dict[str, tuple[float | None, list[Any]]] = {
    "naive_top": (None, {"top": {}}),
    "nv_retriever": (0.95, {"max_ratio": {"max_ratio": 0.95}, "top": {}}),
    "margin": (0.05, {"margin": {"margin": 0.05}, "top": {}}),
    "shift": (10, {"rank_window": {"first": 11}, "top": {}}),
    "random_top_100": (None, {"random": {}}),
    "coverage_rule": (0.98, {"max_ratio": {"column": "coverage", "max_ratio": 0.98}, "top": {}}),
}


def row(
    each: Planted, recipe: str, threshold: float | None, steps: dict[str, Any], block: Candidates
) -> dict[str, Any]:
    """Run a recipe and compare its negatives with the truth."""
    chosen = Recipe(description=recipe, negatives=NEGATIVES, steps=steps)
    block = Runner(chosen, seed=42).run(CandidateShards.of([block])).whole()
    negatives = block.negatives
    found = share((each.truth & negatives).sum(axis=1), negatives.sum(axis=1))
    gap = (block.positive_columns["dense"][:, :1] - block.columns["dense"])[negatives].mean()
    return {
        "collection": each.name, "without": without(each), "recipe": recipe, "threshold": threshold,
        "false_negative_rate": found.value, "false_negative_rate_low": found.low,
        "false_negative_rate_high": found.high, "gap": float(gap),
        "coverage": float((negatives.sum(axis=1) >= NEGATIVES).mean()),
    }  # fmt: skip


def without(each: Planted) -> str | None:
    """Return whose truth had no part in the coefficients; None where that of none of the six is asked about."""
    return each.name if each.name in COLLECTIONS else None


def judged(block: Candidates, probability: NDArray[np.float64]) -> Candidates:
    """Put a judge's probability where the step `denoise` reads it."""
    return block.with_columns({"p_relevant": probability})


def rows_of(each: Planted, others: list[Planted]) -> Iterator[dict[str, Any]]:
    """All rows of one collection."""
    block = each.block
    for recipe, (threshold, steps) in PEERS.items():
        yield row(each, recipe, threshold, steps, block)
    model = fitted(others)
    probabilities = {"fused": np.where(block.filled, model(features(block)), np.nan)}
    for recipe, probability in probabilities.items():
        for threshold in THRESHOLDS:
            steps = {"denoise": {"threshold": threshold, "at_least": NEGATIVES}, "top": {}}
            yield row(each, recipe, threshold, steps, judged(block, probability))
    if "facts" in block.columns and each.name.startswith("kg"):
        steps = {"denoise": {"threshold": 0.999, "unjudged": "keep"}, "top": {}}
        yield row(each, "shared_facts graph", 0.999, steps, judged(block, block.columns["facts"]))
    mask = block.filled
    judges = {name: block.columns[name] for name in ("bm25", *EVIDENCE)}
    with_gap = {
        f"{n} - positive's": judges[n] - block.positive_columns[n][:, :1] for n in ("dense", "match", "coverage")
    }
    for judge, values in (judges | with_gap | probabilities).items():
        auc = roc_auc_score(each.truth[mask], np.nan_to_num(values[mask]))
        yield {"collection": each.name, "without": without(each), "judge": judge, "auc": float(auc)}


def routed(each: Planted, others: list[Planted]) -> Iterator[dict[str, Any]]:
    """Rows of the step `route` on one collection."""
    probability = np.where(each.block.filled, fitted(others)(features(each.block)), np.nan)
    block, planted_ones = judged(each.block, probability), probability[each.truth]
    labels = np.repeat([1, 0], [len(planted_ones), 1])
    for rate in RATES:
        bar = threshold_for(np.append(planted_ones, 0.0), labels, rate).threshold
        yield row(each, "route, rate", rate, {"route": {"negative": bar, "positive": 1}, "top": {}}, block)
    for expected in EXPECTED:
        steps = {"route": {"max_expected_share": expected, "positive": 1}, "top": {}}
        yield row(each, "route, expected", expected, steps, block)


def main() -> None:
    """Measure all collections and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for embeddings and planted collections")
    parser.add_argument("--only", choices=("route",), help="measure these rows; the others stay as they are")
    arguments = parser.parse_args()
    work = arguments.work
    collections = planted(list(COLLECTIONS), "minilm", work)
    rows: list[dict[str, Any]] = []
    for each in collections:
        others = [other for other in collections if other is not each]
        rows += routed(each, others)
        if not arguments.only:
            rows += rows_of(each, others)
    for each in planted(list(UNTUNED), "minilm", work):
        rows += routed(each, collections)
        rows += [] if arguments.only else rows_of(each, collections)
    for found in rows:
        if "recipe" in found:
            print(
                f"{found['collection']:<22}{found['recipe']:<20}{found['threshold'] or '':<7}"
                f"false negatives {found['false_negative_rate']:7.2%} "
                f"[{found['false_negative_rate_low']:.2%}, {found['false_negative_rate_high']:.2%}]"
                f"  gap {found['gap']:+.4f}  coverage {found['coverage']:.1%}"
            )
        else:
            print(f"{found['collection']:<22}{found['judge']:<24}AUC {found['auc']:.3f}")
    if arguments.only:
        old = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
        rows = [kept for kept in old if not kept.get("recipe", "").startswith("route")] + rows
    saved = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "queries": {each.name: len(each.block) for each in collections},
        "rows": rows,
    }
    RESULT.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
