"""Results by what training saw: in words, on the console, on the page."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.report.conftest import printed

from anmi.report.console import bucket_table, results_table
from anmi.report.figures import buckets
from anmi.report.html import render
from anmi.report.sentences import composition, copies_notice, verdict, warning

VALUES = {
    "bm25": {"labelled": 0.66, "unlabelled": 0.68, "new": 0.7},
    "zero_shot": {"labelled": 0.41, "unlabelled": 0.4, "new": 0.3},
    "anmi_2_1": {"labelled": 0.9, "unlabelled": 0.55, "new": 0.5},
}
COUNTS = {"labelled": 196, "unlabelled": 104, "new": 7}


def results(counts: dict[str, int] | None = None) -> pd.DataFrame:
    counts = COUNTS if counts is None else counts
    columns = ["recipe", "bucket", "queries", "metric", "value", "low", "high"]
    rows = [
        (system, bucket, counts.get(bucket, 307), "ndcg@10", value, value - 0.05, value + 0.05)
        for system, values in VALUES.items()
        for bucket, value in ({"all": 0.6} | values).items()
        if bucket == "all" or bucket in counts
    ]
    return pd.DataFrame(rows, columns=columns)


def compared(low: float = -0.1, high: float = -0.02, bucket: str = "unlabelled") -> pd.DataFrame:
    row: dict[str, Any] = {"system": "anmi_2_1", "baseline": "zero_shot", "metric": "ndcg@10"}
    row["p_value"] = 0.01
    change = {"difference": (low + high) / 2, "low": low, "high": high}
    whole = row | {"bucket": "all", "queries": 307, "difference": 0.2, "low": 0.1, "high": 0.3}
    # Rows of a bucket come last, as evaluation leaves them, and must not pass for those of all
    # queries.
    return pd.DataFrame([whole, row | {"bucket": bucket, "queries": 104} | change])


def deployed() -> pd.DataFrame:
    """Comparisons of the last system with each other one, in the bucket of unlabelled documents."""
    columns = ["bucket", "baseline", "difference", "low", "high", "p_value"]
    rows = [
        ("unlabelled", "bm25", -0.13, -0.2, -0.05, 0.0001),
        ("unlabelled", "zero_shot", 0.15, -0.01, 0.31, 0.07),
        ("all", "zero_shot", 0.3, 0.2, 0.4, 0.0001),
    ]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(system="anmi_2_1", queries=104, metric="ndcg@10")


def test_the_verdict_is_about_what_is_deployed_on_unlabelled_documents() -> None:
    made = results()
    assert (
        verdict(made, deployed())
        == "On documents without a training label (104 queries), anmi_2_1 has nDCG@10 0.550 [0.500,"
        " 0.600]: below BM25 0.680 (−0.130, p < 0.001); not clearly different from zero-shot"
        " 0.400 (+0.150, p = 0.070). Too few to measure: 7 on new documents."
    )
    few = results({"labelled": 200, "unlabelled": 19})
    said = verdict(few, deployed().assign(bucket="all"))
    assert said.startswith("On all test queries (307 queries), anmi_2_1 has nDCG@10 0.600")
    assert said.endswith("Too few to measure: 19 on documents without a training label.")
    assert verdict(made, pd.DataFrame()) == ""
    counts = {"all": 5, "unlabelled": 104, "labelled": 3, "new": 2}
    few_labels = made.assign(queries=made.bucket.map(counts))
    few_labels["bucket"] = few_labels.bucket.replace("unlabelled", "pseudo")
    said = verdict(few_labels, deployed().assign(bucket="pseudo"))
    assert said.startswith("Too few to measure: 5 test queries, and 20")
    assert "On pseudo-queries made of new documents (104 queries), anmi_2_1 has" in said


def test_of_too_few_queries_nothing_is_compared_anywhere(make: Any) -> None:
    few = results().assign(queries=12), compared().assign(queries=12)
    assert verdict(*few).startswith("Too few to measure: 12 test queries, and 20")
    shown = printed(results_table(*few)), render(make(*few))
    assert "+0.200" not in shown[0] and "p = 0.010" not in shown[1] and "0.600" in shown[0]


@pytest.mark.parametrize(
    ("low", "high", "tone"), [(0.1, 0.3, "good"), (-0.1, 0.3, None), (-0.3, -0.1, "bad")]
)
def test_a_difference_has_a_colour_where_it_is_certain(
    make: Any, low: float, high: float, tone: str | None
) -> None:
    page = render(make(results(), compared(low, high).iloc[1:].assign(bucket="all")))
    assert re.findall(r'<small(?: class="(\w+)")?>Δ', page) == [tone or ""]


def test_what_the_hybrid_is_made_of_is_said_with_what_it_rests_on() -> None:
    weights = {"bm25": 0.2, "dense": 0.5, "sparse": 0.3}
    fit = {"queries": 40, "unlabelled": 30, "ndcg@10": {"bm25": 0.5, "hybrid": 0.625}}
    assert (
        composition({"method": "convex", "weights": weights, "fit": fit})
        == "hybrid: 0.20 BM25 + 0.50 dense + 0.30 sparse, chosen by 40 dev queries, 30 of them on"
        " documents that no training label names; nDCG@10 there: BM25 0.500, hybrid 0.625."
    )
    unfitted = composition({"method": "convex", "weights": weights, "fit": {"queries": 0}})
    assert unfitted.endswith("no dev query chose.")
    assert composition({"method": "rrf", "weights": weights}) == composition(None) == ""
    left_out = {"network": "its words are others"}
    assert composition({"method": "rrf", "weights": weights, "left_out": left_out}) == (
        "network, untrained was left out: its words are others."
    )


def test_the_console_shows_every_bucket_with_its_queries_and_fits() -> None:
    shown = printed(bucket_table(results()))
    assert "0.550 [0.50, 0.60]" in shown
    assert all(text in shown for text in ("196 queries", "104 queries", "7 queries", "too few"))
    assert shown.count("too few") == 1
    assert "…" not in shown


@pytest.mark.parametrize("bounds", [(-0.05, 0.01), (0.01, 0.05), (np.nan, np.nan)])
def test_only_a_significant_loss_on_unlabelled_queries_is_warned_of(
    bounds: tuple[float, float],
) -> None:
    said = warning(results(), compared())
    assert said.count("Warning:") == 1
    assert "without a training label (−0.060 [−0.100, −0.020], p = 0.010)" in said
    assert warning(results(), compared(*bounds)) == ""
    assert warning(results(), compared(bucket="labelled")) == ""
    assert warning(results({"labelled": 200, "unlabelled": 12}), compared()) == ""


def test_the_figure_has_a_row_of_dots_per_bucket() -> None:
    figure = buckets(results())
    assert figure is not None
    labels = ["labelled (196)", "unlabelled (104)", "new (7, too few)"]
    assert figure.spec["layout"]["yaxis"]["ticktext"] == labels
    trained = figure.spec["data"][0]
    assert trained["x"] == [0.9, 0.55, 0.5]
    assert [round(y) for y in trained["y"]] == [0, 1, 2]


def test_what_beir_would_count_stands_beside_what_counts_copies_once() -> None:
    once = results()
    assert copies_notice(once) == ""
    plain = once.assign(metric="plain_ndcg@10", value=once.value - 0.1)
    said = copies_notice(pd.concat([once, plain], ignore_index=True))
    assert "nDCG@10 of BM25 0.600 (0.500), zero-shot 0.600 (0.500)" in said
