"""Results by what training saw of the documents that answer a query: table, figure, verdict and warning.

Results of an earlier release have no buckets; of these there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
from rich.markup import escape
from rich.table import Table

from anmi.evaluation.generalisation import ADDED, ALL, BUCKETS, FEW, UNSEEN
from anmi.report.figures import SYMBOLS, Figure, colours, error_bars, plot_layout, scatter
from anmi.report.inputs import (
    BM25,
    ZERO_SHOT,
    between,
    difference,
    lookup,
    metric_name,
    p_value,
    signed,
    system_name,
    systems,
)

METRIC: Final = "ndcg@10"
_PARTS: Final = {"bm25": "BM25"}
NOTE: Final = (
    "Seen: one of the query's relevant documents was a positive in training. Added: all of them were held out of "
    "training altogether, like documents that are added later. Unseen: all other queries."
)
_OF: Final = {UNSEEN: "whose documents training never saw as a positive", ADDED: "about documents held out of training"}


def bucket_counts(results: pd.DataFrame) -> dict[str, int]:
    """Return the number of queries of each bucket that has some, in the order of the tables."""
    if "bucket" not in results:
        return {}
    count = results.drop_duplicates("bucket").set_index("bucket").queries
    return {name: int(count[name]) for name in BUCKETS if name in count.index}


def bucket_name(name: str, count: int) -> str:
    """Write a bucket with its number of queries, and whether these are too few to conclude from.

    Examples
    --------
    >>> bucket_name("unseen", 104), bucket_name("added", 7)
    ('unseen (104)', 'added (7, too few)')
    """
    return f"{name} ({count:,}{', too few' if count < FEW else ''})"


def bucket_rows(
    results: pd.DataFrame, write: Callable[[float], str] = "{:.3f}".format
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return every system with (nDCG@10, interval) of each bucket as texts; empty without buckets.

    ``write`` is for the ends of intervals.
    """
    counts = bucket_counts(results)
    rows = []
    for system in systems(results) if counts else ():
        found = [lookup(results, system, METRIC, name) for name in counts]
        rows.append(
            (system, [(f"{e['value']:.3f}", between(e["low"], e["high"], write)) if e else ("–", "") for e in found])
        )
    return rows


def bucket_table(results: pd.DataFrame) -> Table | None:
    """Return nDCG@10 by bucket and system as a table for the terminal; None without buckets."""
    # Two decimals, so that three buckets fit a terminal.
    rows = bucket_rows(results, "{:.2f}".format)
    if not rows:
        return None
    table = Table(title=f"{metric_name(METRIC)} by what training saw of a query's documents", title_justify="left")
    table.add_column("system")
    for name, count in bucket_counts(results).items():
        few = "\ntoo few" if count < FEW else ""
        table.add_column(f"{name}\n{count:,} queries{few}", justify="right", no_wrap=True)
    for system, cells in rows:
        table.add_row(escape(system_name(system)), *(escape(f"{value} [{_comma(ends)}]") for value, ends in cells))
    return table


def _comma(interval: str) -> str:
    return interval.replace(" to ", ", ")


def standing_in(test_queries: str | None) -> str:
    """Say where nobody labelled the test queries; nothing for ``labels``, or where an earlier release does not say.

    Examples
    --------
    >>> standing_in("labels"), standing_in("pseudo_queries")[:41]
    ('', 'No test query has a label: pseudo-queries')
    """
    if test_queries != "pseudo_queries":
        return ""
    return (
        "No test query has a label: pseudo-queries made of documents that were held out of training stand in for them, "
        "which is a weaker proof than labels."
    )


@dataclass(frozen=True)
class Against:
    """How what is deployed does against one other system.

    Attributes
    ----------
    name, value
        The other system and its nDCG@10.
    relation
        ``above``, ``below`` or ``not clearly different from``: by whether the interval of the difference has zero.
    change, bounds, p
        The difference, its 95 % interval and the p-value, as texts.
    """

    name: str
    value: str
    relation: str
    change: str
    bounds: str
    p: str


@dataclass(frozen=True)
class Verdict:
    """What is deployed, on documents that training never saw, against every other system, as texts."""

    asked: str
    name: str
    value: str
    bounds: str
    against: tuple[Against, ...]
    few: str

    def sentence(self) -> str:
        """Return all of it as one sentence."""
        texts: dict[str, list[str]] = {}
        for other in self.against:
            told = f"{other.name} {other.value} ({other.change} [{other.bounds}], {other.p})"
            texts.setdefault(other.relation, []).append(told)
        said = "; ".join(f"{relation} {', '.join(others)}" for relation, others in texts.items())
        few = f"; {self.few}" if self.few else ""
        return f"{self.asked}, {self.name} has {metric_name(METRIC)} {self.value} [{self.bounds}]: {said}{few}."


def judged(results: pd.DataFrame, comparisons: pd.DataFrame) -> Verdict | None:
    """Return how what is deployed does on documents that training never saw, against every other system.

    What is deployed is the hybrid where there is one, else what was trained. Results without buckets are about all
    queries; None where nothing was trained or compared, or training saw the documents of all.
    """
    counts = bucket_counts(results)
    name = next((bucket for bucket in (UNSEEN, ADDED) if bucket in counts), None)
    if counts and name is None:
        return None
    bucket, names = name or ALL, systems(results)
    deployed = names[-1] if names else ""
    own = lookup(results, deployed, METRIC, bucket)
    against = []
    for other in names[:-1]:
        change = difference(comparisons, deployed, METRIC, bucket, baseline=other)
        before = lookup(results, other, METRIC, bucket)
        if change and before:
            relation = "above" if change["low"] > 0 else "below" if change["high"] < 0 else "not clearly different from"
            bounds = _comma(between(change["low"], change["high"], signed))
            texts = f"{before['value']:.3f}", relation, signed(change["difference"]), bounds, p_value(change["p_value"])
            against.append(Against(system_name(other), *texts))
    if not (own and against):
        return None
    asked = "On all test queries" if name is None else f"On queries {_OF[name]} ({counts[name]:,})"
    few = "these are too few to conclude from" if name is not None and counts[name] < FEW else ""
    bounds = _comma(between(own["low"], own["high"]))
    return Verdict(asked, system_name(deployed), f"{own['value']:.3f}", bounds, tuple(against), few)


def verdict(results: pd.DataFrame, comparisons: pd.DataFrame) -> str:
    """Return :func:`judged` as one sentence; empty where there is nothing to say."""
    counts = bucket_counts(results)
    if counts and not {UNSEEN, ADDED} & counts.keys():
        return "Of every test query training saw a relevant document as a positive, so nothing is known about others."
    found = judged(results, comparisons)
    return found.sentence() if found else ""


def composition(hybrid: Mapping[str, Any] | None) -> str:
    """Say what the hybrid is made of and what its weights rest on; empty where ranks are fused, or nothing is known."""
    weights = (hybrid or {}).get("weights")
    if not hybrid or not weights or hybrid.get("method") != "convex":
        return ""
    made = " + ".join(f"{weight:.2f} {_PARTS.get(part, part)}" for part, weight in weights.items())
    fit = hybrid.get("fit") or {}
    if not fit.get("queries"):
        return f"hybrid: {made}, weights that no dev query chose."
    which = " whose documents training did not know" if fit["kind"] == "unseen" else ""
    kind = "pseudo-queries" if fit.get("of") == "pseudo_queries" else "dev queries"
    there = ", ".join(f"{_PARTS.get(part, part)} {value:.3f}" for part, value in fit["ndcg@10"].items())
    return f"hybrid: {made}, chosen by {fit['queries']:,} {kind}{which}; {metric_name(METRIC)} there: {there}."


def warning(results: pd.DataFrame, comparisons: pd.DataFrame) -> str:
    """Say that a system fell significantly below the untrained encoder where training saw no document; else nothing."""
    counts = bucket_counts(results)
    if counts.get(UNSEEN, 0) < FEW:
        return ""
    worse = []
    for system in systems(results):
        change = None if system in (BM25, ZERO_SHOT) else difference(comparisons, system, METRIC, UNSEEN)
        if change and change["high"] < 0:
            bounds = _comma(between(change["low"], change["high"], signed))
            worse.append(
                f"{system_name(system)} ({signed(change['difference'])} [{bounds}], {p_value(change['p_value'])})"
            )
    if not worse:
        return ""
    return (
        f"Warning: on queries {_OF[UNSEEN]}, training lost quality against zero-shot: {', '.join(worse)}. What was "
        "gained elsewhere may not reach new questions."
    )


def bucket_figure(results: pd.DataFrame) -> Figure | None:
    """Dots with intervals: a row of dots per bucket, a colour and shape per system; None without buckets."""
    counts = bucket_counts(results)
    if not counts:
        return None
    names = systems(results)
    palette = colours(names)
    traces = []
    for place, system in enumerate(names):
        offset = (place - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))
        found = [(i + offset, lookup(results, system, METRIC, bucket)) for i, bucket in enumerate(counts)]
        shown = [(y, entry) for y, entry in found if entry]
        traces.append(
            scatter(
                system_name(system),
                [entry["value"] for _, entry in shown],
                [y for y, _ in shown],
                "markers",
                error_x=error_bars([entry for _, entry in shown]),
                marker={"color": palette[system], "size": 10, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                hovertemplate="%{x:.3f}",
            )
        )
    layout = plot_layout(160 + 80 * len(counts), f"mean {metric_name(METRIC)} (0 to 1)", "")
    ticks = list(range(len(counts)))
    labels = [bucket_name(name, count) for name, count in counts.items()]
    layout["yaxis"] |= {"tickvals": ticks, "ticktext": labels, "range": [len(ticks) - 0.5, -0.5], "zeroline": False}
    note = "Dots are means over the queries of a bucket, bars 95 % intervals. Further right is better."
    title = "Retrieval quality by what training saw"
    return Figure("buckets", title, note, {"data": traces, "layout": layout})


def section(results: pd.DataFrame, comparisons: pd.DataFrame) -> Mapping[str, Any] | None:
    """Return what the page shows of the buckets, but for the figure; None without buckets."""
    counts = bucket_counts(results)
    if not counts:
        return None
    return {
        "warning": warning(results, comparisons),
        "columns": [bucket_name(name, count) for name, count in counts.items()],
        "rows": [(system_name(system), cells) for system, cells in bucket_rows(results)],
        "note": NOTE,
    }
