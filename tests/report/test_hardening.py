"""The section about negatives drawn in every step: figures, transitions and tables."""

from __future__ import annotations

import json
from typing import Any

import lxml.html
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.report.hardening import (
    AROUND,
    Transition,
    factuality_rows,
    kept_sentence,
    linking_rows,
    signals_figure,
    sources_figure,
    transition_rows,
    transitions,
    transitions_figure,
)
from anmi.report.html import render
from anmi.report.inputs import ReportInputs

STEPS = 120
HOSTILE = '</script><script>alert("x")</script>'


def log(**changes: Any) -> pd.DataFrame:
    """Three epochs of 40 steps, a stage each; the loss is 1, then 2, then 3."""
    step = np.arange(1, STEPS + 1)
    stage = 1.0 + (step > 40) + (step > 80)
    table = pd.DataFrame(
        {
            "step": step,
            "epoch": step / 40,
            "loss": stage,
            "grad_norm": np.where(step % 2, 1.0, 3.0),
            "difficulty": np.array([0.0, 0.5, 0.8])[stage.astype(int) - 1],
            "stage": stage,
            "share_random": np.array([1.0, 0.5, 0.2])[stage.astype(int) - 1],
            "share_graph": np.array([0.0, 0.5, 0.5])[stage.astype(int) - 1],
            "share_latent": np.array([0.0, 0.0, 0.3])[stage.astype(int) - 1],
            "share_edit": 0.0,
            "negatives": 7.0,
            "replaced": 0.1,
            "latent_hit_rate": np.where(step > 80, 0.75, np.nan),
            "latent_staleness": np.where(step > 80, 20.0, np.nan),
            "latent_index": 4096.0,
            "margin_violations": 0.25,
            "dev_loss": np.where(step % 40 == 0, 2.0, np.nan),
            "dev_ndcg@10": np.nan,
        }
    )
    return table.assign(**changes)


def linear() -> pd.DataFrame:
    """A mix that moves for 60 steps and then stays."""
    way = np.minimum(np.arange(STEPS) / 60, 1.0)
    return log(difficulty=0.8 * way, share_random=1 - 0.8 * way, share_graph=0.8 * way, share_latent=0.0).drop(
        columns="stage"
    )


def knowledge() -> dict[str, Any]:
    def entry(auc: float, queries: int = 400) -> dict[str, Any]:
        interval = {"auc_low": auc - 0.01, "auc_high": auc + 0.01, "paired_low": auc + 0.09, "paired_high": auc + 0.11}
        return {"auc": auc, "paired": auc + 0.1, "queries": queries, "variants": 3 * queries, **interval}

    def system(auc: float) -> dict[str, Any]:
        overall = {f"factuality_{name}": value for name, value in entry(auc).items()}
        by_kind = {"swap": entry(auc), "counterpart": entry(0.8, 1200)}
        linked = {"linking_accuracy": 0.9, "linking_accuracy_low": 0.85, "linking_accuracy_high": 0.95,
                  "linking_mrr_10": 0.925, "linking_queries": 1779, "linking_left_out": 3}  # fmt: skip
        return linked | overall | {"factuality": by_kind}

    return {"zero_shot": system(0.6), "dnh_step": system(0.7)}


def neighbours(text: str = "Aarhus | mayor | Nobody") -> dict[str, Any]:
    def document(**holds: bool) -> dict[str, Any]:
        said = {"right": False, "entails": False, "same_uri": False} | holds
        return {"document_id": "d1", "text": text, "uri": "u:aarhus", "label": "Aarhus", **said}

    documents = [
        document(right=True, entails=True, same_uri=True),
        document(entails=True, same_uri=True),
        document(same_uri=True),
        document() | {"uri": None, "label": None},
    ]
    return {
        "depth": 5,
        "queries": 1779,
        "shares": {"right": 0.19, "entails": 0.42, "same_uri": 0.9},
        "confusions": [{"own": "City", "retrieved": "Person", "count": 1200, "share": 0.6}],
        "examples": [{"query_id": "q1", "query": text, "uri": "u:aarhus", "label": "Aarhus", "documents": documents}],
    }


def page_of(make: Any, **changes: Any) -> str:
    return render(make(**({"training_log": log(), "knowledge": knowledge(), "neighbours": neighbours()} | changes)))


def headings(page: str) -> list[str]:
    return [title.text_content() for title in lxml.html.fromstring(page).xpath("//h2")]


def cells(page: str, table: str) -> list[list[str]]:
    rows = lxml.html.fromstring(page).xpath(f"//table[@class='{table}']/tbody/tr")
    return [[" ".join(" ".join(cell.itertext()).split()) for cell in row] for row in rows]


def specs(page: str) -> dict[str, Any]:
    found = lxml.html.fromstring(page).xpath("//script[@data-plot]")
    return {element.get("data-plot"): json.loads(element.text) for element in found}


def test_stages_are_transitions() -> None:
    assert transitions(log()) == [Transition(41, "stage 1 → 2"), Transition(81, "stage 2 → 3")]


def test_a_schedule_may_go_back() -> None:
    step = np.arange(1, STEPS + 1)
    back = log(stage=1.0 + ((step > 40) & (step <= 80)))
    assert [change.what for change in transitions(back)] == ["stage 1 → 2", "stage 2 → 1"]


def test_a_gradual_schedule_changes_where_it_stops_moving() -> None:
    assert transitions(linear()) == [Transition(61, "final mix")]
    assert transitions(linear().head(50)) == [], "it is still moving"
    assert transitions(log(difficulty=0.8).drop(columns="stage")) == [], "it never moved"
    assert transitions(log().drop(columns=["stage", "difficulty"])) == []


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30))
def test_there_is_a_transition_wherever_two_steps_differ(stages: list[int]) -> None:
    table = pd.DataFrame({"step": range(1, len(stages) + 1), "stage": np.array(stages, float)})
    expected = [i + 1 for i in range(1, len(stages)) if stages[i] != stages[i - 1]]
    assert [change.step for change in transitions(table)] == expected


def test_before_and_after_are_twenty_steps_each() -> None:
    rows = transition_rows(log(loss=np.arange(1.0, STEPS + 1)))
    before, after = np.arange(21.0, 41.0), np.arange(41.0, 61.0)
    assert AROUND == 20
    assert rows[0] == {
        "step": "41",
        "what": "stage 1 → 2",
        "loss_before": f"{before.mean():.3f} ± {before.std():.3f}",
        "loss_after": f"{after.mean():.3f} ± {after.std():.3f}",
        "grad_norm_before": "2.000 ± 1.000",
        "grad_norm_after": "2.000 ± 1.000",
    }
    assert transition_rows(log().drop(columns="grad_norm"))[0]["grad_norm_before"] == "–"


@pytest.mark.parametrize("table", [log(), linear()], ids=["stages", "gradual"])
def test_the_areas_fill_the_plot_and_what_was_never_drawn_has_none(table: pd.DataFrame) -> None:
    figure = sources_figure(table)
    assert figure is not None
    traces = {trace["name"]: np.array(trace["y"]) for trace in figure.spec["data"]}
    assert "edit" not in traces
    np.testing.assert_allclose(sum(traces.values()), 100)
    assert len({trace["stackgroup"] for trace in figure.spec["data"]}) == 1


def test_a_sudden_change_is_not_smoothed_away() -> None:
    figure = sources_figure(pd.concat([log()] * 5, ignore_index=True).assign(step=range(1, 5 * STEPS + 1)))
    assert figure is not None
    graph = next(trace["y"] for trace in figure.spec["data"] if trace["name"] == "graph")
    assert graph[38:42] == [0, 0, 50, 50]


def test_epochs_and_changes_are_marked_once() -> None:
    figure = transitions_figure(linear())
    assert figure is not None
    marks = [(shape["x0"], shape["line"]["dash"]) for shape in figure.spec["layout"]["shapes"]]
    assert marks == [(40.5, "dot"), (80.5, "dot"), (60.5, "dash")]
    assert [note["text"] for note in figure.spec["layout"]["annotations"]] == ["final mix"]
    together = transitions_figure(log())
    assert together is not None
    assert [shape["line"]["dash"] for shape in together.spec["layout"]["shapes"]] == ["dash", "dash"]


def test_signals_are_shares_in_per_cent_and_what_was_not_measured_is_left_out() -> None:
    figure = signals_figure(log())
    assert figure is not None
    traces = {trace["name"]: trace for trace in figure.spec["data"]}
    assert set(traces["margin_violations, each step"]["y"]) == {25.0}
    assert traces["latent_hit_rate, each step"]["x"] == list(range(81, 121)), "only where latent ones were drawn"
    without = signals_figure(log(latent_hit_rate=np.nan, latent_staleness=np.nan, margin_violations=np.nan))
    assert without is not None
    assert [trace["name"] for trace in without.spec["data"]] == ["replaced, each step", "replaced, moving mean"]


def test_a_dev_loss_now_and_then_is_drawn_as_dots() -> None:
    figure = transitions_figure(log())
    assert figure is not None
    (dev,) = [trace for trace in figure.spec["data"] if trace["name"] == "dev_loss"]
    assert (dev["x"], dev["y"], dev["mode"]) == ([40, 80, 120], [2, 2, 2], "lines+markers")


def test_the_page_has_the_section_with_its_plots_and_tables(make: Any) -> None:
    page = page_of(make)
    assert headings(page).index("Dynamic negatives") == headings(page).index("Training") + 1
    for name in ("sources", "signals", "transitions"):
        assert go.Figure(specs(page)[name]).layout.xaxis.title.text == "step (optimiser updates)"
    assert "curriculum" not in specs(page), "a schedule of sources has no window"
    assert [row[:2] for row in cells(page, "transitions")] == [["stage 1 → 2", "41"], ["stage 2 → 3", "81"]]
    assert cells(page, "factuality") == [
        ["all false kinds", "400", "1,200", *_four(0.6), *_four(0.7)],
        ["swap", "400", "1,200", *_four(0.6), *_four(0.7)],
        ["counterpart (true of something else)", "1,200", "3,600", *_four(0.8), *_four(0.8)],
    ]
    linked = ["0.900 0.850 to 0.950", "0.925", "1,779", "3"]
    assert cells(page, "linking") == [["zero-shot", *linked], ["dnh_step", *linked]]
    assert cells(page, "confusions") == [["City", "Person", "1,200", "60.0 %"]]
    shown = lxml.html.fromstring(page).xpath("//article[contains(@class, 'neighbours')]//tbody/tr/td[1]")
    assert [cell.text_content().strip() for cell in shown] == ["right", "says all of it", "same entity", "other entity"]
    assert "19.0 % are labelled relevant" in " ".join(page.replace("\u00a0", " ").split())


def _four(value: float) -> list[str]:
    return [f"{v:.3f} {v - 0.01:.3f} to {v + 0.01:.3f}" for v in (value, value + 0.1)]


def test_other_runs_have_no_such_section(make: Any) -> None:
    assert not {"Dynamic negatives", "Entities and facts"} & set(headings(render(make())))
    empty = ReportInputs(results=pd.DataFrame(), summary={})
    assert "Dynamic negatives" not in headings(render(empty))


def test_mined_negatives_on_a_collection_with_entities_show_the_tables_only(make: Any) -> None:
    page = page_of(make, training_log=make().training_log)
    assert "Entities and facts" in headings(page)
    assert not {"sources", "signals", "transitions"} & set(specs(page))
    assert len(cells(page, "linking")) == 2


def test_what_was_not_measured_is_said(make: Any) -> None:
    page = page_of(make, knowledge={}, neighbours={})
    assert "Factuality and entity linking were not measured" in page
    only = {name: {k: v for k, v in found.items() if "factuality" not in k} for name, found in knowledge().items()}
    assert factuality_rows(only) == []
    assert len(linking_rows(only)) == 2
    assert cells(page_of(make, knowledge=only), "factuality") == []
    assert linking_rows({"a": {"linking_queries": 0, "linking_left_out": 9}})[0]["cells"][0]["value"] == "–"


def test_a_kind_that_one_system_lacks_is_a_dash() -> None:
    found = knowledge()
    del found["zero_shot"]["factuality"]["swap"]
    (row,) = [row for row in factuality_rows(found) if row["kind"] == "swap"]
    assert [cell["value"] for cell in row["cells"]] == ["–", "–", "0.700", "0.800"]


def test_a_model_of_an_earlier_epoch_is_said_to_have_missed_the_rest(make: Any) -> None:
    assert kept_sentence(log(), None) == kept_sentence(log(), 3) == ""
    assert "epoch 2 of 3" in kept_sentence(log(), 2)
    assert "the change at step 81 (stage 2 → 3) included" in kept_sentence(log(), 2)
    assert "at step 41 (stage 1 → 2) and the change at step 81" in kept_sentence(log(), 1)
    assert kept_sentence(linear(), 2).endswith("what came after.")
    assert "it has not seen what came after" in page_of(make, kept_epoch=2)
    assert "it has not seen what came after" not in page_of(make, kept_epoch=2, training_log=make().training_log)


def test_texts_are_escaped(make: Any) -> None:
    page = page_of(make, neighbours=neighbours(HOSTILE))
    assert '<script>alert("x")' not in page
    assert HOSTILE in lxml.html.fromstring(page).text_content()
