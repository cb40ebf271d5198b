import base64
import gzip
import json
from html.parser import HTMLParser

import lxml.html
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs
from tests.report.conftest import SEARCH, comparisons, funnel, results, training_log

from anmi.report.html import render

HOSTILE = '</script><script>alert("x")</script><img src=https://example.org/x.png onerror=alert(1)>'
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Fetches(HTMLParser):
    """Collects every attribute by which a browser would load something, and checks that elements nest."""

    def __init__(self):
        super().__init__()
        self.found, self.open, self.scripts = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        fetched = ("src", "href", "srcset", "data", "action", "poster")
        self.found += [v for k, v in attrs if k in fetched and not v.startswith("#")]
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
    assert "url(" not in style and "@import" not in style and "default-src 'none'" in page
    assert page.startswith("<!doctype html>")


def test_plotly_is_inside_once_and_compressed(page):
    (element,) = lxml.html.fromstring(page).xpath("//script[@id='plotly-script']")
    assert element.get("type") == "text/plain"
    assert gzip.decompress(base64.b64decode(element.text, validate=True)).decode() == get_plotlyjs()
    assert len(page) < 2_200_000


def test_every_plot_is_one_that_plotly_accepts(page):
    found = specs(page)
    assert set(found) == {
        "metrics",
        "funnel",
        "elo-gap",
        "judge-0",
        "judge-1",
        "judge-2",
        "training",
        "nearness",
        "scores-dense",
        "scores-bm25",
        "scores-p_relevant",
        "scores-elo",
    }
    for name, spec in found.items():
        assert go.Figure(spec).layout.xaxis.title.text, name
        assert len(lxml.html.fromstring(page).xpath(f'//div[@id="{name}"]')) == 1


def test_texts_are_escaped(make):
    curve = make()["fused_judge"]["judges"]["dense"]["reliability"]
    steps = [row | {"step": HOSTILE, "rule": HOSTILE} for row in funnel()]
    kinds = {HOSTILE: {"made": 2, "kept": 1, "dropped": {HOSTILE: 1}}}
    page = render(
        make(
            results().replace({"recipe": {"anmi_2_1": HOSTILE}}),
            comparisons().replace({"system": {"anmi_2_1": HOSTILE}}),
            {"funnel": steps, "origins": {"sources": {HOSTILE: 3}}},
            recipe=HOSTILE,
            encoder=HOSTILE,
            training_summary={"prompts": {"query": HOSTILE, "document": ""}},
            collection_info={"collection": HOSTILE, "documents": 3, "queries": {HOSTILE: 1}},
            fused_judge={"judges": {HOSTILE: {"auc": 0.5, "reliability": curve}}, HOSTILE: HOSTILE},
            pseudo_query_summary={"documents": 3, "new": 1, "kinds": kinds},
        )
    )
    assert parsed(page).found == []
    # Two judges fewer, and nothing else.
    assert parsed(page).scripts == parsed(render(make())).scripts - 2
    assert HOSTILE in text(page)


def test_a_whole_run_has_all_its_sections(make):
    profile = [
        {"system": "bm25", "hardness": 0.5, "value": 0.5, "low": 0.4, "high": 0.6, "queries": 3}
    ]
    kinds = {"title": {"made": 9, "kept": 6, "dropped": {"too_short": 1, "boilerplate": 2}}}
    factuality = {"queries": 40, "variants": 160, "auc": 0.8, "auc_low": 0.7, "auc_high": 0.9}
    factuality["paired"] = 0.75
    linking = {"linking_accuracy": 0.6, "linking_mrr_10": 0.7}
    linking |= {"linking_queries": 40, "linking_left_out": 0}
    shares = {"right": 0.5, "entails": 0.6, "same_uri": 0.9}
    overall = {f"factuality_{name}": value for name, value in factuality.items()}
    inputs = make()
    page = render(
        make(
            hardness_results={"metric": "ndcg@10", "profile": profile},
            pseudo_query_summary={"documents": 1200, "new": 110, "kinds": kinds},
            dimension_metrics={"384": 0.7134, "64": 0.6512},
            knowledge_metrics={
                "zero_shot": linking | overall | {"factuality": {"swap": factuality}}
            },
            neighbours={"depth": 5, "queries": 40, "shares": shares},
            training_log=training_log().assign(share_random=0.4, share_graph=0.6),
            results=inputs["results"] | {"search": SEARCH},
        )
    )
    assert lxml.html.fromstring(page).xpath("//h2/text()") == [
        "Results",
        "Parts of the search",
        "From candidates to negatives",
        "Where the negatives came from",
        "Scores of positives, kept and rejected candidates",
        "Judges",
        "By the hardness of queries",
        "By the number of dimensions",
        "What the corpus taught",
        "Training",
        "Facts: the own document against false variants of it",
        "Entities: whose document is found",
        "Parameters",
    ]
    shown = text(page)
    assert "On all test queries, anmi_2_1 has nDCG@10 0.664" in shown
    assert "corpus's own encoder was left out: no text." in shown
    assert "network, untrained0.750.6120.54135.0–" in shown
    assert "31 of 6,111 selected negatives are in truth relevant (0.5%" in shown
    assert "title96boilerplate 2, too short 1" in shown
    assert "swap0.8000.700 to 0.9000.750" in shown
    assert "60.0\u00a0% state all facts" in shown.replace("60.0 %", "60.0\u00a0%")
    assert "3840.713640.651" in shown
    assert {"sources", "hardness"} <= specs(page).keys()
    assert "rejected: max_ratiodense ≥ 0.95 of the positive's14,31014.5" in shown


def test_of_what_is_empty_there_is_no_section(make):
    nothing = {"distributions": {}, "origins": {}, "expected": {}, "gaps": {}}
    nothing |= {"funnel": [], "by_nearness": None}
    table = pd.DataFrame()
    inputs = make(table, table, nothing, fused_judge={}, training_log=table)
    results = inputs["results"] | {"false_negatives": None, "unchanged": "it was best before"}
    page = render(inputs | {"results": results | {"warnings": ["It judges nothing"]}})
    assert "It judges nothing." in page
    assert "Training changed nothing: it was best before." in page
    assert lxml.html.fromstring(page).xpath("//h2/text()") == ["Results", "Parameters"]
    assert "Too few to measure: 0 test queries" in text(page)
    assert specs(page) == {}
