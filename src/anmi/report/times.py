"""Where the time of a run went: by node, with what it made, its memory, and what the store saved it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

# Nodes that took less than this share of the whole are told in one row.
_LEAST_SHARE: Final = 0.01


def times(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the rows of the table of a run's nodes, the longest first, as texts, and a sentence above it.

    Parameters
    ----------
    nodes
        ``node``, ``seconds``, ``peak_mib``; where they are known ``stage``, ``rows`` with the artifact ``of``
        which they are, and ``asked`` and ``found``: values the store was asked for, and had.

    Returns
    -------
    dict or None
        ``sentence`` and ``rows``; None where nothing was measured.

    Examples
    --------
    >>> nodes = [{"node": "encode", "seconds": 4.0, "peak_mib": 800, "of": "vectors", "rows": 1000, "asked": 4,
    ...     "found": 1}, {"node": "wire", "seconds": 0.01, "peak_mib": 100}]
    >>> found = times(nodes)
    >>> found["sentence"]
    'The 2 nodes took 4.0 s; the largest memory was 800 MiB. The store had 1 of 4 values that were asked of it.'
    >>> [(row["node"], row["seconds"], row["rate"]) for row in found["rows"]]
    [('encode', '4.0', '250'), ('1 other node', '0.01', '')]
    """
    total = sum(entry["seconds"] for entry in nodes)
    if not total:
        return None
    ordered = sorted(nodes, key=lambda entry: -entry["seconds"])
    long = [entry for entry in ordered if entry["seconds"] >= _LEAST_SHARE * total]
    short = ordered[len(long) :]
    rows = [_row(entry, total) for entry in long]
    if short:
        name = f"{len(short)} other node{'s' * (len(short) != 1)}"
        rest = {"seconds": sum(e["seconds"] for e in short), "peak_mib": max(e["peak_mib"] for e in short)}
        counts = {name: sum(e.get(name, 0) for e in short) for name in ("asked", "found")}
        rows.append(_row({"node": name} | rest | counts, total))
    asked, found = (sum(entry.get(name, 0) for entry in nodes) for name in ("asked", "found"))
    store = f" The store had {found:,} of {asked:,} values that were asked of it." if asked else ""
    return {
        "sentence": f"The {len(nodes)} nodes took {_seconds(total)} s; the largest memory was "
        f"{max(entry['peak_mib'] for entry in nodes):,} MiB.{store}",
        "rows": rows,
    }


def _row(entry: Mapping[str, Any], total: float) -> dict[str, Any]:
    seconds, rows, asked = entry["seconds"], entry.get("rows"), entry.get("asked")
    return {
        "node": str(entry["node"]),
        "stage": str(entry.get("stage", "")),
        "seconds": _seconds(seconds),
        "share": f"{100 * seconds / total:.1f}\u00a0%",
        "width": round(100 * seconds / total, 1),
        "rows": "" if rows is None else f"{rows:,}",
        "of": "" if rows is None else str(entry["of"]),
        "rate": _rate(rows / seconds) if rows and seconds else "",
        "peak": f"{entry['peak_mib']:,}",
        "store": f"{entry['found']:,} of {asked:,} ({100 * entry['found'] / asked:.0f}\u00a0%)" if asked else "",
    }


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
