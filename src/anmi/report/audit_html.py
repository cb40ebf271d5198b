"""The report of an audit: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from anmi.report.audit_console import measured, setting
from anmi.report.figures import DASHES, JUDGE, SYMBOLS, Figure, error_bars, plot_layout, scatter
from anmi.report.page import embedded, page

_TEMPLATE: Final = "audit.html.jinja"
# After Okabe and Ito, as in the other figures; with more recipes than colours, shape and dash tell them apart.
_COLOURS: Final = ("#2F7FC1", "#C77700", "#009E73", "#A0568A", "#D55E00", "#0F8FA8", "#8C7A00", "#8A8F98")


def render(recipes: pd.DataFrame, judges: pd.DataFrame, summary: Mapping[Any, Any]) -> str:
    """Return the audit as one self-contained HTML document."""
    own = recipes[recipes["default"] & (recipes["failed"] == "")].sort_values("false_negative_rate", kind="stable")
    return page(
        _TEMPLATE,
        summary=summary,
        counts={f"planted: {kind}": f"{count:,}" for kind, count in summary["audit"]["planted"].items()},
        found=f"{summary['audit']['found']:.1%}",
        queries=f"{summary['audit']['queries']:,}",
        rows=[{"name": row["recipe"], "setting": setting(row)} | measured(row) for row in own.to_dict("records")],
        curves=embedded(curves(recipes)),
        judges=embedded(judge_bars(judges, summary["depth"])),
        judge_rows=[
            {"name": row["judge"], "auc": _three(row["auc"]), "low": _three(row["auc_low"]),
             "high": _three(row["auc_high"])} | {key: f"{row[key]:,}" for key in ("planted", "others", "missing")}
            for row in judges.to_dict("records")
        ],
    )  # fmt: skip


def _three(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def curves(recipes: pd.DataFrame) -> Figure | None:
    """False-negative rate against gap over each recipe's sweep; the recipe as it is stands out, with its interval.

    Recipes without a threshold are single points. None where no recipe chose a negative.
    """
    known = recipes[recipes["false_negative_rate"].notna()]
    if known.empty:
        return None
    traces = []
    for place, (name, found) in enumerate(known.groupby("recipe", sort=True)):
        colour, symbol = _COLOURS[place % len(_COLOURS)], SYMBOLS[place % len(SYMBOLS)]
        # In the order of the threshold, if one is set: a line in the order of the gap would zigzag.
        sweep, own = found[found["threshold"].notna()].sort_values("threshold"), found[found["default"]]
        texts = [_hover(row) for row in sweep.to_dict("records")]
        dash = DASHES[(place // len(_COLOURS)) % len(DASHES)] if place >= len(_COLOURS) else "solid"
        if len(sweep) > 1:
            traces.append(
                scatter(
                    str(name),
                    sweep["gap"].tolist(),
                    (100 * sweep["false_negative_rate"]).tolist(),
                    "lines+markers",
                    legendgroup=name,
                    showlegend=own.empty,
                    text=texts,
                    hoverinfo="text",
                    line={"color": colour, "width": 1.5, "dash": dash},
                    marker={"color": colour, "size": 5},
                )
            )
        if len(own):
            rows = own.rename(columns={"false_negative_rate_low": "low", "false_negative_rate_high": "high"}).to_dict(
                "records"
            )
            traces.append(
                scatter(
                    str(name),
                    own["gap"].tolist(),
                    (100 * own["false_negative_rate"]).tolist(),
                    "markers",
                    legendgroup=name,
                    text=[_hover(row) for row in own.to_dict("records")],
                    hoverinfo="text",
                    error_y=error_bars(rows, "false_negative_rate", 100),
                    marker={"color": colour, "size": 12, "symbol": symbol},
                )
            )
    layout = plot_layout(520, "hardness: gap between positive and negative (smaller is harder)", "false negatives (%)")
    layout["yaxis"] |= {"rangemode": "tozero"}
    note = (
        "Large marks: the recipes as they are, with 95 % intervals; small ones: other values of their main threshold. "
        "Better is down (clean) and left (hard)."
    )
    return Figure("curves", "False negatives against hardness", note, {"data": traces, "layout": layout})


def _hover(row: Mapping[Any, Any]) -> str:
    values = measured(row)
    lines = [f"<b>{html.escape(row['recipe'])}</b>", html.escape(setting(row))]
    lines += [
        f"false negatives {values['false_negative_rate']} ({values['interval']})",
        f"gap {values['gap']}",
        f"coverage {values['coverage']}",
    ]
    return "<br>".join(lines)


def judge_bars(judges: pd.DataFrame, depth: int) -> Figure | None:
    """Bars from one half, which is chance, to the AUC of each judge; None where none could be measured."""
    known = judges[judges["auc"].notna()]
    if known.empty:
        return None
    bars = {
        "type": "bar", "orientation": "h", "base": 0.5, "name": "AUC",
        "x": (known["auc"] - 0.5).tolist(), "y": [html.escape(name) for name in known["judge"]],
        "error_x": error_bars(
            known.rename(columns={"auc_low": "low", "auc_high": "high"}).to_dict("records"), "auc"
        ),
        "marker": {"color": JUDGE}, "hoverinfo": "text",
        "text": [
            f"{row['auc']:.3f} ({row['auc_low']:.3f} to {row['auc_high']:.3f})" for row in known.to_dict("records")
        ],
        "textposition": "none",
    }  # fmt: skip
    layout = plot_layout(120 + 26 * len(known), "AUC (0.5 is chance, 1 tells them all apart)", "")
    layout["yaxis"] |= {"autorange": "reversed", "type": "category"}
    layout["xaxis"] |= {"range": [min(0.48, float(known["auc_low"].min()) - 0.02), 1.0]}
    layout |= {"showlegend": False}
    note = f"Planted against other candidates in the dense top {depth} of each query; lines are 95 % intervals."
    return Figure("judges", "What each judge knows", note, {"data": [bars], "layout": layout})
