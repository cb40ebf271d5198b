"""How clean and how hard the negatives of each way of mining are, against planted truth.

On each collection the fused judge uses coefficients fitted on the others; ``without`` names it
where that is one of the six. ``route, rate`` takes the bar that lets a share of the planted
documents pass, as the step ``route`` does with positives that it can hide (the bar and its rate are
measured on the same documents); ``route, expected`` takes the bar at which the judge itself expects
a share of relevant documents among the negatives. Everything selects 7 negatives from the same
dense top 100 (MiniLM, 128 tokens). Rows are of a recipe, or of a judge with its ``auc``. ``leak``
is the share of false negatives, with an interval over queries; the gap is the mean of the
positive's minus the negative's cosine. ``--only route`` measures nothing but the step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from anmi.judging.calibration import threshold_for
from anmi.judging.fused import EVIDENCE, features
from common import about, load, parser, save
from fit_fused import fitted
from planted import COLLECTIONS, UNTUNED, Planted, planted

NEGATIVES = 7
THRESHOLDS = (0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.003)
RATES = (0.02, 0.05, 0.1, 0.2)
EXPECTED = (0.001, 0.002, 0.005, 0.01, 0.02)
PEERS: dict[str, tuple[float | None, dict[str, Any]]] = {
    "naive_top": (None, {"top": {}}),
    "nv_retriever": (0.95, {"max_ratio": {"max_ratio": 0.95}, "top": {}}),
    "margin": (0.05, {"margin": {"margin": 0.05}, "top": {}}),
    "shift": (10, {"rank_window": {"first": 11}, "top": {}}),
    "random_top_100": (None, {"random": {}}),
    "coverage_rule": (0.98, {"max_ratio": {"column": "coverage", "max_ratio": 0.98}, "top": {}}),
}


def row(
    each: Planted,
    recipe: str,
    threshold: float | None,
    steps: dict[str, Any],
    probability: NDArray[Any] | None = None,
) -> dict[str, Any]:
    """Run a recipe, with the probabilities of a judge where `denoise` and `route` read them."""
    block, found = each.select(
        NEGATIVES, steps, **({} if probability is None else {"p_relevant": probability})
    )
    gap = (block.positive_columns["dense"][:, :1] - block.columns["dense"])[block.negatives].mean()
    return {
        "collection": each.name,
        "without": each.without,
        "recipe": recipe,
        "threshold": threshold,
        "leak": found.value,
        "leak_low": found.low,
        "leak_high": found.high,
        "gap": float(gap),
        "coverage": float((block.negatives.sum(axis=1) >= NEGATIVES).mean()),
    }


def rows_of(each: Planted, probability: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    """All rows of one collection but those of the step `route`."""
    block = each.block
    for recipe, (threshold, steps) in PEERS.items():
        yield row(each, recipe, threshold, steps)
    for threshold in THRESHOLDS:
        steps = {"denoise": {"threshold": threshold, "at_least": NEGATIVES}, "top": {}}
        yield row(each, "fused", threshold, steps, probability)
    if "facts" in block.columns and each.name.startswith("kg"):
        steps = {"denoise": {"threshold": 0.999, "unjudged": "keep"}, "top": {}}
        yield row(each, "shared_facts graph", 0.999, steps, block.columns["facts"])
    judges = {name: block.columns[name] for name in ("bm25", *EVIDENCE) if name in block.columns}
    for name in ("dense", "match", "coverage"):
        judges[f"{name} - positive's"] = judges[name] - block.positive_columns[name][:, :1]
    for judge, values in (judges | {"fused": probability}).items():
        auc = roc_auc_score(each.truth[block.filled], np.nan_to_num(values[block.filled]))
        yield {"collection": each.name, "without": each.without, "judge": judge, "auc": float(auc)}


def routed(each: Planted, probability: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    """Rows of the step `route` on one collection."""
    planted_ones = probability[each.truth]
    labels = np.repeat([1, 0], [len(planted_ones), 1])
    for rate in RATES:
        bar = threshold_for(np.append(planted_ones, 0.0), labels, rate).threshold
        yield row(
            each,
            "route, rate",
            rate,
            {"route": {"negative": bar, "positive": 1}, "top": {}},
            probability,
        )
    for expected in EXPECTED:
        steps = {"route": {"max_expected_share": expected, "positive": 1}, "top": {}}
        yield row(each, "route, expected", expected, steps, probability)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--only", choices=("route",), help="measure these rows; the others stay as they are"
    )
    only_route = arguments.parse_args().only is not None
    collections = planted(list(COLLECTIONS), "minilm")
    old = load("mining_quality")
    rows = [
        row for row in old["rows"] if only_route and not row.get("recipe", "").startswith("route")
    ]
    for each in [*collections, *planted(list(UNTUNED), "minilm")]:
        model = fitted([other for other in collections if other is not each])
        probability = np.where(each.block.filled, model(features(each.block)), np.nan)
        found = [*routed(each, probability), *([] if only_route else rows_of(each, probability))]
        rows += found
        print(*map(json.dumps, found), sep="\n", flush=True)
    queries = {each.name: len(each.block) for each in collections}
    document = {**about(), "queries": queries, "rows": rows}
    save("mining_quality", document, old if only_route else None)


if __name__ == "__main__":
    main()
