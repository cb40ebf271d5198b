"""The figures of the report, as plotly specifications in plain dictionaries.

Colours of text, grid and background are left to the page, which knows whether it is shown light or
dark.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.evaluation.generalisation import ALL
from anmi.report import sentences as words

# After Okabe and Ito, darkened or lightened until each has a contrast of at least 3 : 1 on both
# backgrounds.
BASELINE_COLOURS: Final = {"bm25": "#C77700", "zero_shot": "#8A8F98", "hybrid": "#3F9B4B"}
TRAINED_COLOURS: Final = ("#2F7FC1", "#0F8FA8", "#8C7A00", "#A0568A")
POSITIVE, KEPT, REJECTED = "#009E73", "#CC79A7", "#D55E00"
JUDGE, NEUTRAL = "#7D74D4", "#8A8F98"
ZONES: Final = (
    ("danger", 100.0),
    ("soft", 200.0),
    ("Goldilocks", 400.0),
    ("medium", 600.0),
    ("easy", math.inf),
)
SYMBOLS: Final = ("square", "diamond", "circle", "triangle-up", "x", "star")
# Characters of a line; plotly breaks none.
_NOTE_WIDTH: Final = 100
DASHES: Final = ("dash", "dashdot", "longdash", "longdashdot", "dot")
SCORES: Final = {
    "dense": "cosine similarity", "bm25": "BM25 score",
    "p_relevant": "calibrated probability of relevance",
    "p_evidence": "probability of relevance by the evidence", "elo": "Elo (points)",
}  # fmt: skip

_TAKEN: Final = "rejected"
_NOT_DRAWN: Final = "not drawn"
# Colour and pattern of the bars of the funnel, by where candidates went.
_WAYS: Final = {
    "all": ("#6B7A90", ""),
    _TAKEN: (REJECTED, "/"),
    "uncertain": (NEUTRAL, "."),
    "promoted": (POSITIVE, "x"),
    _NOT_DRAWN: ("#B08FA6", "-"),
    "negatives": (KEPT, ""),
}
# A share of fewer says little.
_LEAST: Final = 20
# Sources of drawn negatives by their name in the log: how they are written, and their colour; from
# easy to hard.
SOURCES: Final = {
    "share_random": ("random", NEUTRAL),
    "share_graph": ("graph", TRAINED_COLOURS[0]),
    "share_edit": ("edit", KEPT),
    "share_latent": ("latent", REJECTED),
}


@dataclass(frozen=True)
class Figure:
    """One plot: its title, a note on how to read it, its traces and its layout."""

    name: str
    title: str
    note: str
    traces: Sequence[Mapping[str, Any]]
    layout: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        """The plotly specification."""
        return {"data": self.traces, "layout": self.layout}

    def drawn(self) -> Any:
        """Return a plotly figure for a notebook, with title and note.

        Examples
        --------
        >>> layout = plot_layout(300, "gap", "")
        >>> drawn = Figure("gap", "Gaps", "Right: easier.", [], layout).drawn()
        >>> drawn.layout.title.text, drawn.layout.title.subtitle.text
        ('Gaps', 'Right: easier.')
        """
        import plotly.graph_objects as go

        lines = textwrap.wrap(html.escape(self.note, quote=False), _NOTE_WIDTH)
        top = 85 + 18 * len(lines)
        bottom = 60
        room = {
            "margin": {"l": 60, "r": 20, "t": top, "b": bottom},
            "height": self.layout["height"] + top + bottom,
        }
        title = {
            "text": html.escape(self.title, quote=False),
            "subtitle": {"text": "<br>".join(lines)},
        }
        place = {"y": 1 - 20 / room["height"], "yanchor": "top", "yref": "container"}
        return go.Figure(self.spec | {"layout": self.layout | room | {"title": title | place}})


def colours(recipes: Iterable[str]) -> dict[str, str]:
    """Return one colour per system, the same wherever it is shown."""
    trained = [recipe for recipe in recipes if recipe not in BASELINE_COLOURS]
    return BASELINE_COLOURS | {
        r: TRAINED_COLOURS[i % len(TRAINED_COLOURS)] for i, r in enumerate(trained)
    }


def metrics(results: pd.DataFrame) -> Figure | None:
    """Dots with intervals: one row of dots per metric, one colour and shape per system."""
    rows = [(words.metric_name(metric), metric, ALL) for metric in words.HEADLINE_METRICS]
    axis = "mean over test queries (0 to 1)"
    title = "Retrieval quality of each system"
    return _dots(results, rows, axis, "metrics", title, "the test queries")


def buckets(results: pd.DataFrame) -> Figure | None:
    """Dots with intervals: a row per bucket, a colour and shape per system."""
    counts = words.bucket_counts(results)
    rows = [(words.bucket_name(name, count), words.METRIC, name) for name, count in counts.items()]
    axis = f"mean {words.metric_name(words.METRIC)} (0 to 1)"
    title = "Retrieval quality on labelled, unlabelled and new documents"
    return _dots(results, rows, axis, "buckets", title, "these queries")


def _dots(
    results: pd.DataFrame,
    rows: Sequence[tuple[str, str, str]],
    x: str,
    name: str,
    title: str,
    over: str,
) -> Figure | None:
    """Draw a row of dots for each (label, metric, bucket), and a colour and shape per system."""
    names = words.systems(results)
    palette = colours(names)
    symbols = dict(zip(names, cycle(SYMBOLS), strict=False))
    traces = []
    # The search of all parts comes first.
    for place, system in enumerate(reversed(names)):
        offset = (place - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))
        entries = [
            (i + offset, words.lookup(results, system, metric, of))
            for i, (_, metric, of) in enumerate(rows)
        ]
        shown = [(y, entry) for y, entry in entries if entry]
        traces.append(
            scatter(
                words.system_name(system),
                [entry["value"] for _, entry in shown],
                [y for y, _ in shown],
                "markers",
                error_x=error_bars([entry for _, entry in shown]),
                hovertemplate="%{x:.3f}",
                marker={"color": palette[system], "size": 10, "symbol": symbols[system]},
            )
        )
    if not any(trace["x"] for trace in traces):
        return None
    layout = plot_layout(140 + 65 * len(rows), x, "")
    ticks = list(range(len(rows)))
    labels = [label for label, _, _ in rows]
    layout["yaxis"] |= {
        "tickvals": ticks,
        "ticktext": labels,
        "range": [len(ticks) - 0.5, -0.5],
        "zeroline": False,
    }
    note = f"Dots are means over {over}, bars 95 % intervals. Further right is better."
    return Figure(name, title, note, traces, layout)


def distributions(by_column: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """Score histograms of positives, kept and rejected candidates, one figure per score."""
    figures = []
    for column, entry in by_column.items():
        rejected = {
            f"rejected: {step}": np.asarray(counts) for step, counts in entry["rejected"].items()
        }
        every = {"positives": entry["positives"], "kept": entry["kept"]}
        every |= {"rejected": sum(rejected.values(), np.zeros(1))} | (
            rejected if len(rejected) > 1 else {}
        )
        dashes = ("solid", "dash", "dot", *DASHES)
        colours_of = {"positives": POSITIVE, "kept": KEPT}
        traces = [
            scatter(
                f"{name} ({int(np.sum(counts)):,})",
                entry["edges"],
                _shares(counts),
                hovertemplate="%{y:.1f} %",
                visible=True if place < 3 else "legendonly",
                line={
                    "color": colours_of.get(name, REJECTED),
                    "width": 2.5 if place < 3 else 1.2,
                    "shape": "hv",
                    "dash": dashes[place if place < 3 else 3 + (place - 3) % len(DASHES)],
                },
            )
            for place, (name, counts) in enumerate(every.items())
            if np.sum(counts)
        ]
        if traces:
            score = SCORES.get(column, column)
            layout = plot_layout(460, score, "share of the group (%)")
            note = "Each group adds up to 100 %; its size stands in the legend."
            note += " Click a step in the legend to show it alone." if len(rejected) > 1 else ""
            title = f"{score[0].upper()}{score[1:]}: who was kept"
            figures.append(Figure(f"scores-{column}", title, note, traces, layout))
    return figures


def training(log: pd.DataFrame) -> Figure | None:
    """Draw loss, gradient, temperature, curriculum and dev queries over the steps."""
    if log.empty:
        return None

    def line(
        name: str, values: pd.Series, width: float = 2.5, shape: str = "linear", **options: Any
    ) -> dict[str, Any]:
        style = {
            "color": TRAINED_COLOURS[0],
            "width": width,
            "shape": shape,
            "dash": options.pop("dash", "solid"),
        }
        return {"name": name, "y": plain(values), "line": style} | options

    smooth = log["loss"].rolling(max(1, len(log) // 40), min_periods=1).mean()
    thin = line("loss, each step", log["loss"], 1, opacity=0.5)
    panels = [("loss (nats)", [thin, line("loss, moving mean", smooth)])]
    note = (
        "Thin: the loss of each step; thick: its moving mean. Dots: when dev queries were measured."
    )
    if "grad_norm" in log and log["grad_norm"].notna().any():
        panels.append(("gradient norm", [line("gradient norm", log["grad_norm"], 1)]))
    if "temperature" in log and log["temperature"].notna().any():
        panels.append(("temperature", [line("temperature", log["temperature"])]))
    if "high" in log:
        by_elo = log["high"].max() > 1
        lower = line("window, from", log["low"], shape="hv")
        upper = line("window, to", log["high"], shape="hv", dash="dash")
        window = [lower] if np.isinf(log["high"]).all() else [upper, lower | {"fill": "tonexty"}]
        panels += [("difficulty", [line("difficulty", log["difficulty"], shape="hv")])]
        panels += [("gap (Elo)" if by_elo else "place in the pool", window)]
        panels += (
            [("inside (%)", [line("negatives inside", 100 * log["inside"], 1, "hv")])]
            if "inside" in log
            else []
        )
        of = (
            "gaps to the positive"
            if by_elo
            else "places in a row's pool, 0 the first and 1 the last"
        )
        note += f" The negatives of a step are drawn inside the window of {of}; "
        note += "if a row has too few there, the nearest outside follow."
    for column, title in (("dev_ndcg@10", "dev nDCG@10"), ("dev_loss", "dev loss (nats)")):
        if column in log and log[column].notna().any():
            dev = log.dropna(subset=[column])
            mark = line(title, dev[column], x=dev["step"].tolist(), mode="lines+markers")
            panels.append((title, [mark]))
    return over_steps("training", "The training, step by step", note, log, panels)


_DEV_QUERIES: Final = {
    "labelled": "documents with training labels",
    "unlabelled": "other documents",
    "new": "new documents",
    "pseudo": "new documents, asked by pseudo-queries",
}


def alphas(training_summary: Mapping[str, Any]) -> Figure | None:
    """Return dev nDCG@10 against the share of the training that is kept, if it was measured."""
    curve = pd.DataFrame(training_summary.get("alphas") or [])
    if curve.empty:
        return None
    # A table of token vectors has learned their lengths at 0, and its start lies before that.
    start = -0.25 if (curve["alpha"] == 0).any() else 0.0
    places = curve["alpha"].replace("start", start).astype(float)
    traces = []
    for colour, (name, rows) in zip(
        cycle(TRAINED_COLOURS), curve.groupby("queries", sort=False), strict=False
    ):
        label = f"{_DEV_QUERIES[str(name)]} ({rows['count'].iloc[0]:,})"
        bars = error_bars(rows.rename(columns={"ndcg@10": "value"}).to_dict("records"))
        style = {"line": {"color": colour, "width": 2}, "error_y": bars}
        values = (places[rows.index].tolist(), plain(rows["ndcg@10"]))
        traces.append(scatter(label, *values, "lines+markers", **style))
    layout = plot_layout(340, "α, the share of the way to the last weights", "dev nDCG@10")
    ticks = places.drop_duplicates()
    labels = curve["alpha"][ticks.index].astype(str)
    layout["xaxis"] |= {"tickvals": ticks.tolist(), "ticktext": labels.tolist()}
    chosen = training_summary["alpha"]
    border = {"type": "line", "y0": 0, "y1": 1, "yref": "paper"}
    border["line"] = {"color": NEUTRAL, "width": 1.5, "dash": "dot"}
    place = start if chosen == "start" else chosen
    layout["shapes"] = [border | {"x0": place, "x1": place}]
    note = (
        f"Dotted: what is kept, {chosen}. In brackets: how many dev queries. A bar is the 95 %"
        " interval of the difference to the start; where it does not reach the height of the start,"
        " training brings or costs something. At 0 a table of token vectors has learned their"
        " lengths, and no directions."
    )
    return Figure("alphas", "How much of the training is kept", note, traces, layout)


def over_steps(
    name: str,
    heading: str,
    note: str,
    log: pd.DataFrame,
    panels: Sequence[tuple[str, list[dict[str, Any]]]],
) -> Figure:
    """Return a figure of plots over the steps one above the other, each a title and its lines.

    Dotted lines stand at the steps at which a curriculum goes on to another stage, or back to one.
    """
    step = log["step"].tolist()
    layout = plot_layout(60 + 190 * len(panels), "step (optimiser updates)", "")
    traces = []
    for i, (title, lines) in enumerate(panels):
        axis = "" if i == 0 else str(i + 1)
        top = 1 - i / len(panels)
        place = {"domain": [top - 0.86 / len(panels), top], "automargin": True}
        layout[f"yaxis{axis}"] = {"title": {"text": title, "standoff": 8}} | place
        traces += [
            {"type": "scatter", "mode": "lines", "x": step, "yaxis": f"y{axis}"} | line
            for line in lines
        ]
    layout["xaxis"]["anchor"] = f"y{len(panels)}" if len(panels) > 1 else "y"
    stages = log.get("stage", log.get("tier", log["step"] * 0))
    stage_starts = log["step"][stages.diff().fillna(0) != 0].tolist()
    dotted = {"color": NEUTRAL, "width": 1.5, "dash": "dot"}
    border = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "line": dotted}
    layout["shapes"] = [border | {"x0": start, "x1": start} for start in stage_starts]
    note += " Dotted: another stage of the curriculum begins." if stage_starts else ""
    return Figure(name, heading, note, traces, layout | {"showlegend": False})


def judges(by_name: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """Draw predicted against observed probability of relevance, one figure per measured judge."""
    curves = {
        name: curve
        for name, entry in by_name.items()
        if (curve := entry.get("reliability") or {}).get("bins")
    }
    figures = []
    for place, (judge, reliability) in enumerate(curves.items()):
        bins = pd.DataFrame(reliability["bins"])
        sizes = 7 + 17 * np.sqrt(bins["count"] / max(bins["count"].max(), 1.0))
        traces = [
            scatter(
                "perfect", [0, 1], [0, 1], line={"color": NEUTRAL, "dash": "dot"}, hoverinfo="skip"
            ),
            scatter(
                judge,
                bins.predicted.tolist(),
                bins.observed.tolist(),
                "lines+markers",
                text=[f"{count:,} pairs" for count in bins["count"]],
                line={"color": JUDGE, "width": 1.5},
                marker={"color": JUDGE, "size": sizes.tolist(), "opacity": 0.85},
                hovertemplate="predicted %{x:.2f}, observed %{y:.2f}, %{text}",
            ),
        ]
        layout = plot_layout(
            420, "predicted probability of relevance", "observed share of relevant pairs"
        )
        layout["xaxis"]["range"] = layout["yaxis"]["range"] = [-0.05, 1.05]
        note = (
            "On the dotted line the judge is right as often as it says. The larger the dot, the"
            " more judged pairs."
        )
        if (error := reliability.get("expected_calibration_error")) is not None:
            note += f" Expected calibration error {error:.3f}."
        figures.append(Figure(f"judge-{place}", f"Calibration: {judge}", note, traces, layout))
    return figures


def elo_gap(gap: Mapping[str, Any]) -> Figure | None:
    """Histogram of the Elo gap between positive and negatives, with the borders of the zones."""
    if not gap.get("count"):
        return None
    edges = np.asarray(gap["edges"], np.float64)
    bars = {
        "type": "bar",
        "x": ((edges[1:] + edges[:-1]) / 2).tolist(),
        "y": list(gap["counts"]),
        "width": np.diff(edges).tolist(),
        "marker": {"color": KEPT, "opacity": 0.9},
        "hovertemplate": "gap %{x:.0f}: %{y:,} negatives",
    }
    low = min(*edges.tolist(), 0.0)
    high = max(*edges.tolist(), 700.0)
    layout = plot_layout(400, "Elo of the positive − Elo of the negative (points)", "negatives")
    above = {
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "xanchor": "left",
        "showarrow": False,
        "textangle": -35,
    }
    ends = [low, *(min(border, high) for _, border in ZONES)]
    notes = [
        above | {"x": (max(ends[i], low) + ends[i + 1]) / 2, "text": name}
        for i, (name, _) in enumerate(ZONES)
    ]
    line = {
        "type": "line",
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "dash"},
    }
    shapes = [line | {"x0": border, "x1": border} for _, border in ZONES[:-1]]
    layout |= {"shapes": shapes, "annotations": notes, "showlegend": False, "bargap": 0}
    layout["margin"] |= {"t": 64}
    layout["xaxis"] |= {"range": [low, high]}
    note = (
        f"{gap['count']:,} negatives, mean gap {gap['mean']:.0f}, median {gap['median']:.0f}."
        " Dashed lines are the borders of the zones: a small gap means as good as the positive,"
        " hence doubtful."
    )
    title = "How far the negatives lie below their positive"
    return Figure("elo-gap", title, note, [bars], layout)


def funnel(rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw what each step took out of all candidates, and what is left as negatives."""
    total = next((row["candidates"] for row in rows if row["kind"] == "total"), 0)
    if not total:
        return None
    bars, idle_steps = _funnel_bars(rows, total)
    traces = []
    for outcome, (colour, shape) in _WAYS.items():
        counts = {label: count for label, count, kind in bars if kind == outcome}
        if counts:
            trace = {
                "type": "bar",
                "orientation": "h",
                "name": outcome,
                "y": [*counts],
                "x": [*counts.values()],
                "text": [f"{count:,}{_of_all(count / total)}" for count in counts.values()],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": colour, "pattern": {"shape": shape}},
                "hovertemplate": "%{y}: %{text}",
            }
            traces.append(trace)
    layout = plot_layout(120 + 36 * len(bars), "candidates (logarithmic)", "")
    layout["barmode"] = "overlay"
    layout["xaxis"] |= {
        "type": "log",
        # Room for the longest label on a phone.
        "range": [-0.1, 1.6 * math.log10(total) + 0.3],
        "tickvals": [10**power for power in range(0, int(math.log10(total)) + 1, 2)],
    }
    labels = [label for label, _, _ in bars]
    layout["yaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": labels[::-1]}
    note = "The steps in their order, with their share of all candidates."
    if idle_steps:
        note += f" These took nothing: {', '.join(idle_steps)}."
    title = "What each step took out of the candidates"
    return Figure("funnel", title, note, traces, layout)


def _funnel_bars(
    rows: Sequence[Mapping[str, Any]], total: int
) -> tuple[list[tuple[str, int, str]], list[str]]:
    """Return label, candidates and outcome of each bar, and the steps that took nothing."""
    bars = [("all candidates", total, "all")]
    idle_steps = []
    for row in rows:
        kind = row["kind"]
        if not (words.is_step(row) or kind == "undecided"):
            continue
        step = str(row["step"]).replace("_", " ")
        if not row["candidates"]:
            idle_steps.append(step)
            continue
        outcome = kind if kind in _WAYS else _TAKEN
        if kind == "undecided":
            outcome = _NOT_DRAWN
        bars.append((html.escape(step), row["candidates"], outcome))
    negatives = sum(row["candidates"] for row in rows if row["kind"] == "negative")
    if negatives:
        bars.append(("→ negatives", negatives, "negatives"))
    return bars, idle_steps


def _of_all(share: float) -> str:
    shown = f"{100 * share:.1f}" if share >= 0.0005 else "< 0.1"
    return f" ({shown} %)" if share < 1 else ""


def relevance_by_nearness(curves: Mapping[str, Any] | None) -> Figure | None:
    """Draw which share of chosen and of rejected candidates is relevant, by how near they are.

    From :class:`anmi.evaluation.diagnostics.RelevanceByNearness`: lines for what the judge expects,
    open marks for what is relevant in truth, where that is known. None where too little was judged.
    """
    if not curves:
        return None
    edges = np.asarray(curves["edges"])
    nearness = (edges[:-1] + edges[1:]) / 2
    styles = (("rejected", REJECTED, "diamond", "dash"), ("chosen", KEPT, "circle", "solid"))
    expected_lines = []
    known_marks = []
    for name, colour, symbol, dash in styles:
        rows = pd.DataFrame(curves[name]).assign(nearness=nearness)
        judged = rows[rows.judged >= _LEAST]
        expected_lines.append(
            scatter(
                f"{name}, as the judge expects",
                judged.nearness.tolist(),
                (100 * judged.expected).tolist(),
                "lines+markers",
                text=[f"of {count:,} judged" for count in judged.judged],
                hovertemplate="%{y:.2f} % %{text}",
                marker={"color": colour, "size": 8, "symbol": symbol},
                line={"color": colour, "width": 2.5, "dash": dash},
            )
        )
        relevant = rows[(rows.known >= _LEAST) & (rows.relevant > 0)]
        marker = {"color": colour, "size": 11, "symbol": f"{symbol}-open", "line": {"width": 2}}
        known_marks.append(
            scatter(
                f"{name}, known to be relevant",
                relevant.nearness.tolist(),
                (100 * relevant.relevant / relevant.known).tolist(),
                "markers",
                text=[f"{row.relevant:,} of {row.known:,}" for row in relevant.itertuples()],
                hovertemplate="%{y:.2f} %, %{text}",
                marker=marker,
            )
        )
    pairs = zip(expected_lines, known_marks, strict=True)
    traces = [trace for pair in pairs for trace in pair if trace["x"]]
    if not traces:
        return None
    layout = plot_layout(420, "similarity less the positive's (right: harder)", "relevant (%)")
    layout["yaxis"] |= {"type": "log", "dtick": 1}
    note = (
        "The nearer a candidate is to the query, the more it teaches, and the likelier it is a"
        f" false negative.{words.of_the_hardest(curves, _LEAST)} Bins of fewer than {_LEAST} are"
        " left out."
    )
    if any(marks["x"] for marks in known_marks):
        note += (
            " Open marks show the share of candidates that are known to be relevant though no label"
            " says so."
        )
    title = "False negatives against hardness"
    return Figure("nearness", title, note, traces, layout)


def hardness(rows: Sequence[Mapping[str, Any]], metric: str) -> Figure | None:
    """Draw a metric against the hardness of queries, one line with its intervals per system.

    Rows have ``system, hardness, value, low, high, queries``; low and high may be None.
    """
    if not rows:
        return None
    names = list(dict.fromkeys(str(row["system"]) for row in rows))
    palette = colours(names)
    traces = []
    for place, system in enumerate(names):
        mine = [row for row in rows if row["system"] == system]
        traces.append(
            scatter(
                words.system_name(system),
                [row["hardness"] for row in mine],
                [row["value"] for row in mine],
                "lines+markers",
                error_y=error_bars(mine),
                text=[f"{row['queries']:,} queries" for row in mine],
                marker={
                    "color": palette[system],
                    "size": 8,
                    "symbol": SYMBOLS[place % len(SYMBOLS)],
                },
                line={"color": palette[system], "width": 2},
                hovertemplate="hardness %{x:.2f}: %{y:.3f}, %{text}",
            )
        )
    layout = plot_layout(420, "hardness of the query (0 to 1)", f"mean {words.metric_name(metric)}")
    note = (
        "Each dot is a group of about equally many queries, bars are 95 % intervals. Further right"
        " is harder."
    )
    title = "Retrieval quality by the hardness of queries"
    return Figure("hardness", title, note, traces, layout)


def sources(log: pd.DataFrame) -> Figure | None:
    """Stack the shares of the sources of drawn negatives over the steps; None for mined ones."""
    shown = {
        column: entry
        for column, entry in SOURCES.items()
        if column in log and (log[column] > 0).any()
    }
    if not shown:
        return None
    window = max(1, len(log) // 100)
    # The mean of what adds up to 1 adds up to 1.
    lines = [
        {
            "name": name,
            "y": plain(100 * log[column].rolling(window, min_periods=1).mean()),
            "stackgroup": "sources",
            "line": {"width": 0.5, "color": colour},
            "fillcolor": colour,
            "hovertemplate": "%{y:.1f} %",
        }
        for column, (name, colour) in shown.items()
    ]
    note = f"Of the negatives drawn in a step, moving mean of {window} steps."
    title = "Where negatives came from as training went on"
    figure = over_steps("sources", title, note, log, [("negatives (%)", lines)])
    figure.layout.update({"height": 340, "showlegend": True, "hovermode": "x unified"})
    figure.layout["yaxis"] |= {"range": [0, 100], "domain": [0, 1]}
    return figure


def latent_neighbours(table: pd.DataFrame) -> Figure | None:
    """Draw the five nearest documents of the first six watched queries over the steps.

    A row for each query and rank, a column for each time that the index was made, in each cell the
    entity. Colours say whether it is another one than the query asks for, and so a negative.
    """
    if table.empty:
        return None
    shown = table[table.query_id.isin(sorted(set(table.query_id))[:6])]
    kind = np.select([shown.usable, shown.uri == shown.own_uri], [2, 0], 1)
    uri = shown.uri.where(shown.uri != "", shown.document_id).map(html.escape)
    cells = shown.assign(kind=kind, uri=uri).set_index(["query_id", "rank", "step"])[
        ["kind", "uri"]
    ]
    kinds, uris = cells["kind"].unstack(), cells["uri"].unstack(fill_value="")  # noqa: PD010
    ways = {"own entity": POSITIVE, "barred": NEUTRAL, "negative": REJECTED}
    trace = {
        "type": "heatmap",
        "x": [*map(str, kinds.columns)],
        "z": [plain(line) for line in kinds.to_numpy(float)],
        "y": [html.escape(f"{query} · {rank}") for query, rank in kinds.index],
        "customdata": uris.to_numpy().tolist(),
        "text": uris.map(lambda uri: uri.rpartition("/")[2]).to_numpy().tolist(),
        "texttemplate": "%{text}",
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
        "zmin": -0.5,
        "zmax": 2.5,
        "xgap": 1,
        "ygap": 1,
        "colorscale": [
            [(i + end) / 3, colour] for i, colour in enumerate(ways.values()) for end in (0, 1)
        ],
        "colorbar": {"tickvals": [0, 1, 2], "ticktext": [*ways]},
    }
    layout = plot_layout(80 + 20 * len(kinds), "step (optimiser updates)", "")
    layout["xaxis"]["type"] = "category"
    layout["yaxis"]["autorange"] = "reversed"
    note = (
        "Rows: query and rank. Columns: when the index was made. Cells: the neighbour's entity, its"
        " URI on hovering."
    )
    title = "The five nearest documents as training went on"
    return Figure("neighbours", title, note, [trace], layout)


def scatter(name: str, x: Any, y: Any, mode: str = "lines", **options: Any) -> dict[str, Any]:
    """Return a trace of lines or markers; the name is escaped."""
    return {"type": "scatter", "mode": mode, "name": html.escape(name), "x": x, "y": y, **options}


def error_bars(rows: Iterable[Mapping[Any, Any]]) -> dict[str, Any]:
    """Return the intervals of rows with ``value, low, high`` as `error_x` or `error_y`."""
    ends = np.array([(row["value"], row["low"], row["high"]) for row in rows], float).reshape(-1, 3)
    above = np.maximum(ends[:, 2] - ends[:, 0], 0)
    below = np.maximum(ends[:, 0] - ends[:, 1], 0)
    shape = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 4}
    return shape | {"array": plain(above), "arrayminus": plain(below)}


def plot_layout(height: int, x: str, y: str) -> dict[str, Any]:
    """Return the layout that all figures share, with the titles of the axes."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 16, "b": 8},
        "xaxis": {"title": {"text": x}, "automargin": True},
        "yaxis": {"title": {"text": y}, "automargin": True},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hovermode": "closest",
    }


def _shares(counts: Any) -> list[float]:
    """Percentages per bin; the last one twice, so that the step line ends at the last edge."""
    shares = (100 * np.asarray(counts, np.float64) / max(np.sum(counts), 1)).tolist()
    return [*shares, shares[-1]]


def plain(values: Iterable[float]) -> list[float | None]:
    """Replace what JSON cannot hold by None."""
    return [float(value) if math.isfinite(value) else None for value in values]
