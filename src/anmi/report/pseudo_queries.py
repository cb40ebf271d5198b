"""The section of the report about the queries that were made of the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pseudo_queries(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a sentence and the rows of the table: of each kind how many were made, kept, and dropped for a reason.

    Parameters
    ----------
    summary
        The artifact ``pseudo_query_summary``: ``documents``, ``held_out``, and under ``kinds`` by name ``made``,
        ``kept`` and ``dropped``, counts by reason.

    Returns
    -------
    dict or None
        None where no kind was asked for.

    Examples
    --------
    >>> counts = {"made": 9, "kept": 6, "dropped": {"too_short": 1, "boilerplate": 2}}
    >>> pseudo_queries({"documents": 1200, "held_out": 110, "kinds": {"title": counts}})["rows"]
    [{'kind': 'title', 'made': '9', 'kept': '6', 'dropped': 'boilerplate 2, too short 1'}]
    """
    kinds = summary.get("kinds") or {}
    if not kinds:
        return None
    rows = [
        {
            "kind": kind,
            "made": f"{counts['made']:,}",
            "kept": f"{counts['kept']:,}",
            "dropped": ", ".join(
                f"{reason.replace('_', ' ')} {count:,}"
                for reason, count in sorted((counts.get("dropped") or {}).items(), key=lambda item: -item[1])
            )
            or "–",
        }
        for kind, counts in kinds.items()
    ]
    kept = sum(counts["kept"] for counts in kinds.values())
    sentence = (
        f"{kept:,} pseudo-queries were made of {summary['documents']:,} documents and kept. Those of "
        f"{summary['held_out']:,} documents are held out of training, to measure what it does with documents that come "
        "later."
    )
    return {"sentence": sentence, "rows": rows}
