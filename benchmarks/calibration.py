"""Whether the share of relevant negatives that the judge expects is the share that there is.

On every collection with planted truth the judge uses coefficients fitted on the others. ``hidden:
all_but_one`` leaves one known positive a query, ``half`` hides half of what is relevant (rounded
down), so that the judge learns from the rest as it does in a run. Rows: ``collection, hidden,
recipe, expected, expected_low, expected_high, actual, low, high, gap, coverage, held_out``. Shares
are of 15 negatives a query, ``actual`` with a bootstrap interval over queries; ``gap`` is the mean
over rows of the positive's minus the negatives' dense score; ``coverage`` the share of rows with
all 15. Recipes:

- ``naive_top``: the nearest documents;
- ``anmi_fixed_bar``: what ``anmi`` was: shipped probabilities, refined from 200 queries with
  several positives on, and negatives below 0.1;
- ``anmi``: its step ``route`` with the judge as it is; ``anmi, expected X``: with another
  ``max_expected_share``.

``held_out`` marks collections that had no part in any choice: sae4k_ko and debian_packages,
measured after all choices, and again after one correction that was made for SciFact. ``priors`` has
the shares of relevant documents among the nearest 100 by each estimate. A further collection are
those queries of WebNLG that have at least ten relevant documents among the nearest 100; their
labels are no sample of what is relevant to them, so no label tells how many there are. ``--only
NAME`` measures one collection, the others stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from anmi.candidates import CandidateShards
from anmi.judging.expected import ExpectedShare
from anmi.judging.fused import base_rate, features, log_odds, transferred
from anmi.judging.fusing import FusedJudge, FusedOptions
from common import about, load, parser, recipes, save
from planted import COLLECTIONS, UNTUNED, Opened, Planted, planted

ENCODER = "static"
SEED, NEGATIVES, MANY = 42, 15, 10
HELD_OUT = ("sae4k_ko", *UNTUNED)
SHARES = (0.007, 0.01, 0.02)
FIXED = {"column": "p_evidence", "negative": 0.1, "barred": 0.2, "at_least": 15}
Probabilities = NDArray[np.float64]


def row(
    each: Planted, half: bool, recipe: str, steps: dict[str, Any], probability: Probabilities
) -> dict[str, Any]:
    """Choose negatives and compare what was expected with the truth."""
    block, found = each.select(NEGATIVES, steps, p_evidence=probability)
    taken, expected = block.negatives, ExpectedShare()
    expected.add(np.where(taken, probability, np.nan), block.query_ids)
    gaps = np.where(taken, block.positive_columns["dense"][:, :1] - block.columns["dense"], np.nan)
    low, high = expected.interval
    return {
        "collection": each.name,
        "hidden": "half" if half else "all_but_one",
        "recipe": recipe,
        "expected": expected.share,
        "expected_low": low,
        "expected_high": high,
        "actual": found.value,
        "low": found.low,
        "high": found.high,
        "gap": float(np.nanmean(np.nanmean(gaps[taken.any(axis=1)], axis=1))),
        "coverage": float((taken.sum(axis=1) >= NEGATIVES).mean()),
        "held_out": each.name in HELD_OUT,
    }


def judge_of(each: Planted, **options: Any) -> tuple[Probabilities, dict[str, Any]]:
    """Return what a judge that never saw the collection's truth says of the candidates [Q, M], and its summary."""
    material = Opened.of(each.collection, ENCODER).material(each.block.query_ids.tolist())
    given = FusedOptions.model_validate({"without": each.without} | options)
    judge = FusedJudge(given, material, ENCODER, SEED)
    judge.fit(CandidateShards.of([each.block]))
    return np.where(each.block.filled, judge.probability(each.block), np.nan), judge.summary


def saerens(probability: Probabilities, base: float) -> float:
    """Share of relevant ones by EM over the candidates, from the share that the coefficients were fitted at."""
    ratio, found = log_odds(probability[np.isfinite(probability)]) - logit(base), base
    for _ in range(1000):
        found = float(np.clip(expit(ratio + logit(found)).mean(), 1e-9, 1 - 1e-9))
    return found


def rows_of(each: Planted, half: bool) -> Iterator[dict[str, Any]]:
    """All rows of one collection, and its shares of relevant documents by each estimate."""
    fixed, _ = judge_of(each, prior="shipped", least_queries=200)
    own, summary = judge_of(each)
    rule = recipes()["anmi_labels_only"]["steps"]["route"]
    yield row(each, half, "naive_top", {"top": {}}, fixed)
    yield row(each, half, "anmi_fixed_bar", {"route": FIXED, "top": {}}, fixed)
    yield row(each, half, "anmi", {"route": rule, "top": {}}, own)
    for expected in SHARES:
        steps = {"route": rule | {"max_expected_share": expected}, "top": {}}
        yield row(each, half, f"anmi, expected {expected:g}", steps, own)
    base = base_rate(ENCODER, each.without)
    plain = transferred(ENCODER, each.without)(features(each.block))
    yield {
        "collection": each.name,
        "hidden": "half" if half else "all_but_one",
        "mode": summary["mode"],
        "true": float(each.truth[each.block.filled].mean()),
        "used": summary["estimated_prior"],
        "shipped": base,
        "by_judge": float(np.nanmean(plain)),
        "by_known": summary.get("prior_by_known"),
        "saerens": saerens(np.where(each.block.filled, plain, np.nan), base),
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "--only", nargs="*", help="measure these collections; the others stay as they are"
    )
    names = arguments.parse_args().only or [*COLLECTIONS, *UNTUNED]
    found: list[dict[str, Any]] = []
    for name in names:
        whole, half = (planted([name], ENCODER, of_half)[0] for of_half in (False, True))
        found += [*rows_of(whole, False), *rows_of(half, True)]
        if name.startswith("kg"):
            many = np.flatnonzero(whole.truth.sum(axis=1) >= MANY)
            truth, block = whole.truth[many], whole.block.take(many)
            found += rows_of(
                replace(whole, name=f"{name}, {MANY} and more", block=block, truth=truth), False
            )
        for each in found:
            if each["collection"].startswith(name):
                print(json.dumps(each), flush=True)
    old = load("calibration")
    kept = [
        each
        for each in old["rows"] + old["priors"]
        if each["collection"].split(",")[0] not in names
    ]
    found += kept
    rows, priors = (
        [each for each in found if ("recipe" in each) == chosen] for chosen in (True, False)
    )
    document = {**about(), "encoder": ENCODER, "rows": rows, "priors": priors}
    save("calibration", document, old if kept else None)


if __name__ == "__main__":
    main()
