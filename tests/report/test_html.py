import base64
import gzip
import json
import re
from html.parser import HTMLParser

import lxml.html
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs
from tests.report.conftest import query_table

from anmi.report.html import render
from anmi.report.inputs import ReportInputs, passes_sentence

HOSTILE = '</script><script>alert("x")</script><img src=https://example.org/x.png onerror=alert(1)>'
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Fetches(HTMLParser):
    """Collects every attribute by which a browser would load something, and checks that elements nest."""

    def __init__(self):
        super().__init__()
        self.found, self.open, self.scripts = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.found += [v for k, v in attrs if k in ("src", "href", "srcset", "data", "action", "poster")]
        self.found += [v for k, v in attrs if k == "style" and "url(" in (v or "")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page: str) -> Fetches:
    reader = Fetches()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def text(page: str) -> str:
    tree = lxml.html.fromstring(page)
    for element in tree.xpath("//script|//style"):
        element.drop_tree()
    return " ".join(tree.text_content().split())


def specs(page: str) -> dict[str, dict]:
    found = lxml.html.fromstring(page).xpath("//script[@data-plot]")
    return {element.get("data-plot"): json.loads(element.text) for element in found}


@pytest.fixture
def page(make):
    return render(make())


def test_the_page_fetches_nothing(page):
    assert parsed(page).found == []
    style = lxml.html.fromstring(page).xpath("string(//style)")
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page
    assert page.startswith("<!doctype html>")


def test_prompts_stand_beside_the_encoder_where_they_are_known(make, page):
    summary = make().summary | {"prompts": '"<query>: " before queries, none before documents'}
    assert '"<query>: " before queries, none before documents' in text(render(make(summary=summary)))
    assert "prompts" not in text(page)


def unpacked(page: str, name: str) -> str:
    """What the page's script has back of a part that lies in it compressed."""
    (element,) = lxml.html.fromstring(page).xpath(f"//script[@id='{name}']")
    assert element.get("type") == "text/plain"
    return gzip.decompress(base64.b64decode(element.text, validate=True)).decode()


def test_plotly_is_inside_once_and_compressed(page):
    assert unpacked(page, "plotly-script") == get_plotlyjs()
    assert len(page) < 2_200_000


def test_every_plot_is_one_that_plotly_accepts(page):
    found = specs(page)
    assert set(found) == {
        "metrics", "funnel", "elo-gap", "judge-0", "judge-1", "judge-2", "training", "nearness",
        "scores-dense", "scores-bm25", "scores-p_relevant", "scores-elo",
    }  # fmt: skip
    for name, spec in found.items():
        figure = go.Figure(spec)
        assert figure.layout.xaxis.title.text, name
        targets = lxml.html.fromstring(page).xpath(f'//div[@id="{name}"]')
        assert len(targets) == 1


def test_a_curriculum_has_its_plot(make):
    log = make().training_log.assign(difficulty=0.5, low=250.0, high=np.inf, negatives=9.0, inside=np.nan)
    spec = specs(render(make(training_log=log)))["curriculum"]
    assert go.Figure(spec).layout.yaxis.title.text == "difficulty"


def test_the_headline_says_what_training_brought(page):
    shown = text(page)
    assert "On all test queries, anmi_2_1 has nDCG@10 0.664" in shown
    assert "above zero-shot 0.602 +0.062 95 % interval [+0.047, +0.078], p < 0.001" in shown
    assert "31 of 6,111 selected negatives (0.51 %" in shown


def test_an_uncertain_difference_is_not_sold_as_a_gain(make):
    comparisons = make().comparisons.assign(low=-0.01)
    assert re.search(r"not clearly different from [^;]*zero-shot", text(render(make(comparisons=comparisons))))


@pytest.mark.parametrize("length", [1, 400])
def test_texts_are_escaped(make, length):
    inputs = make()
    told = {"id": HOSTILE, "text": HOSTILE * length, "relevant": True}
    shown = {"id": HOSTILE, "query": HOSTILE * length, "before": "0.00", "after": "1.00", "missed": told}
    shown["systems"] = [{"name": HOSTILE, "documents": [told]}]
    funnel = [row | {"step": HOSTILE} for row in inputs.funnel]
    results = inputs.results.replace({"recipe": {"anmi_2_1": HOSTILE}})
    summary = dict(inputs.summary) | {"collection": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    distributions = {
        name: entry | {"rejected": {HOSTILE: entry["kept"], "b": entry["kept"]}}
        for name, entry in inputs.distributions.items()
    }
    page = render(
        make(
            queries=query_table(HOSTILE * length),
            before_after={"sentence": HOSTILE, "groups": [{"title": HOSTILE, "queries": [shown]}]},
            times=[{"node": HOSTILE, "seconds": 1.0, "peak_mib": 1, "of": HOSTILE, "rows": 1}],
            funnel=funnel,
            results=results,
            summary=summary,
            parameters={"a": HOSTILE},
            distributions=distributions,
            judges={HOSTILE: inputs.judges["dense"] | {"method": HOSTILE}},
        )
    )
    reader = parsed(page)
    assert reader.found == []
    # One judge instead of three, hence two plots less.
    assert reader.scripts == parsed(render(make())).scripts - 2
    assert '<script>alert("x")' not in page
    assert '<script>alert("x")</script>' in text(page)
    # Plotly reads a few HTML tags in labels: what comes from outside arrives there escaped.
    assert all("<img" not in json.dumps(spec) for spec in specs(page).values())


def headings(page: str) -> list[str]:
    return [title.text_content() for title in lxml.html.fromstring(page).xpath("//h2")]


def test_sections_that_have_nothing_to_say_are_left_out():
    page = render(ReportInputs(results=pd.DataFrame(), summary={}))
    assert parsed(page).found == []
    assert specs(page) == {}
    assert headings(page) == ["Results", "Parameters"]
    assert "No results were given" in text(page)


def test_a_whole_run_has_all_its_sections(page):
    assert headings(page) == [
        "Results", "From candidates to negatives", "Scores of positives, kept and rejected candidates", "Judges",
        "Training", "Queries", "Where the time went", "Parameters",
    ]  # fmt: skip


def judge_table(page: str) -> list[list[str]]:
    rows = lxml.html.fromstring(page).xpath("//table[@class='judges']//tr")
    return [[cell.text_content().strip() for cell in row] for row in rows]


def test_each_judge_has_its_row_and_its_curve(page):
    assert judge_table(page)[1:] == [
        ["dense", "0.788", "0.091", "3,390", "isotonic regression"],
        ["cross-encoder", "0.912", "0.027", "3,390", "Platt scaling, cross-fitted over 3 folds"],
        ["fused", "0.985", "0.008", "3,390", "Platt scaling"],
    ]
    for place, (name, bend) in enumerate([("dense", 1.6), ("cross-encoder", 1.15), ("fused", 1.02)]):
        diagonal, curve = specs(page)[f"judge-{place}"]["data"]
        assert diagonal["x"] == diagonal["y"] == [0, 1]
        assert curve["name"] == name
        np.testing.assert_allclose(curve["y"], np.array(curve["x"]) ** bend)
        # The curve bends away from many pairs to few, and so do the sizes of its dots.
        assert (np.diff(curve["marker"]["size"]) < 0).all()


def test_without_judges_there_is_no_such_section(make):
    page = render(make(judges={}))
    assert "Judges" not in [title.text for title in lxml.html.fromstring(page).xpath("//h2")]
    assert not [name for name in specs(page) if name.startswith("judge-")]


def test_of_a_judge_little_may_be_known(make):
    empty = {"bins": [], "expected_calibration_error": 0.0}
    page = render(
        make(judges={"a": {}, "b": {"auc": float("nan"), "reliability": empty}, "c": {"auc": 0.5, "method": None}})
    )
    assert judge_table(page)[1:] == [
        ["a", "–", "–", "–", "not stated"],
        ["b", "–", "–", "–", "not stated"],
        ["c", "0.500", "–", "–", "not stated"],
    ]
    assert not [name for name in specs(page) if name.startswith("judge-")]
    assert "Judges" in headings(page)


def test_baselines_alone_make_a_report(make):
    results = make().results
    page = render(ReportInputs(results=results[results["recipe"] == "bm25"], summary={"collection": "c"}))
    assert set(specs(page)) == {"metrics"}
    assert "BM25" in text(page)


def test_numbers_that_json_cannot_hold_do_no_harm(make):
    log = make().training_log
    log.loc[3, "loss"] = np.nan
    results = make().results
    results.loc[0, ["low", "high"]] = np.nan
    assert specs(render(make(training_log=log, results=results)))["training"]["data"][0]["y"][3] is None


def test_the_queries_of_the_page_are_those_of_the_table(page, make):
    assert json.loads(unpacked(page, "query-data")) == json.loads(json.dumps(make().queries))


def test_times_are_told_with_rates_and_the_store(page):
    assert cells(page, "//table[@class='times']//tbody/tr") == [
        ["retrievedense", "44.5", "89.0 %", "", "", "1,900", "1,000 of 4,000 (25 %)"],
        ["ingest", "5.5", "11.0 %", "3,312corpus", "602", "600", ""],
    ]


def test_a_system_has_one_colour_everywhere(page):
    dots = lxml.html.fromstring(page).xpath("//span[@class='dot']/@style")
    markers = [trace["marker"]["color"] for trace in specs(page)["metrics"]["data"]]
    assert [style.removeprefix("background:") for style in dots] == markers
    assert len(set(markers)) == 3


def test_a_hybrid_stands_last_and_the_verdict_is_about_it(make):
    given = make()
    trained = next(name for name in given.results.recipe if name not in ("bm25", "zero_shot"))
    more = given.results[given.results.recipe == trained].assign(recipe="hybrid")
    compared = given.comparisons[given.comparisons.system == trained].assign(system="hybrid", baseline="bm25")
    made = make(
        results=pd.concat([more, given.results]), comparisons=pd.concat([compared, given.comparisons]),
    )  # fmt: skip
    page = lxml.html.fromstring(render(made))
    traces = specs(render(made))["metrics"]["data"]
    assert [trace["name"] for trace in traces][-2:] == [trained, "hybrid"]
    assert len({trace["marker"]["color"] for trace in traces}) == 4
    (verdict,) = page.xpath("//p[@class='deployed']")
    assert " hybrid has nDCG@10 " in verdict.text
    assert [other.text_content().split()[:2] for other in page.xpath("//ul[@class='against']/li")] == [
        ["above", "BM25"]
    ]


def cells(page: str, path: str) -> list[list[str]]:
    rows = lxml.html.fromstring(page).xpath(path)
    return [[" ".join(cell.text_content().split()) for cell in row] for row in rows]


def test_the_funnel_names_rules_and_the_three_ways(page):
    rows = {first: rest for first, *rest in cells(page, "//section[2]//table[1]/tbody/tr")}
    assert rows["rejected: max_ratio" + "dense ≥ 0.95 of the positive's"] == ["14,310", "14.5 %", "0"]
    assert rows["promoted: promote" + "p_relevant ≥ 0.9"][0] == "455"
    assert rows["uncertain"][0] == "1,500"
    assert cells(page, "//dl[@class='routes']/div") == [
        ["negatives", "6,111"],
        ["uncertain, for distillation only", "1,500"],
        ["promoted to positives", "455"],
    ]


def test_where_the_negatives_came_from(page, make):
    shown = [
        ["source", "bm25+dense", "5,000", "81.8 %"],
        ["source", "dense", "1,111", "18.2 %"],
        ["tier", "window", "6,000", "98.2 %"],
        ["tier", "deeper", "111", "1.8 %"],
    ]
    assert cells(page, "//table[@class='origins']/tbody/tr") == shown


def test_an_older_run_has_neither_rules_nor_ways_nor_origins(make):
    old = [{name: row[name] for name in ("step", "kind", "candidates", "queries")} for row in make().funnel]
    old = [row for row in old if row["kind"] not in ("promoted", "uncertain")]
    page = render(make(funnel=old, origins={}))
    assert not cells(page, "//dl[@class='routes']/div")
    assert "came from" not in text(page)
    assert [trace["name"] for trace in specs(page)["funnel"]["data"]] == ["all", "rejected", "not drawn", "negatives"]


def test_dev_figures_are_said_to_be_those_of_the_first_pass(make):
    first = {"rows": 1200, "epochs": 5, "best_epoch": 1, "best_dev_ndcg@10": 0.6543}
    said = passes_sentence({"rows": 1400, "epochs": 1, "first_pass": first})
    assert said.startswith("Dev figures are those of a first pass on the 1,200 rows of training queries; the best was")
    assert "0.654, of epoch 1" in said
    assert "over 1 epoch of the 1,400 rows of training and dev queries" in said
    assert said in render(make(passes=said))
    assert "first pass" not in render(make())
