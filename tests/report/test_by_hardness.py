from __future__ import annotations

import re

import pandas as pd

from anmi.evaluation.metrics import evaluate
from anmi.pipelines.evaluation.nodes import describe_hardness
from anmi.pipelines.evaluation.params import EvaluationParams
from anmi.report.by_hardness import hardness_figure, hardness_rows
from anmi.report.html import render


def found() -> dict:
    """Forty queries, the longer ones answered worse, by two systems."""
    texts = [" ".join(["what", "is", "it", "?"] * (1 + i % 8)) for i in range(40)]
    queries = pd.DataFrame({"query_id": [f"q{i}" for i in range(40)], "text": texts, "split": "test"})
    qrels = pd.DataFrame({"query_id": queries.query_id, "document_id": "d", "relevance": 1})
    tables = []
    for system, worse in (("bm25", 1), ("hans", 0)):
        run = [
            (f"q{i}", "d" if place == 1 + worse + (i % 8) // 2 else f"x{place}", 9.0 - place)
            for i in range(40)
            for place in range(1, 8)
        ]
        per_query = evaluate(qrels, pd.DataFrame(run, columns=["query_id", "document_id", "score"]))
        tables.append(per_query.reset_index().assign(system=system))
    return describe_hardness(pd.concat(tables, ignore_index=True), queries, queries.iloc[:0], EvaluationParams())


def test_a_line_per_system_falls_with_hardness() -> None:
    figure = hardness_figure(found()["profile"], "ndcg@10")
    assert figure is not None
    bm25, hans = figure.spec["data"]
    assert bm25["name"] == "BM25"
    for trace in (bm25, hans):
        assert trace["x"] == sorted(trace["x"])
        assert trace["y"][0] > trace["y"][-1]
        assert len(trace["error_y"]["array"]) == len(trace["x"]) > 2
    assert all(a < b for a, b in zip(bm25["y"], hans["y"], strict=True))
    assert hardness_figure((), "ndcg@10") is None


def test_the_table_holds_every_bucket_and_all_queries() -> None:
    rows = hardness_rows(found())
    assert {row["bucket"] for row in rows} >= {"medium", "all"}
    everything = next(row for row in rows if row["bucket"] == "all" and row["system"] == "hans")
    assert everything["queries"] == "40"
    assert everything["ranks"] == "2.5 / 2.5 / 1 / 4"


def test_the_report_has_the_section_only_where_it_was_measured(make) -> None:
    page = render(make(hardness=found()))
    assert "By the hardness of queries" in page
    assert re.search(r"<td>hans</td><td class=\"text\">all</td><td>40</td>", page)
    assert "By the hardness of queries" not in render(make())
