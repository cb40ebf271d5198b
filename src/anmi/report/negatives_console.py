"""The tables of ``kedro anmi negatives``: what was mined, from where, and what became of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from anmi.judging.expected import share_sentence

_SHOWN: Final = 20


def source_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return what each part of the collection gave, from :class:`anmi.evaluation.diagnostics.BySource`."""
    table = Table(title="Negatives by source", title_justify="left")
    table.add_column("source", overflow="fold")
    for name in ("queries", "passed", "failed", "pass rate", "rows", "mean", "min", "max"):
        table.add_column(name, justify="right")
    for row in rows:
        rate = f"{row['passed'] / row['queries']:.1%}" if row["queries"] else "–"
        mean = "–" if row["negatives_mean"] is None else f"{row['negatives_mean']:.2f}"
        counts = [f"{row[name]:,}" for name in ("queries", "passed", "failed")]
        spread = ["–" if row[f"negatives_{name}"] is None else str(row[f"negatives_{name}"]) for name in ("min", "max")]
        table.add_row(escape(str(row["source"])), *counts, rate, f"{row['rows']:,}", mean, *spread)
    table.caption = "passed: the positive is within the BM25 top of its query; mean, min, max: negatives per row"
    return table


def origins_table(origins: Mapping[str, Mapping[str, int]]) -> Table:
    """Return where the negatives came from: by source, and by tier of the back-off where there is one."""
    table = Table(title="Where the negatives came from", title_justify="left")
    for name in ("by", "origin"):
        table.add_column(name)
    for name in ("negatives", "share"):
        table.add_column(name, justify="right")
    for kind, counts in (("source", origins.get("sources") or {}), ("tier", origins.get("tiers") or {})):
        total = sum(counts.values())
        for name, count in counts.items():
            table.add_row(kind, escape(name), f"{count:,}", f"{count / total:.1%}")
    return table


def dropped_table(funnel: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return which steps of a funnel dropped whole rows, by which rule; None where none did."""
    found = [row for row in funnel if row["kind"] == "rejected" and row["queries"]]
    if not found:
        return None
    table = Table(title="Rows dropped", title_justify="left")
    table.add_column("step")
    table.add_column("rows", justify="right")
    table.add_column("since")
    for row in found:
        table.add_row(escape(row["step"]), f"{row['queries']:,}", escape(row.get("rule") or ""))
    return table


def source_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the same as :func:`source_table` as sentences, one per source, for a log of any width.

    Examples
    --------
    >>> counts = {"queries": 9, "passed": 6, "failed": 3, "rows": 6}
    >>> negatives = {"negatives_mean": 6.5, "negatives_min": 4, "negatives_max": 7}
    >>> source_lines([{"source": "x"} | counts | negatives])
    ['x: 6 of 9 queries passed, 3 failed; 6 rows with 6.50 negatives each (4 to 7)']
    """
    lines = []
    for row in rows[:_SHOWN]:
        passed = f"{row['passed']:,} of {row['queries']:,} queries passed, {row['failed']:,} failed"
        spread = (
            f"{row['rows']:,} rows with {row['negatives_mean']:.2f} negatives each "
            f"({row['negatives_min']} to {row['negatives_max']})"
            if row["rows"]
            else "no rows"
        )
        lines.append(f"{row['source']}: {passed}; {spread}")
    if len(rows) > _SHOWN:
        lines.append(f"and {len(rows) - _SHOWN} more sources: kedro anmi negatives shows them")
    return lines


def expected_sentence(expected: Mapping[str, Any] | None) -> str:
    """Say which share of the negatives the judge expects to be relevant; empty where it judged none.

    From :class:`anmi.evaluation.diagnostics.Expected`.

    Examples
    --------
    >>> expected_sentence({"share": 0.021, "low": 0.01, "high": 0.042, "judged": 150, "total": 150, "doubtful": 30})
    'selected negatives that are expected to be relevant: 2.1 % (1 to 4.2) of 150 judged; 30 were taken in doubt'
    """
    if not expected:
        return ""
    share = expected["share"]
    # Runs of earlier versions have no bounds.
    told = share_sentence(share, expected["low"], expected["high"]) if "low" in expected else f"{100 * share:.2g} %"
    sentence = f"selected negatives that are expected to be relevant: {told} of {expected['judged']:,} judged"
    return sentence + (f"; {expected['doubtful']:,} were taken in doubt" if expected["doubtful"] else "")
