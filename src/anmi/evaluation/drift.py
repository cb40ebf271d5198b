"""Are today's training data still like those of the champion? Two profiles are compared, and noise is allowed for.

A verdict needs both: a difference that is not noise (a test, adjusted for the number of tests) and one that is large
(the population stability index, or a shift in standard deviations). Tables alone cannot tell what a model will make of
the difference, so a verdict is a reason to look, not to stop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from anmi.evaluation.binned import BINS, LEAST_EXPECTED, merge_starts
from anmi.evaluation.significance import holm
from anmi.evaluation.vocabulary import new_term_shares

Verdict = Literal["none", "slight", "strong"]
VERDICTS: Final[tuple[Verdict, ...]] = ("none", "slight", "strong")
# Without as many independent values on both sides nothing is said.
LEAST_VALUES: Final = 2 * LEAST_EXPECTED


class DriftThresholds(BaseModel):
    """From where on a difference is called slight or strong; it must not be noise besides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: float = Field(
        0.01, gt=0, lt=1, description="Chance that any of all the tests of a comparison takes noise for a difference, "
        "adjusted by Holm. 0.01: at most about four such nights in a year.",
    )  # fmt: skip
    psi_slight: float = Field(
        0.1, gt=0, description="Population stability index beyond what noise alone gives. 0.1: the usual border, about "
        "a shift of a normal distribution by 0.3 standard deviations.",
    )  # fmt: skip
    psi_strong: float = Field(
        0.25, gt=0, description="Likewise. 0.25: the usual border, about half a standard deviation."
    )
    shift_slight: float = Field(
        0.2, gt=0, description="Change of a mean in standard deviations, or of a share as Cohen's h. 0.2: small effect."
    )
    shift_strong: float = Field(0.5, gt=0, description="Likewise. 0.5: what Cohen calls a medium effect.")
    ratio_slight: float = Field(
        1.2, gt=1, description="Ratio of two counts, the larger over the smaller. 1.2: more than data grow in a night."
    )
    ratio_strong: float = Field(
        1.5, gt=1, description="Likewise. 1.5: a third is gone, or half as much came, which is mostly a broken export."
    )


def drift(
    reference: Mapping[str, Any] | None, current: Mapping[str, Any], thresholds: DriftThresholds | None = None
) -> dict[str, Any]:
    """Compare two profiles.

    Parameters
    ----------
    reference
        Of what the champion was trained on; None or empty without a champion.
    current
        Of what would be trained on now. Both from :func:`anmi.evaluation.training_profile.profile`.
    thresholds
        Where verdicts begin.

    Returns
    -------
    dict
        ``compared``; ``verdict``, the worst of all; ``reason`` where nothing could be compared; ``different``: what
        scores depend on besides the data and is not the same. Then by name ``distributions`` (``verdict, psi, noise,
        jensen_shannon, moved, shift, mean_reference, mean_current, p_value, bins, effective_reference,
        effective_current``), ``shares``, ``new_terms`` (``verdict, reference, current, h, p_value``) and ``counts``
        (``verdict, reference, current, ratio, p_value``), and ``not_compared``, reasons by name. ``psi`` is as
        measured and ``noise`` what of it two samples of the same data would show on average; ``moved`` is the share
        that would have to move to another bin (total variation); p-values are adjusted.

    Examples
    --------
    >>> drift(None, {})["reason"]
    'there is no champion to compare with'
    """
    limits = thresholds or DriftThresholds()
    reason = _incomparable(reference, current)
    if reference is None or reason:
        return {"compared": False, "verdict": "none", "reason": reason}
    skipped: dict[str, str] = {}
    found = {
        "distributions": _distributions(reference, current, skipped),
        "shares": _shares(reference.get("shares", {}), current.get("shares", {}), skipped),
        "new_terms": _new_terms(reference, current, skipped),
        "counts": _counts(reference["counts"], current["counts"]),
    }
    _judge(found, limits)
    worst = max((VERDICTS.index(row["verdict"]) for rows in found.values() for row in rows.values()), default=0)
    made = (reference.get("made_with") or {}, current.get("made_with") or {})
    different = {
        name: {"reference": made[0].get(name), "current": made[1].get(name)}
        for name in dict.fromkeys([*made[0], *made[1]])
        if made[0].get(name) != made[1].get(name)
    }
    return {"compared": True, "verdict": VERDICTS[worst], "different": different, **found, "not_compared": skipped}


def psi(reference: NDArray[np.float64], current: NDArray[np.float64], n: float, m: float) -> float:
    """Return the population stability index: the sum over bins of (q - p) · ln(q / p).

    Parameters
    ----------
    reference, current
        Shares of the same B bins, p and q, each adding up to 1.
    n, m
        Independent values behind them. Half a value is added to every bin, or an empty one would be infinitely far.

    Examples
    --------
    >>> round(psi(np.array([0.5, 0.5]), np.array([0.6, 0.4]), 1e9, 1e9), 4)
    0.0405
    """
    p = (reference * n + 0.5) / (n + 0.5 * len(reference))
    q = (current * m + 0.5) / (m + 0.5 * len(current))
    return float(((q - p) * np.log(q / p)).sum())


def _incomparable(reference: Mapping[str, Any] | None, current: Mapping[str, Any]) -> str:
    if not reference:
        return "there is no champion to compare with"
    if reference.get("format") != current.get("format"):
        return "the champion's profile has another format; the next champion's can be compared"
    return ""


def _distributions(
    reference: Mapping[str, Any], current: Mapping[str, Any], skipped: dict[str, str]
) -> dict[str, dict[str, Any]]:
    old, new = reference["distributions"], current["distributions"]
    rows = {}
    for name in _common(old, new, skipped):
        if name.endswith("_length") and reference["tokens"] != current["tokens"]:
            skipped[name] = f"counted in {reference['tokens']} then, in {current['tokens']} now"
        elif min(old[name]["effective"], new[name]["effective"]) < LEAST_VALUES:
            skipped[name] = "too few values"
        else:
            rows[name] = compare_distributions(old[name], new[name])
    return rows


def _common(old: Mapping[str, Any], new: Mapping[str, Any], skipped: dict[str, str]) -> list[str]:
    skipped |= {name: "not measured now" for name in old if name not in new}
    skipped |= {name: "not measured for the champion" for name in new if name not in old}
    return [name for name in old if name in new]


def compare_distributions(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two distributions over the same edges; p-values are not adjusted yet.

    Parameters
    ----------
    old, new
        From :meth:`anmi.evaluation.binned.Tally.as_dict`.

    Returns
    -------
    dict
        As :func:`drift`, without a verdict; and ``p_bins`` and ``p_mean`` in the place of ``p_value``: of the test of
        homogeneity over the merged bins (Pearson's statistic, corrected after Rao and Scott) and of the means.
    """
    n, m = old["effective"], new["effective"]
    p, q = (np.asarray(entry["counts"], np.float64) / entry["count"] for entry in (old, new))
    pooled = (n * p + m * q) / (n + m)
    starts = merge_starts(pooled, min(BINS, int(min(n, m) / LEAST_EXPECTED)), LEAST_EXPECTED / min(n, m))
    p, q, pooled = (np.add.reduceat(shares, starts) for shares in (p, q, pooled))
    free = len(starts) - 1
    statistic = float((((p - q) ** 2) / pooled).sum() / (1 / n + 1 / m))
    units = old["units"] + new["units"] - 2
    degrees = free / max(old["spread"], new["spread"])
    # Of equal shares a rounding may leave it the root of something below 0.
    with np.errstate(invalid="ignore"):
        distance = float(np.nan_to_num(scipy.spatial.distance.jensenshannon(p, q, base=2)))
    return {
        "psi": psi(p, q, n, m),
        "noise": free * (1 / n + 1 / m),
        "jensen_shannon": distance,
        "moved": float(np.abs(p - q).sum() / 2),
        "shift": _shift(old, new),
        "mean_reference": old["mean"],
        "mean_current": new["mean"],
        "statistic": statistic,
        # Of few units the noise itself is known badly, hence F and not chi-square.
        "p_bins": float(scipy.stats.f.sf(statistic / free, degrees, degrees * units)) if free else 1.0,
        "p_mean": _p_mean(old, new, units),
        "bins": len(starts),
        "effective_reference": n,
        "effective_current": m,
    }


def _shift(old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    """Return the change of the mean in standard deviations; 0 where nothing varies, which the bins then tell."""
    spread = old["std"] or new["std"]
    return float((new["mean"] - old["mean"]) / spread) if spread else 0.0


def _p_mean(old: Mapping[str, Any], new: Mapping[str, Any], units: int) -> float:
    error = math.hypot(old["error"], new["error"])
    return float(2 * scipy.stats.t.sf(abs(new["mean"] - old["mean"]) / error, units)) if error else 1.0


def _shares(old: Mapping[str, Any], new: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, dict[str, Any]]:
    rows = {}
    for name in _common(old, new, skipped):
        if min(old[name]["effective"], new[name]["effective"]) < LEAST_VALUES:
            skipped[name] = "too few values"
        else:
            rows[name] = _compare_shares(old[name]["share"], new[name]["share"], old[name], new[name]["effective"])
    return rows


def _compare_shares(before: float, now: float, old: Mapping[str, Any], effective: float) -> dict[str, Any]:
    """Compare two shares by Cohen's h, the difference of angles, whose variance is 1 / n whatever the share."""
    h = 2 * math.asin(math.sqrt(min(max(now, 0.0), 1.0))) - 2 * math.asin(math.sqrt(before))
    z = abs(h) / math.sqrt(1 / old["effective"] + 1 / effective)
    return {"reference": before, "current": now, "h": h, "p_value": float(2 * scipy.stats.norm.sf(z))}


def _new_terms(
    reference: Mapping[str, Any], current: Mapping[str, Any], skipped: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """Hold the share of new terms against what texts of the champion's own kind would show; fewer are no drift."""
    if reference["tokens"] != current["tokens"]:
        skipped["new_terms"] = f"terms are {reference['tokens']} then, {current['tokens']} now"
        return {}
    old, new = reference["vocabulary"], current["vocabulary"]
    rows = {}
    for name, share in new_term_shares(old, new).items():
        expected = old["expected"][name]
        if not expected:
            skipped[f"new_terms: {name}"] = "not measured for the champion"
            continue
        # Occurrences of a text are alike; how much so is known of the reference.
        effective = new["occurrences"][name] * expected["effective"] / expected["count"]
        if min(effective, expected["effective"]) < LEAST_VALUES:
            skipped[f"new_terms: {name}"] = "too few values"
            continue
        row = _compare_shares(expected["share"], share, expected, effective)
        rows[name] = row | ({"p_value": 1.0} if row["h"] < 0 else {})
    return rows


def _counts(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    rows = {}
    for name in old:
        before, now = old[name], new.get(name, 0)
        noise = math.sqrt(before + now)
        rows[name] = {
            "reference": before,
            "current": now,
            "ratio": now / before if before else (None if now else 1.0),
            "p_value": float(2 * scipy.stats.norm.sf(abs(now - before) / noise)) if noise else 1.0,
        }
    return rows


def _judge(found: Mapping[str, Mapping[str, dict[str, Any]]], limits: DriftThresholds) -> None:
    """Adjust the p-values of all rows together and give each row its verdict."""
    tests = [
        (row, key) for rows in found.values() for row in rows.values() for key in ("p_bins", "p_mean", "p_value")
        if key in row
    ]  # fmt: skip
    for (row, key), value in zip(tests, holm([row[key] for row, key in tests]).tolist(), strict=True):
        row[key] = value
    shift = (limits.shift_slight, limits.shift_strong)
    for row in found["distributions"].values():
        p_bins, p_mean = row.pop("p_bins"), row.pop("p_mean")
        row["p_value"] = min(p_bins, p_mean)
        by_bins = _level(row["psi"] - row["noise"], limits.psi_slight, limits.psi_strong, p_bins < limits.alpha)
        by_mean = _level(abs(row["shift"]), *shift, p_mean < limits.alpha)
        row["verdict"] = VERDICTS[max(by_bins, by_mean)]
    for row in (*found["shares"].values(), *found["new_terms"].values()):
        row["verdict"] = VERDICTS[_level(abs(row["h"]), *shift, row["p_value"] < limits.alpha)]
    for row in found["counts"].values():
        ratio = math.inf if not row["ratio"] else max(row["ratio"], 1 / row["ratio"])
        row["verdict"] = VERDICTS[
            _level(ratio, limits.ratio_slight, limits.ratio_strong, row["p_value"] < limits.alpha)
        ]


def _level(size: float, slight: float, strong: float, certain: bool) -> int:
    return 0 if not certain or size < slight else 1 if size < strong else 2
