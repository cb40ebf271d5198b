"""Whether the share of relevant negatives that the judge expects is the share that there is.

On every collection with planted truth the judge uses coefficients fitted on the others. ``hidden: all_but_one`` leaves
one known positive a query, ``half`` hides half of what is relevant (rounded down), so that the judge learns from the
rest as it does in a run. Rows: ``collection, hidden, recipe, expected, expected_low, expected_high, actual, low, high,
gap, coverage, held_out``. Shares are of 15 negatives a query, ``actual`` with a bootstrap interval over queries;
``gap`` is the mean over rows of the positive's minus the negatives' dense score; ``coverage`` the share of rows with
all 15. Recipes:

- ``naive_top``: the nearest documents;
- ``anmi_fixed_bar``: what ``anmi`` was: shipped probabilities, refined from 200 queries with several positives on, and
  negatives below 0.1;
- ``anmi``: its step ``route`` with the judge as it is; ``anmi, expected X``: with another ``max_expected_share``;
- ``anmi, boosted``: the same with gradient boosting (monotone in every input) in place of the logistic model, where no
  positives are hidden to refine it.

``held_out`` marks collections that had no part in any choice: sae4k_ko and debian_packages, measured after all choices,
and again after one correction that was made for SciFact. ``priors`` has the shares of relevant documents among the
nearest 100 by each estimate. A further collection are those queries of WebNLG that have at least ten relevant documents
among the nearest 100; their labels are no sample of what is relevant to them, so no label tells how many there are.

Run: ``python benchmarks/calibration.py``; ``--only NAME`` measures one collection, the others stay as they are.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from anmi.candidates import CandidateShards
from anmi.evaluation.significance import share
from anmi.judging.calibration import fit_platt
from anmi.judging.expected import ExpectedShare
from anmi.judging.fused import base_rate, features, log_odds, transferred
from anmi.judging.fusing import FusedJudge, FusedOptions
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.selection.recipe import Recipe, Runner
from fit_fused import SUPERSET_WEIGHT, WORK
from planted import COLLECTIONS, UNTUNED, Opened, Planted, planted

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "calibration.json"
SEED, NEGATIVES, MANY = 42, 15, 10
HELD_OUT = ("sae4k_ko", *UNTUNED)
SHARES = (0.007, 0.01, 0.02)
FIXED = {"column": "p_evidence", "negative": 0.1, "barred": 0.2, "at_least": 15}
Probabilities = NDArray[np.float64]


def route() -> dict[str, Any]:
    """Return what the recipe ``anmi`` gives its step ``route``."""
    book = yaml.safe_load((ROOT / "conf" / "base" / "recipes.yml").read_text(encoding="utf-8"))["recipes"]
    return dict(book["anmi_labels_only"]["steps"]["route"])


def row(each: Planted, half: bool, recipe: str, steps: dict[str, Any], probability: Probabilities) -> dict[str, Any]:
    """Choose negatives and compare what was expected with the truth."""
    block = each.block.with_columns({"p_evidence": probability})
    chosen = Recipe(description=recipe, negatives=NEGATIVES, steps=steps)
    block = Runner(chosen, SEED).run(CandidateShards.of([block])).whole()
    taken, expected = block.negatives, ExpectedShare()
    expected.add(np.where(taken, probability, np.nan), block.query_ids)
    found = share((each.truth & taken).sum(axis=1), taken.sum(axis=1))
    gaps = np.where(taken, block.positive_columns["dense"][:, :1] - block.columns["dense"], np.nan)
    low, high = expected.interval
    return {
        "collection": each.name, "hidden": "half" if half else "all_but_one", "recipe": recipe,
        "expected": expected.share, "expected_low": low, "expected_high": high,
        "actual": found.value, "low": found.low, "high": found.high,
        "gap": float(np.nanmean(np.nanmean(gaps[taken.any(axis=1)], axis=1))),
        "coverage": float((taken.sum(axis=1) >= NEGATIVES).mean()), "held_out": each.name in HELD_OUT,
    }  # fmt: skip


def judge_of(
    each: Planted, encoder: str, work: Path, name: str, **options: Any
) -> tuple[Probabilities, dict[str, Any]]:
    """Return what a judge that never saw the collection's truth says of the candidates [Q, M], and its summary."""
    material = Opened.of(name, encoder, work).material(each.block.query_ids.tolist())
    given = FusedOptions.model_validate({"without": name if name in COLLECTIONS else None} | options)
    judge = FusedJudge(given, material, encoder, SEED)
    judge.fit(CandidateShards.of([each.block]))
    return np.where(each.block.filled, judge.probability(each.block), np.nan), judge.summary


def saerens(probability: Probabilities, base: float) -> float:
    """Share of relevant ones by EM over the candidates, from the share that the coefficients were fitted at."""
    ratio, found = log_odds(probability[np.isfinite(probability)]) - logit(base), base
    for _ in range(1000):
        found = float(np.clip(expit(ratio + logit(found)).mean(), 1e-9, 1 - 1e-9))
    return found


def at_least(probability: Probabilities, least: float) -> Probabilities:
    """Raise all odds by one factor until the mean is the share; :func:`anmi.judging.prior.with_mean` for any model."""
    odds = log_odds(probability)
    known = odds[np.isfinite(odds)]
    if expit(known).mean() >= least:
        return probability
    return expit(odds + brentq(lambda shift: float(expit(known + shift).mean()) - least, 0, 40))


def boosted(others: list[Planted]) -> Callable[[NDArray[np.float32]], Probabilities]:
    """Fit gradient boosting as ``fit_fused`` fits the logistic model: the same weights, the same made-up supersets."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    values, labels, weights, natural = [], [], [], []
    for each in others:
        inputs, truth = features(each.block)[each.block.filled], each.truth[each.block.filled]
        count = np.bincount(truth, minlength=2)
        made = np.full(len(each.supersets), SUPERSET_WEIGHT / 2 / len(each.supersets))
        values.append(np.concatenate([inputs, each.supersets]))
        labels.append(np.concatenate([truth, np.ones(len(made), bool)]))
        weights.append(np.concatenate([0.5 / count[truth.astype(int)], made]))
        natural.append(np.concatenate([np.full(len(truth), 1 / len(truth)), np.zeros(len(made))]))
    value, label, weight, plain = (np.concatenate(parts) for parts in (values, labels, weights, natural))
    model = HistGradientBoostingClassifier(
        max_iter=100, learning_rate=0.05, max_leaf_nodes=15, min_samples_leaf=200, l2_regularization=1.0,
        monotonic_cst=[1] * value.shape[1], random_state=SEED,
    )  # fmt: skip
    model.fit(value, label, sample_weight=weight * len(weight) / weight.sum())
    platt = fit_platt(model.decision_function(value), label.astype(int), plain * len(plain))

    def judge(inputs: NDArray[np.float32]) -> Probabilities:
        return platt(model.decision_function(inputs.reshape(-1, inputs.shape[-1])).reshape(inputs.shape[:-1]))

    return judge


def rows_of(
    each: Planted, others: list[Planted], half: bool, encoder: str, work: Path, name: str
) -> Iterator[dict[str, Any]]:
    """All rows of one collection, and its shares of relevant documents by each estimate."""
    fixed, _ = judge_of(each, encoder, work, name, prior="shipped", least_queries=200)
    own, summary = judge_of(each, encoder, work, name)
    rule = route()
    yield row(each, half, "naive_top", {"top": {}}, fixed)
    yield row(each, half, "anmi_fixed_bar", {"route": FIXED, "top": {}}, fixed)
    yield row(each, half, "anmi", {"route": rule, "top": {}}, own)
    for expected in SHARES:
        steps = {"route": rule | {"max_expected_share": expected}, "top": {}}
        yield row(each, half, f"anmi, expected {expected:g}", steps, own)
    without = name if name in COLLECTIONS else None
    base, plain = base_rate(encoder, without), transferred(encoder, without)(features(each.block))
    yield {
        "collection": each.name, "hidden": "half" if half else "all_but_one", "mode": summary["mode"],
        "true": float(each.truth[each.block.filled].mean()), "used": summary["estimated_prior"], "shipped": base,
        "by_judge": float(np.nanmean(plain)), "by_known": summary.get("prior_by_known"),
        "saerens": saerens(np.where(each.block.filled, plain, np.nan), base),
    }  # fmt: skip
    if not half:
        probability = np.where(each.block.filled, boosted(others)(features(each.block)), np.nan)
        least = max(base, (summary.get("prior_by_known") or 0.0) / FusedOptions().overshoot)
        yield row(each, half, "anmi, boosted", {"route": rule, "top": {}}, at_least(probability, least))


def show(found: list[dict[str, Any]], name: str) -> None:
    """Print what was found of a collection."""
    for each in found:
        if each["collection"].startswith(name):
            print(f"{each['collection']:<30}{each['hidden']:<12}", end="")
            if "recipe" not in each:
                print({key: value for key, value in each.items() if key not in ("collection", "hidden")}, flush=True)
                continue
            print(
                f"{each['recipe']:<20}expected {each['expected']:6.2%} "
                f"[{each['expected_low']:.2%}, {each['expected_high']:.2%}] actual {each['actual']:6.2%} "
                f"[{each['low']:.2%}, {each['high']:.2%}] gap {each['gap']:+.4f} coverage {each['coverage']:.1%}",
                flush=True,
            )


def main() -> None:
    """Measure all collections and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for embeddings and planted collections")
    parser.add_argument("--encoder", default="static", help="minilm, static or corpus")
    parser.add_argument("--only", nargs="*", help="measure these collections; the others stay as they are")
    given = parser.parse_args()
    collections = planted(list(COLLECTIONS), given.encoder, given.work)
    names = given.only or [*COLLECTIONS, *UNTUNED]
    found: list[dict[str, Any]] = []
    for name in names:
        others = [each for each in collections if each.name != name]
        for half in (False, True):
            (each,) = planted([name], given.encoder, given.work, half)
            found += rows_of(each, others, half, given.encoder, given.work, name)
        if name.startswith("kg"):
            (each,) = planted([name], given.encoder, given.work)
            many = np.flatnonzero(each.truth.sum(axis=1) >= MANY)
            part = replace(each, name=f"{name}, {MANY} and more", block=each.block.take(many), truth=each.truth[many])
            found += rows_of(part, others, False, given.encoder, given.work, name)
        show(found, name)
    if given.only and RESULT.exists():
        old = json.loads(RESULT.read_text(encoding="utf-8"))
        kept = [each for each in old["rows"] + old["priors"] if each["collection"].split(",")[0] not in names]
        found = kept + found
    saved = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "encoder": given.encoder,
        "rows": [each for each in found if "recipe" in each],
        "priors": [each for each in found if "recipe" not in each],
    }
    RESULT.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
