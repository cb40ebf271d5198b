"""Results by what training saw of the documents that answer a query: table, figure, headline and warning.

Results of an earlier release have no buckets; of these there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd
from rich.markup import escape
from rich.table import Table

from anmi.evaluation.generalisation import ADDED, BUCKETS, FEW, UNSEEN
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


def headline(results: pd.DataFrame) -> str:
    """Say how the systems do on documents that training never saw, the best first; empty without buckets."""
    counts = bucket_counts(results)
    if not counts:
        return ""
    name = next((bucket for bucket in (UNSEEN, ADDED) if bucket in counts), None)
    if name is None:
        return "Of every test query training saw a relevant document as a positive, so nothing is known about others."
    found = [(system, lookup(results, system, METRIC, name)) for system in systems(results)]
    shown = sorted(((system, entry) for system, entry in found if entry), key=lambda each: -each[1]["value"])
    texts = [
        f"{system_name(system)} {entry['value']:.3f}"
        + (f" [{_comma(between(entry['low'], entry['high']))}]" if place == 0 else "")
        for place, (system, entry) in enumerate(shown)
    ]
    few = "; these are too few to conclude from" if counts[name] < FEW else ""
    return (
        f"On queries {_OF[name]} ({counts[name]:,}), {metric_name(METRIC)}: {', '.join(texts)}{few}." if texts else ""
    )


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
        "headline": headline(results),
        "warning": warning(results, comparisons),
        "columns": [bucket_name(name, count) for name, count in counts.items()],
        "rows": [(system_name(system), cells) for system, cells in bucket_rows(results)],
        "note": NOTE,
    }
