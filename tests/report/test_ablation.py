"""What an ablation says in words, on the console and on its page."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from anmi.report.ablation import cells, legend, sentences, show, tables
from anmi.report.ablation_html import render


def row(recipe: str, value: float, collection: str = "docs", **more: Any) -> dict[str, Any]:
    return {
        "collection": collection, "encoder": "static", "recipe": recipe, "seed_count": 2, "queries": 50,
        "judgments": "original", "ndcg_10": value, "low": value - 0.02, "high": value + 0.02, "spread": 0.001,
        "baseline": "plain", "difference": None, "p_value": None, "p_holm": None, "focus": "ours",
        "focus_difference": None, "p_holm_focus": None, "false_negative_rate": 0.01,
        "false_negative_rate_low": 0.005, "false_negative_rate_high": 0.02,
        "false_negative_rate_from": "equivalents", "coverage": 1.0,
        "rows": 10, "promoted": 0, "train_seconds": 3.0, "search_seconds": 1.0, "memory_mb": 900.0,
        "buckets": {"seen": {"queries": 20, "ndcg_10": 0.6}, "unseen": {"queries": 30, "ndcg_10": 0.4}},
    } | more  # fmt: skip


@pytest.fixture
def results() -> dict[str, Any]:
    return {
        "set": "two", "description": "Two.", "recipes": ["plain", "ours", "weak"], "seeds": [1, 2], "encoder": "static",
        "collections": ["docs", "facts"], "baseline": "plain", "focus": "ours", "ours": ["ours", "weak"], "level": 0.05,
        "confidence": 0.95, "date": "2026-01-01", "machine": {"processor": "x", "cores": 2, "device": "cpu"},
        "cells": {"finished": 11, "reused": 0, "failed": 1},
        "from": {"docs": {"note": "3,000 of them."}, "facts": {"note": ""}},
        "failed": [{"collection": "docs", "recipe": "weak", "seed": 2, "error": "a | b <script>"}],
        "rows": [
            row("plain", 0.50, false_negative_rate=None, false_negative_rate_from="no mined negatives",
            focus_difference=0.04, p_holm_focus=0.001),
            row("ours", 0.54, difference=0.04, p_holm=0.001),
            row("weak", 0.47, difference=-0.03, p_holm=0.02, focus_difference=0.07, p_holm_focus=0.0004),
            row("plain", 0.50, "facts", focus_difference=0.001, p_holm_focus=0.6),
            row("ours", 0.501, "facts", difference=0.001, p_holm=0.6),
            row("weak", 0.52, "facts", difference=0.02, p_holm=0.01, focus_difference=-0.019, p_holm_focus=0.03),
        ],
        "means": [
            {"recipe": name, "judgments": judgments, "collections": 2, "ndcg_10": value, "low": value, "high": value}
            for judgments in ("best known", "original")
            for name, value in (("ours", 0.52), ("plain", 0.5), ("weak", 0.49))
        ],
    }  # fmt: skip


def test_what_does_not_earn_its_place_is_said_with_figures(results: dict[str, Any]) -> None:
    focus, weak, failed = sentences(results)
    assert focus.startswith("ours has place 1 of 3")
    assert "better than plain on 1, weak on 1 of 2 collections" in focus
    assert "to weak on facts (-0.0190)" in focus
    assert weak == (
        "weak does not earn its place: against plain it is significantly better on 1 of 2 collections: facts (+0.0200, "
        "p 0.010) and significantly worse on 1 of 2 collections: docs (-0.0300, p 0.020)."
    )
    assert failed == "docs, weak, seed 2 failed: a | b <script>"


def test_a_recipe_that_changes_nothing_does_not_earn_its_place_either(results: dict[str, Any]) -> None:
    results["rows"] = [r | {"p_holm": None if r["p_holm"] is None else 0.9} for r in results["rows"]]
    assert "ours does not earn its place" in " ".join(sentences(results))


def test_there_is_a_table_per_collection_with_the_best_first(results: dict[str, Any]) -> None:
    (docs, _, first), (facts, _, second) = tables(results)
    assert (docs, facts) == ("docs", "facts")
    assert [row["recipe"] for row in first] == ["ours", "plain", "weak"]
    assert second[0]["recipe"] == "weak", "the best of the other collection"
    assert cells(first[2], results)["Δ to plain"] == "−0.0300 ▼"
    assert cells(second[1], results)["Δ to plain"] == "+0.0010 ·"
    assert cells(first[1], results)["Δ to plain"] == "–", "the baseline is not tested against itself"


def test_the_page_is_safe_and_has_a_figure_per_table(results: dict[str, Any]) -> None:
    page = render(results)
    assert page.count('data-plot="cells-') == 2
    assert "a | b &lt;script&gt;" in page
    assert "False negatives not known of plain: no mined negatives." in page
    assert "unseen (30)" in page


def test_the_console_shows_every_recipe(results: dict[str, Any]) -> None:
    out = io.StringIO()
    show(results, Console(file=out, width=200))
    shown = out.getvalue()
    assert shown.count("plain") >= 3
    assert "0.5400" in shown
    assert "does not earn its place" in shown
    assert cells(results["rows"][0], results)["false negatives"] == "–"
    assert cells(results["rows"][1], results)["false negatives"] == "1.00% (0.50 to 2.00)"


@pytest.mark.parametrize(
    ("refit", "said"), [(True, "trained again on train and dev"), (False, "of a single pass on train")]
)
def test_it_says_which_pass_the_models_are_of(results: dict[str, Any], refit: bool, said: str) -> None:
    assert said in legend(results | {"refit": refit})
    assert said in render(results | {"refit": refit})


def test_kinds_of_queries_are_shown_with_their_number_and_small_ones_marked(results: dict[str, Any]) -> None:
    added = {"added": {"queries": 7, "ndcg_10": 0.25}}
    for found in results["rows"]:
        found["buckets"] = found["buckets"] | added
    shown = io.StringIO()
    show(results, Console(file=shown, width=200))
    for text in (shown.getvalue(), render(results)):
        assert all(name in text for name in ("seen (20)", "unseen (30)", "added (7, too few)", "0.2500"))
