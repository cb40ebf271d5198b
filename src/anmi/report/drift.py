"""The page about drift: whether today's training data are still like those of the champion."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.evaluation.binned import merge_starts
from anmi.report.drift_text import (
    SCORE_NAMES,
    differences,
    drift_name,
    findings,
    number,
    percent,
    verdict_sentence,
)
from anmi.report.figures import NEUTRAL, TRAINED_COLOURS, Figure, _layout
from anmi.report.page import embedded, page

_TEMPLATE: Final = "drift.html.jinja"
_ORDER: Final = ("strong", "slight", "none")
# Of a drawn histogram: finer than a comparison, and coarse enough not to draw noise.
_BINS: Final = 40
_LEAST: Final = 0.005
_TAIL: Final = 0.002
_TICKS: Final = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)


def render(drift: Mapping[str, Any], current: Mapping[str, Any], reference: Mapping[str, Any] | None = None) -> str:
    """Return the drift as one self-contained HTML document.

    Parameters
    ----------
    drift
        From :func:`anmi.evaluation.drift.drift`.
    current, reference
        The profiles of today's and of the champion's training data, from
        :func:`anmi.evaluation.training_profile.profile`; the latter None or empty where there is no champion.

    Returns
    -------
    str
        UTF-8 text with plotly.js inside (about 5 MB). Its content security policy forbids fetching anything.
    """
    before = reference if drift["compared"] else None
    made = current.get("made_with") or {}
    return page(
        _TEMPLATE,
        title=made.get("collection", "training data"),
        made={name: str(value) for name, value in made.items() if name != "collection"},
        tokens=current["tokens"],
        verdict=drift["verdict"] if drift["compared"] else "",
        sentence=verdict_sentence(drift),
        findings=findings(drift),
        differences=differences(drift),
        rows=_distribution_rows(drift),
        shares=_share_rows(drift),
        counts=_count_rows(drift, current),
        skipped={drift_name(name): reason for name, reason in drift.get("not_compared", {}).items()},
        figures=[embedded(figure) for figure in figures(drift, current, before)],
    )


def figures(
    drift: Mapping[str, Any], current: Mapping[str, Any], reference: Mapping[str, Any] | None = None
) -> list[Figure]:
    """Return a histogram of each distribution, the champion's beside today's, the strongest drift first."""
    rows = drift.get("distributions", {})
    old = (reference or {}).get("distributions", {})
    made = []
    for name, entry in current["distributions"].items():
        verdict = rows.get(name, {}).get("verdict", "none")
        known = old.get(name)
        if known is not None and known["edges"] != entry["edges"]:
            known = None
        made.append((_ORDER.index(verdict), _histogram(name, entry, known, verdict if name in rows else "")))
    return [figure for _, figure in sorted(made, key=lambda pair: pair[0])]


def _histogram(name: str, new: Mapping[str, Any], old: Mapping[str, Any] | None, verdict: str) -> Figure:
    """Draw densities, since bins are of unequal width; probabilities over a scale that spreads both ends."""
    groups = [("champion", old, NEUTRAL, "dash")] if old else []
    groups.append(("now", new, TRAINED_COLOURS[0], "solid"))
    shares = [np.asarray(entry["counts"], np.float64) / entry["count"] for _, entry, _, _ in groups if entry]
    borders, starts = _borders(name, np.asarray(new["edges"], np.float64), np.mean(shares, axis=0))
    traces = []
    for (group, entry, colour, dash), mine in zip(groups, shares, strict=True):
        density = 100 * np.add.reduceat(mine, starts)[: len(borders) - 1] / np.diff(borders)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{group} ({(entry or new)['count']:,})",
                "x": borders.tolist(),
                "y": [*density.tolist(), float(density[-1])],
                "line": {"color": colour, "width": 2.5, "dash": dash, "shape": "hv"},
                "hoverinfo": "skip",
            }
        )
    layout = _layout(360, html.escape(drift_name(name)), "density")
    layout["yaxis"] |= {"rangemode": "tozero", "showticklabels": False}
    if _is_probability(name):
        layout["xaxis"] |= {"tickvals": [_logit(p) for p in _TICKS], "ticktext": [f"{p:g}" for p in _TICKS]}
    title = drift_name(name)
    note = f"Drift: {verdict}. " if verdict else "Not compared. "
    note += "Each line encloses all values of its side, whose number stands in the legend."
    return Figure(f"drift-{name}", f"{title[0].upper()}{title[1:]}", note, {"data": traces, "layout": layout})


def _borders(
    name: str, edges: NDArray[np.float64], shares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the borders of the drawn bins and where they start; the open bins get the width of their neighbours."""
    if _is_probability(name):
        edges = np.log(edges / (1 - edges))
    # What has only positive edges cannot be below 0.
    first = 0.0 if edges[0] > 0 else 2 * edges[0] - edges[1]
    outer = np.concatenate([[first], edges, [2 * edges[-1] - edges[-2]]])
    starts = merge_starts(shares, _BINS, _LEAST)
    borders = outer[starts].copy()
    # Rare values at either end would flatten the drawing; they are counted in the bins at its ends.
    cumulated = np.cumsum(shares)
    low, high = np.searchsorted(cumulated, [_TAIL, 1 - _TAIL])
    borders[0] = outer[min(low, *(starts[1:] - 1))] if len(starts) > 1 else outer[low]
    return np.append(borders, max(outer[high + 1], outer[starts[-1] + 1])), starts


def _is_probability(name: str) -> bool:
    kind, _, score = name.partition("_")
    return kind in ("positive", "negative") and score.startswith("p_") and score in SCORE_NAMES


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _sorted(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(rows, key=lambda row: _ORDER.index(row["verdict"]))


def _distribution_rows(drift: Mapping[str, Any]) -> list[dict[str, str]]:
    return _sorted([
        {
            "name": drift_name(name),
            "verdict": row["verdict"],
            "before": number(row["mean_reference"]),
            "now": number(row["mean_current"]),
            "shift": f"{row['shift']:+.2f}",
            "psi": f"{row['psi']:.3f}",
            "noise": f"{row['noise']:.3f}",
            "distance": f"{row['jensen_shannon']:.3f}",
            "moved": percent(row["moved"]),
            "p": _p_value(row["p_value"]),
        }
        for name, row in drift.get("distributions", {}).items()
    ])  # fmt: skip


def _share_rows(drift: Mapping[str, Any]) -> list[dict[str, str]]:
    named = [(f"new terms in {name}", row) for name, row in drift.get("new_terms", {}).items()]
    named += [(drift_name(name), row) for name, row in drift.get("shares", {}).items()]
    return _sorted([
        {
            "name": name,
            "verdict": row["verdict"],
            "before": percent(row["reference"]),
            "now": percent(row["current"]),
            "h": f"{row['h']:+.2f}",
            "p": _p_value(row["p_value"]),
        }
        for name, row in named
    ])  # fmt: skip


def _count_rows(drift: Mapping[str, Any], current: Mapping[str, Any]) -> list[dict[str, str]]:
    found = drift.get("counts", {})
    return [
        {
            "name": drift_name(name),
            "verdict": found[name]["verdict"] if name in found else "–",
            "before": f"{found[name]['reference']:,}" if name in found else "–",
            "now": f"{count:,}",
        }
        for name, count in current["counts"].items()
    ]


def _p_value(value: float) -> str:
    return "<\u00a00.001" if value < 0.001 else f"{value:.3f}"
