"""How many negatives are in truth relevant, whose truth had a part in judging them, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anmi.report.figures import KEPT, REJECTED, Figure, plot_layout, scatter

# A share of fewer says little.
_LEAST: Final = 20


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


def relevance_by_nearness(found: Mapping[str, Any] | None) -> Figure | None:
    """Draw which share of chosen and of rejected candidates is relevant, by how near they are.

    From :class:`anmi.evaluation.nearness.RelevanceByNearness`: lines for what the judge expects, open marks for what is
    relevant in truth, where that is known. None where too little was judged.
    """
    if not found:
        return None
    middles = [(low + high) / 2 for low, high in zip(found["edges"], found["edges"][1:], strict=False)]
    traces, truth = [], 0
    for name, colour, symbol, dash in (("rejected", REJECTED, "diamond", "dash"), ("chosen", KEPT, "circle", "solid")):
        rows = [
            dict(zip(("near", *found[name]), values, strict=True))
            for values in zip(middles, *found[name].values(), strict=True)
        ]
        judged = [row for row in rows if row["judged"] >= _LEAST]
        known = [row for row in rows if row["known"] >= _LEAST and row["relevant"]]
        truth += len(known)
        traces += [
            scatter(
                f"{name}, as the judge expects",
                [row["near"] for row in judged],
                [100 * row["expected"] for row in judged],
                "lines+markers",
                text=[f"of {row['judged']:,} judged" for row in judged],
                marker={"color": colour, "size": 8, "symbol": symbol},
                line={"color": colour, "width": 2.5, "dash": dash},
                hovertemplate="%{y:.2f} % %{text}",
            ),
            scatter(
                f"{name}, known to be relevant",
                [row["near"] for row in known],
                [100 * row["relevant"] / row["known"] for row in known],
                "markers",
                text=[f"{row['relevant']:,} of {row['known']:,}" for row in known],
                marker={"color": colour, "size": 11, "symbol": f"{symbol}-open", "line": {"width": 2}},
                hovertemplate="%{y:.2f} %, %{text}",
            ),
        ]
    traces = [trace for trace in traces if trace["x"]]
    if not traces:
        return None
    layout = plot_layout(420, "similarity less the positive's (right: harder)", "relevant (%)")
    layout["yaxis"] |= {"type": "log", "dtick": 1}
    note = (
        "The nearer a candidate is to the query, the more it teaches, and the likelier it is relevant after all, a "
        f"false negative.{_of_the_hardest(found)} Bins of fewer than {_LEAST} are left out."
    )
    if truth:
        note += (
            " Open marks: of queries for which unlabelled relevant documents are known, the share of candidates that "
            "are such, no mark where none is; the judge may expect others besides."
        )
    return Figure("nearness", "False negatives against hardness", note, {"data": traces, "layout": layout})


def _of_the_hardest(found: Mapping[str, Any]) -> str:
    """Say in words what the lines have to say, for who does not see them."""
    shares = []
    for name in ("chosen", "rejected"):
        bins = zip(found["edges"], found[name]["judged"], found[name]["expected"], strict=False)
        hardest = [(count, count * share) for low, count, share in bins if low >= 0 and count]
        if sum(count for count, _ in hardest) < _LEAST:
            return ""
        share = sum(part for _, part in hardest) / sum(count for count, _ in hardest)
        shares.append(f"{100 * share:.1f} % of the {name} ones")
    return f" At least as near as the positive, by the judge {' and '.join(shares)} are relevant."
