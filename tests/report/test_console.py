import io

import pandas as pd
from rich.console import Console

from anmi.report.console import rejections_table, results_table


def printed(table, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def test_results_fit_a_terminal_and_say_the_difference(make):
    inputs = make()
    lines = printed(results_table(inputs.results, inputs.comparisons)).splitlines()
    rows = {line.split("│")[1].strip(): [c.strip() for c in line.split("│")[2:-1]] for line in lines if "│" in line}
    assert list(rows) == ["BM25", "zero-shot", "anmi_2_1"]
    assert rows["anmi_2_1"] == ["0.664", "0.628", "0.887", "0.975", "+0.062 [+0.047, +0.078]"]
    assert rows["zero-shot"][-1] == "–"
    assert "[95 % interval]" in printed(results_table(inputs.results, inputs.comparisons))


def test_results_without_comparisons_or_with_a_missing_metric(make):
    results = make().results
    shown = printed(results_table(results[results["metric"] != "mrr@10"], pd.DataFrame()))
    assert "0.664" in shown
    assert "–" in shown


def test_rejections_name_each_step(make):
    shown = printed(rejections_table(make().funnel))
    assert "rejected: max_ratio" in shown
    assert "14,310" in shown
    assert "14.5%" in shown
    assert "promoted: promote" in shown
    assert printed(rejections_table(pd.DataFrame(make().funnel))) == shown
    rule = "dense ≥ 0.95 of the positive's"
    assert rule in printed(rejections_table(make().funnel), 120)
    plain = [{name: value for name, value in row.items() if name != "rule"} for row in make().funnel]
    assert "rule" not in printed(rejections_table(plain))


def test_markup_in_a_name_is_printed_as_it_is(make):
    funnel = [{"step": "[red]x[/red]", "kind": "rejected", "candidates": 1, "queries": 0}]
    assert "[red]x[/red]" in printed(rejections_table(funnel))
