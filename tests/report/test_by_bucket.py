"""Results by what training saw: in words, on the console, on the page."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from anmi.report.by_bucket import bucket_counts, bucket_figure, bucket_table, headline, warning
from anmi.report.console import results_table
from anmi.report.html import render

VALUES = {
    "bm25": {"seen": 0.66, "unseen": 0.68, "added": 0.7},
    "zero_shot": {"seen": 0.41, "unseen": 0.4, "added": 0.3},
    "anmi_2_1": {"seen": 0.9, "unseen": 0.55, "added": 0.5},
}
COUNTS = {"seen": 196, "unseen": 104, "added": 7}


def results(counts: dict[str, int] | None = None) -> pd.DataFrame:
    counts = COUNTS if counts is None else counts
    rows = [
        {"recipe": system, "bucket": bucket, "queries": counts.get(bucket, 307), "metric": "ndcg@10",
         "value": value, "low": value - 0.05, "high": value + 0.05}
        for system, values in VALUES.items()
        for bucket, value in ({"all": 0.6} | values).items() if bucket == "all" or bucket in counts
    ]  # fmt: skip
    return pd.DataFrame(rows)


def compared(low: float = -0.1, high: float = -0.02, bucket: str = "unseen") -> pd.DataFrame:
    row: dict[str, Any] = {"system": "anmi_2_1", "baseline": "zero_shot", "metric": "ndcg@10", "p_value": 0.01}
    change = {"difference": (low + high) / 2, "low": low, "high": high}
    whole = row | {"bucket": "all", "queries": 307, "difference": 0.2, "low": 0.1, "high": 0.3}
    # Rows of a bucket come last, as evaluation leaves them, and must not pass for those of all queries.
    return pd.DataFrame([whole, row | {"bucket": bucket, "queries": 104} | change])


def printed(table: Any) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80).print(table)
    return stream.getvalue()


def test_the_headline_is_about_unseen_documents_the_best_system_first() -> None:
    assert headline(results()) == (
        "On queries whose documents training never saw as a positive (104), nDCG@10: BM25 0.680 [0.630, 0.730], "
        "anmi_2_1 0.550, zero-shot 0.400."
    )
    assert headline(results({"seen": 200, "unseen": 19})).endswith("; these are too few to conclude from.")


def test_without_unseen_queries_the_headline_says_what_it_is_about() -> None:
    assert headline(results({"added": 40})).startswith("On queries about documents held out of training (40)")
    assert "nothing is known about others" in headline(results({"seen": 40}))


def test_the_console_shows_every_bucket_with_its_queries_and_fits() -> None:
    shown = printed(bucket_table(results()))
    assert "0.550 [0.50, 0.60]" in shown
    assert all(text in shown for text in ("196 queries", "104 queries", "7 queries", "too few"))
    assert shown.count("too few") == 1
    assert "…" not in shown


def test_all_other_tables_are_still_about_all_queries() -> None:
    shown = printed(results_table(results(), compared()))
    assert shown.count("0.600") == 3
    assert "+0.200 [+0.100, +0.300]" in shown


@pytest.mark.parametrize("bounds", [(-0.05, 0.01), (0.01, 0.05), (np.nan, np.nan)])
def test_only_a_significant_loss_on_unseen_queries_is_warned_of(bounds: tuple[float, float]) -> None:
    said = warning(results(), compared())
    assert said.count("Warning:") == 1
    assert "anmi_2_1 (−0.060 [−0.100, −0.020], p = 0.010)" in said
    assert warning(results(), compared(*bounds)) == ""
    assert warning(results(), compared(bucket="seen")) == ""
    assert warning(results({"seen": 200, "unseen": 12}), compared()) == ""


def test_baselines_are_not_warned_of() -> None:
    assert warning(results(), compared().assign(system="bm25")) == ""


def test_results_of_an_earlier_release_have_nothing_to_show(make: Any) -> None:
    old = make()
    assert bucket_counts(old.results) == {}
    assert (headline(old.results), warning(old.results, old.comparisons)) == ("", "")
    assert bucket_table(old.results) is None and bucket_figure(old.results) is None
    assert "By what training saw" not in render(old)


def test_the_page_has_a_table_a_figure_and_the_warning(make: Any) -> None:
    page = render(make(results=results(), comparisons=compared()))
    assert "By what training saw" in page
    assert re.search(r"<th[^>]*>added \(7, too few\)</th>", page)
    assert 'data-plot="buckets"' in page
    assert page.count("Warning: on queries") == 1
    assert "Warning: on queries" not in render(make(results=results(), comparisons=compared(0.01, 0.05)))


def test_the_figure_has_a_row_of_dots_per_bucket() -> None:
    figure = bucket_figure(results())
    assert figure is not None
    assert figure.spec["layout"]["yaxis"]["ticktext"] == ["seen (196)", "unseen (104)", "added (7, too few)"]
    trained = figure.spec["data"][-1]
    assert trained["x"] == [0.9, 0.55, 0.5]
    assert [round(y) for y in trained["y"]] == [0, 1, 2]
