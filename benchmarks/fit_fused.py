"""Fit the shipped coefficients of the fused judge on all collections with planted truth.

Writes src/anmi/judging/fused_transfer.json.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from anmi.errors import AnmiError
from anmi.judging.calibration import fit_platt
from anmi.judging.fused import FEATURES, OF_NETWORK, FusedModel, features
from common import ROOT, now, parser
from planted import COLLECTIONS, Planted, planted

RIDGE = 0.001
SUPERSET_WEIGHT = 4.0
ENCODERS = ("minilm", "static", "corpus")
TARGET = ROOT / "src" / "anmi" / "judging" / "fused_transfer.json"
VECTOR_FEATURES = tuple(
    n for n, feature in FEATURES.items() if feature.evidence in ("dense", "likeness")
)


def fit_model(
    values: NDArray[np.float32],
    labels: NDArray[Any],
    groups: NDArray[Any],
    ridge: float,
    extra: NDArray[np.float32] | None = None,
    extra_weight: float = 0.0,
    without: Sequence[str] = (),
) -> FusedModel:
    """Fit the coefficients by weighted maximum likelihood with a ridge, then calibrate at the natural base rate.

    Of n candidates with inputs ``values`` [n, K], ``labels`` [n] say which are known to be
    relevant, and ``groups`` [n] from which collection they are: all weigh the same, and so do both
    classes within each. ``ridge`` weights the squared distance of the coefficients from their mean;
    inputs are standardised by the collections' average mean and deviation. ``extra`` [m, K] are
    further relevant examples that are not calibrated on, such as made-up supersets of positives, of
    ``extra_weight`` relative to all relevant candidates. The coefficients of inputs in ``without``
    are kept at 0.
    """
    if len(np.unique(labels)) < 2:
        raise AnmiError(
            "the fused judge needs both relevant and other documents to learn from, and found one"
            " kind only"
        )
    mean, scale = _scaling(values, groups)
    model = FusedModel(tuple(mean.tolist()), tuple(scale.tolist()), (0.0,) * len(mean), 0.0)
    weights = np.zeros(len(labels))
    for group in np.unique(groups):
        for label in (0, 1):
            mine = (groups == group) & (labels == label)
            weights[mine] = 0.5 / max(mine.sum(), 1)
    inputs, targets = model.standardised(values), np.asarray(labels, np.float64)
    if extra is not None and len(extra):
        inputs = np.concatenate([inputs, model.standardised(extra)])
        targets = np.concatenate([targets, np.ones(len(extra))])
        share = extra_weight * weights[np.asarray(labels) == 1].sum() / len(extra)
        fit_weights = np.concatenate([weights, np.full(len(extra), share)])
    else:
        fit_weights = weights
    used = np.array([name not in without for name in FEATURES])
    coefficients, intercept = _maximise(
        inputs, targets, fit_weights / fit_weights.sum(), ridge, used
    )
    natural = np.zeros(len(labels))
    for group in np.unique(groups):
        natural[groups == group] = 1.0 / (groups == group).sum()
    raw = model.standardised(values) @ coefficients + intercept
    platt = fit_platt(raw, np.asarray(labels), natural * len(labels))
    slope = max(platt.slope, 1e-6)
    return replace(
        model,
        coefficients=tuple((slope * coefficients).tolist()),
        intercept=slope * intercept + platt.intercept,
    )


def _scaling(
    values: NDArray[np.float32], groups: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of each input, averaged over the collections; inputs unknown everywhere get (0, 1)."""
    with np.errstate(invalid="ignore"):
        parts = [values[groups == group].astype(np.float64) for group in np.unique(groups)]
        known = [np.isfinite(part).any(axis=0) for part in parts]
        means = [
            np.where(k, np.nanmean(np.where(k, p, 0), axis=0), np.nan)
            for p, k in zip(parts, known, strict=True)
        ]
        spread = [
            np.where(k, np.nanstd(np.where(k, p, 0), axis=0), np.nan)
            for p, k in zip(parts, known, strict=True)
        ]
    count = np.maximum(np.sum(known, axis=0), 1)
    mean, scale = np.nansum(means, axis=0) / count, np.nansum(spread, axis=0) / count
    return mean, np.where(scale > 1e-6, scale, 1.0)


def _maximise(
    inputs: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    ridge: float,
    used: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], float]:
    """Coefficients ≥ 0 and intercept of the penalised likelihood."""
    width = inputs.shape[1]

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slopes, score = point[:width], inputs @ point[:width] + point[width]
        off = np.where(used, slopes - slopes[used].mean(), 0)
        error = weights * (expit(score) - targets)
        loss = float(
            (weights * (np.logaddexp(0, score) - targets * score)).sum() + ridge * (off**2).sum()
        )
        return loss, np.append(inputs.T @ error + 2 * ridge * off, error.sum())

    start = np.append(np.where(used, 0.3, 0.0), -1.0)
    bounds = [(0.0, None if each else 0.0) for each in used] + [(None, None)]
    found = minimize(
        objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 500}
    )
    return found.x[:width], float(found.x[width])


def fitted(collections: Sequence[Planted], without: Sequence[str] = ()) -> FusedModel:
    """Fit one model on several collections, each with the same weight."""
    inputs, labels, groups, extra = [], [], [], []
    for number, each in enumerate(collections):
        row, slot = np.nonzero(each.block.filled)
        inputs.append(features(each.block)[row, slot])
        labels.append(each.truth[row, slot])
        groups.append(np.full(len(row), number))
        extra.append(each.supersets)
    value, label, group, made = (np.concatenate(parts) for parts in (inputs, labels, groups, extra))
    return fit_model(
        value, label, group, RIDGE, extra=made, extra_weight=SUPERSET_WEIGHT, without=without
    )


def main() -> None:
    """Fit models per encoder, with all collections and without each, and write them."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--encoders", nargs="+", default=ENCODERS, help="fit for these; the others stay as they are"
    )
    given, raw = arguments.parse_args(), json.loads(TARGET.read_text(encoding="utf-8"))
    source = raw["provenance"]
    for encoder in given.encoders:
        collections = planted(list(COLLECTIONS), encoder)
        source["collections"][encoder] = [
            {
                "collection": each.name,
                "queries": len(each.block),
                "candidates": int(each.block.filled.sum()),
                "planted": int(each.truth.sum()),
            }
            for each in collections
        ]
        fits: dict[str, tuple[str, ...]] = {encoder: (OF_NETWORK,)}
        if encoder == "minilm":
            fits["other"] = (*VECTOR_FEATURES, OF_NETWORK)
        for name, unused in fits.items():
            model = fitted(collections, unused)
            raw["models"][name] = rounded(model)
            source["auc_on_the_same_collections"][name] = {
                each.name: _auc(model, each) for each in collections
            }
            for each in collections:
                others = [other for other in collections if other is not each]
                raw["without"][each.name][name] = rounded(fitted(others, unused))
        for name, label in ((encoder, encoder), ("other", f"{encoder}, judged without vectors")):
            judges = {
                left: FusedModel.from_dict(found[name]) for left, found in raw["without"].items()
            }
            source["auc_held_out"][label] = {
                each.name: _auc(judges[each.name], each) for each in collections
            }
            print(label, source["auc_held_out"][label], flush=True)
        source["fitted"][encoder] = {
            "date": now()[:10],
            "versions": {
                name: importlib.metadata.version(name)
                for name in ("anmi", "numpy", "scipy", "scikit-learn")
            },
        }
    TARGET.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    print(f"written to {TARGET}")


def _auc(model: FusedModel, each: Planted) -> float:
    mask = each.block.filled
    return round(float(roc_auc_score(each.truth[mask], model(features(each.block))[mask])), 4)


def rounded(model: FusedModel) -> dict[str, object]:
    """Return the numbers of a model as they are shipped."""
    raw = model.as_dict()
    named = {
        key: {k: round(v, 5) for k, v in raw[key].items()}
        for key in ("mean", "scale", "coefficients")
    }
    return raw | named | {"intercept": round(model.intercept, 5)}


if __name__ == "__main__":
    main()
