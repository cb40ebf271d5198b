"""The report: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from anmi.report import by_bucket, figures
from anmi.report.by_hardness import hardness_figure, hardness_rows
from anmi.report.console import expected_sentence
from anmi.report.false_negatives import false_negatives_sentence, relevance_by_nearness
from anmi.report.funnel import funnel
from anmi.report.hardening import hardening
from anmi.report.inputs import (
    HEADLINE_METRICS,
    ZERO_SHOT,
    ReportInputs,
    between,
    difference,
    first_pass,
    lookup,
    method_name,
    metric_name,
    origin_counts,
    p_value,
    routes,
    signed,
    step_name,
    system_name,
    systems,
)
from anmi.report.page import embedded, packed, page
from anmi.report.pseudo_queries import pseudo_queries
from anmi.report.sparse_terms import sparse_terms
from anmi.report.times import times

_TEMPLATE: Final = "report.html.jinja"


def render(inputs: ReportInputs) -> str:
    """Return the report as one self-contained HTML document."""
    parameters = json.dumps(inputs.parameters, indent=2, ensure_ascii=False, default=str) if inputs.parameters else ""
    return page(
        _TEMPLATE,
        summary=_summary(inputs.summary),
        verdict=by_bucket.judged(inputs.results, inputs.comparisons),
        verdict_sentence=by_bucket.verdict(inputs.results, inputs.comparisons),
        composition=by_bucket.composition(inputs.hybrid),
        columns=[metric_name(metric) for metric in HEADLINE_METRICS],
        results=_results(inputs),
        metrics=embedded(figures.metrics(inputs.results)),
        standing_in=by_bucket.standing_in(inputs.test_queries),
        buckets=by_bucket.section(inputs.results, inputs.comparisons),
        bucket_figure=embedded(by_bucket.bucket_figure(inputs.results)),
        funnel=embedded(funnel(inputs.funnel)),
        funnel_rows=_funnel_rows(inputs),
        routes={name: f"{count:,}" for name, count in routes(inputs.funnel).items()},
        origins=_origins(inputs),
        expected=expected_sentence(inputs.expected),
        false_negatives=false_negatives_sentence(inputs.false_negatives),
        nearness=embedded(relevance_by_nearness(inputs.nearness)),
        gap=embedded(figures.elo_gap(inputs.gap)),
        distributions=[embedded(figure) for figure in figures.distributions(inputs.distributions)],
        judges=_judges(inputs.judges),
        judge_figures=[embedded(figure) for figure in figures.judges(inputs.judges)],
        pseudo_queries=pseudo_queries(inputs.pseudo_queries),
        sparse_terms=sparse_terms(inputs.sparse_terms),
        training=embedded(figures.training(inputs.training_log)),
        passes=inputs.passes,
        hardness=embedded(hardness_figure(inputs.hardness.get("profile", ()), inputs.hardness.get("metric", ""))),
        hardness_rows=hardness_rows(inputs.hardness),
        hardness_metric=metric_name(inputs.hardness.get("metric", "")),
        curriculum=embedded(figures.curriculum(first_pass(inputs.training_log))),
        hardening=_hardening(inputs),
        queries=packed(json.dumps(inputs.queries, ensure_ascii=False, allow_nan=False)) if inputs.queries else "",
        query_count=len(inputs.queries["rows"]) if inputs.queries else 0,
        left_out=inputs.queries["left_out"] if inputs.queries else 0,
        before_after=inputs.before_after,
        times=times(inputs.times),
        parameters=parameters,
    )


def _summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: str(summary.get(name) or "not stated") for name in ("collection", "recipe", "encoder", "date")}
    counts = {name: f"{value:,}" for name, value in (summary.get("counts") or {}).items()}
    known = summary.get("recipe") and summary.get("collection")
    title = f"{named['recipe']} on {named['collection']}" if known else "ANMI run"
    named["prompts"] = str(summary.get("prompts") or "")
    return named | {"title": title, "counts": counts, "versions": dict(summary.get("versions") or {})}


def _results(inputs: ReportInputs) -> list[dict[str, Any]]:
    names = systems(inputs.results)
    palette = figures.colours(names)
    rows = []
    for system in names:
        cells = []
        for metric in HEADLINE_METRICS:
            found = lookup(inputs.results, system, metric)
            change = None if system == ZERO_SHOT else difference(inputs.comparisons, system, metric=metric)
            cells.append(
                {
                    "value": f"{found['value']:.3f}" if found else "–",
                    "interval": between(found["low"], found["high"]) if found else "",
                    "change": signed(change["difference"]) if change else "",
                    "change_interval": between(change["low"], change["high"], signed) if change else "",
                    "p": p_value(change["p_value"]) if change else "",
                }
            )
        rows.append({"name": system_name(system), "colour": palette[system], "cells": cells})
    return rows


def _funnel_rows(inputs: ReportInputs) -> list[dict[str, str]]:
    total = next((row["candidates"] for row in inputs.funnel if row["kind"] == "total"), 0)
    return [
        {
            "step": step_name(row),
            "rule": str(row.get("rule") or ""),
            "candidates": f"{row['candidates']:,}",
            "share": _percent(row["candidates"], total),
            "queries": f"{row['queries']:,}",
        }
        for row in inputs.funnel
        if row["candidates"] or row["queries"]
    ]


def _origins(inputs: ReportInputs) -> list[dict[str, str]]:
    found = origin_counts(inputs.origins)
    total = {kind: sum(count for other, _, count in found if other == kind) for kind, _, _ in found}
    return [
        {"by": kind, "name": name, "negatives": f"{count:,}", "share": _percent(count, total[kind])}
        for kind, name, count in found
    ]


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.1f}\u00a0%" if total else "–"


def _judges(judges: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    rows = []
    for name, entry in judges.items():
        reliability = entry.get("reliability") or {}
        pairs = sum(row["count"] for row in reliability.get("bins") or [])
        rows.append(
            {
                "name": name,
                "auc": _three(entry.get("auc")),
                "error": _three(reliability.get("expected_calibration_error")) if pairs else "–",
                "pairs": f"{pairs:,}" if pairs else "–",
                "method": method_name(entry.get("method")),
            }
        )
    return rows


def _three(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}"


def _hardening(inputs: ReportInputs) -> dict[str, Any] | None:
    found = hardening(first_pass(inputs.training_log), inputs.knowledge, inputs.neighbours, inputs.kept_epoch)
    return found and found | {"figures": [embedded(figure) for figure in found["figures"]]}
