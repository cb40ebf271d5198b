"""How many negatives are in truth relevant, and whose truth had a part in judging them, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def false_negatives_sentence(found: Mapping[str, Any]) -> str:
    """Say how many selected negatives were in truth relevant, by :func:`anmi.evaluation.diagnostics.false_negatives`.

    Empty where it was not measured.
    """
    if not found:
        return ""
    if not found["total"]:
        return "No negatives were selected, so none of them can be relevant."
    sentence = (
        f"{found['count']:,} of {found['total']:,} {found.get('of', 'selected')} negatives "
        f"({100 * found['share']:.2f} %; 95 % interval over queries {100 * found['low']:.2f} to "
        f"{100 * found['high']:.2f} %) were in truth relevant, in "
        f"{found['queries']:,} of {found['queries_total']:,} queries."
    )
    if not found["known"]:
        return sentence + " For none of these queries are unlabelled relevant documents known: more may be hidden."
    sentence += f" Unlabelled relevant documents are known for {found['known']:,} of the queries."
    judged = judged_by(found.get("judge") or {})
    return sentence + (f" They were {judged}." if judged else "")


def false_negatives_lines(found: Mapping[str, Any]) -> list[str]:
    """Return how many negatives are in truth relevant, and whose truth had a part in judging them.

    From :func:`anmi.evaluation.diagnostics.false_negatives`, with ``of`` and ``judge``; nothing where it is not known.
    """
    if not found:
        return []
    share = "none chosen" if not found["total"] else f"{found['share']:.1%}"
    judged = judged_by(found.get("judge") or {})
    return [
        f"{found.get('of', 'selected')} negatives that are in truth relevant: {found['count']} of {found['total']} "
        f"({share}, 95 % interval over queries {found['low']:.1%} to {found['high']:.1%})",
        *([f"  {judged}"] if judged else []),
    ]


def judged_by(judge: Mapping[str, Any]) -> str:
    """Say whose truth had a part in the coefficients that judged, from :func:`anmi.judging.fusing.provenance`.

    Examples
    --------
    >>> judged_by({"without": "api_docs", "fitted_on": ["scifact"]})
    'judged by coefficients that had no part of api_docs'
    >>> judged_by({"without": None, "fitted_on": ["api_docs", "scifact"]})
    'judged by coefficients fitted on api_docs, scifact, so in-sample on these'
    """
    if not judge:
        return ""
    if judge["without"]:
        return f"judged by coefficients that had no part of {judge['without']}"
    return f"judged by coefficients fitted on {', '.join(judge['fitted_on'])}, so in-sample on these"
