"""Are today's training data still like those of the champion? Two profiles are compared, and noise is allowed for.

A verdict needs both: a difference that is not noise (a test, adjusted for the number of tests) and one that is large.
Tables alone cannot tell what a model will make of the difference, so a verdict is a reason to look, not to stop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import scipy
from pydantic import BaseModel, ConfigDict, Field, model_validator

from anmi.evaluation.significance import holm
from anmi.evaluation.vocabulary import new_term_share

Verdict = Literal["none", "slight", "strong"]
VERDICTS: Final[tuple[Verdict, ...]] = ("none", "slight", "strong")
# Without as many values on both sides nothing is said.
LEAST_VALUES: Final = 10


class DriftThresholds(BaseModel):
    """From where on a difference is called slight or strong; it must not be noise besides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: float = Field(
        0.01, gt=0, lt=1, description="Chance that any of all the tests of a comparison takes noise for a difference, "
        "adjusted by Holm. 0.01: at most about four such nights in a year.",
    )  # fmt: skip
    distance_slight: float = Field(
        0.1, gt=0, lt=1, description="Kolmogorov-Smirnov distance of two distributions, the largest difference of "
        "their cumulative shares. 0.1: a normal distribution shifted by a quarter of its standard deviation.",
    )  # fmt: skip
    distance_strong: float = Field(
        0.2, gt=0, lt=1, description="Likewise. 0.2: shifted by half its standard deviation, a medium effect to Cohen."
    )
    shift_slight: float = Field(0.2, gt=0, description="Change of a share as Cohen's h. 0.2: what he calls small.")
    shift_strong: float = Field(0.5, gt=0, description="Likewise. 0.5: what Cohen calls a medium effect.")
    ratio_slight: float = Field(
        1.2, gt=1, description="Ratio of two counts, the larger over the smaller. 1.2: more than data grow in a night."
    )
    ratio_strong: float = Field(
        1.5, gt=1, description="Likewise. 1.5: a third is gone, or half as much came, which is mostly a broken export."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_psi(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and {"psi_slight", "psi_strong"} & given.keys():
            raise ValueError(
                "psi_slight and psi_strong are gone with the population stability index; set distance_slight and "
                "distance_strong, the Kolmogorov-Smirnov distance (0.1 and 0.2 are about a PSI of 0.1 and 0.25)"
            )
        return given


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
        scores depend on besides the data and is not the same. Then by name ``distributions`` (``verdict, distance,
        shift, mean_reference, mean_current, p_value``), ``shares``, ``new_terms`` (``verdict, reference, current, h,
        p_value``) and ``counts`` (``verdict, reference, current, ratio, p_value``), and ``not_compared``, reasons by
        name. ``distance`` is that of Kolmogorov and Smirnov, ``shift`` the change of the mean in standard deviations;
        p-values are adjusted.

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
        "shares": _shares(reference["shares"], current["shares"], skipped),
        "new_terms": _new_terms(reference, current, skipped),
        "counts": {name: _counted(reference["counts"][name], current["counts"][name]) for name in current["counts"]},
    }
    _judge(found, limits)
    worst = max((VERDICTS.index(row["verdict"]) for rows in found.values() for row in rows.values()), default=0)
    made = (reference["made_with"], current["made_with"])
    different = {
        name: {"reference": made[0].get(name), "current": made[1].get(name)}
        for name in dict.fromkeys([*made[0], *made[1]])
        if made[0].get(name) != made[1].get(name)
    }
    return {"compared": True, "verdict": VERDICTS[worst], "different": different, **found, "not_compared": skipped}


def _incomparable(reference: Mapping[str, Any] | None, current: Mapping[str, Any]) -> str:
    if not reference:
        return "there is no champion to compare with"
    if reference.get("format") != current.get("format"):
        return "the champion's profile has another format; the next champion's can be compared"
    return ""


def _common(old: Mapping[str, Any], new: Mapping[str, Any], skipped: dict[str, str]) -> list[str]:
    skipped |= {name: "not measured now" for name in old if name not in new}
    skipped |= {name: "not measured for the champion" for name in new if name not in old}
    return [name for name in old if name in new]


def _distributions(
    reference: Mapping[str, Any], current: Mapping[str, Any], skipped: dict[str, str]
) -> dict[str, dict[str, Any]]:
    old, new = reference["distributions"], current["distributions"]
    rows = {}
    for name in _common(old, new, skipped):
        if name.endswith("_length") and reference["tokens"] != current["tokens"]:
            skipped[name] = f"counted in {reference['tokens']} then, in {current['tokens']} now"
        elif min(len(old[name]), len(new[name])) < LEAST_VALUES:
            skipped[name] = "too few values"
        else:
            rows[name] = _compared(old[name], new[name])
    return rows


def _compared(old: Sequence[float], new: Sequence[float]) -> dict[str, Any]:
    test = scipy.stats.ks_2samp(old, new, method="asymp")
    before, now, spread = float(np.mean(old)), float(np.mean(new)), float(np.std(old) or np.std(new))
    return {
        "distance": float(test.statistic),
        "shift": (now - before) / spread if spread else 0.0,
        "mean_reference": before,
        "mean_current": now,
        "p_value": float(test.pvalue),
    }


def _shares(old: Mapping[str, Any], new: Mapping[str, Any], skipped: dict[str, str]) -> dict[str, dict[str, Any]]:
    rows = {}
    for name in _common(old, new, skipped):
        if min(old[name]["count"], new[name]["count"]) < LEAST_VALUES:
            skipped[name] = "too few values"
        else:
            rows[name] = _compared_shares(
                old[name]["share"], old[name]["count"], new[name]["share"], new[name]["count"]
            )
    return rows


def _compared_shares(before: float, n: int, now: float, m: int) -> dict[str, Any]:
    """Compare shares of n and m queries or texts; each is one draw, though a share may be of what stands in it."""
    # A mean of shares may round to a little more than 1.
    before, now = min(before, 1.0), min(now, 1.0)
    h = 2 * math.asin(math.sqrt(now)) - 2 * math.asin(math.sqrt(before))
    table = np.array([[before * n, (1 - before) * n], [now * m, (1 - now) * m]])
    p_value = float(scipy.stats.chi2_contingency(table).pvalue) if table.any(axis=0).all() else 1.0
    return {"reference": before, "current": now, "h": h, "p_value": p_value}


def _new_terms(
    reference: Mapping[str, Any], current: Mapping[str, Any], skipped: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """Hold the share of new terms against what texts of the champion's own kind would show; fewer are no drift."""
    if reference["tokens"] != current["tokens"]:
        skipped["new_terms"] = f"terms are {reference['tokens']} then, {current['tokens']} now"
        return {}
    rows = {}
    for name, old in reference["vocabulary"].items():
        new = current["vocabulary"][name]
        if min(old["texts"], new["texts"]) < LEAST_VALUES:
            skipped[f"new_terms: {name}"] = "too few values"
            continue
        row = _compared_shares(old["expected"], old["texts"], new_term_share(old, new), new["texts"])
        rows[name] = row | ({"p_value": 1.0} if row["h"] < 0 else {})
    return rows


def _counted(before: int, now: int) -> dict[str, Any]:
    # Of two counts at the same rate each of their sum falls to either side with one half.
    p_value = float(scipy.stats.binomtest(now, before + now).pvalue) if before + now else 1.0
    ratio = now / before if before else (None if now else 1.0)
    return {"reference": before, "current": now, "ratio": ratio, "p_value": p_value}


def _judge(found: Mapping[str, Mapping[str, dict[str, Any]]], limits: DriftThresholds) -> None:
    """Adjust the p-values of all rows together and give each row its verdict."""
    tests = [(kind, row) for kind, rows in found.items() for row in rows.values()]
    shift = (limits.shift_slight, limits.shift_strong)
    borders = {
        "distributions": (limits.distance_slight, limits.distance_strong), "shares": shift, "new_terms": shift,
        "counts": (limits.ratio_slight, limits.ratio_strong),
    }  # fmt: skip
    for (kind, row), p_value in zip(tests, holm([row["p_value"] for _, row in tests]).tolist(), strict=True):
        row["p_value"] = p_value
        if kind == "counts":
            size = max(row["ratio"], 1 / row["ratio"]) if row["ratio"] else math.inf
        else:
            size = row["distance"] if kind == "distributions" else abs(row["h"])
        slight, strong = borders[kind]
        large = p_value < limits.alpha and size >= slight
        row["verdict"] = "none" if not large else "strong" if size >= strong else "slight"
