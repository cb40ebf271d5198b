"""The page about drift: says what was found in words, is drawn by plotly, and escapes what data bring."""

from __future__ import annotations

import json
from typing import Any

import lxml.html
import numpy as np
import plotly.graph_objects as go
import pytest

from anmi.evaluation.drift import drift
from anmi.evaluation.training_profile import FORMAT
from anmi.evaluation.vocabulary import read_terms
from anmi.report.drift import drift_name, figures, findings, render, summary, verdict_sentence

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


def made(seed: int = 0, shift: float = 0.0, name: str = "mine", step: str = "barred") -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    values = {
        "query_length": rng.poisson(8, 500),
        "positives_per_query": np.ones(500),
        "negative_dense": rng.normal(0.5 + shift, 0.1, 500),
        "positive_p_relevant": rng.beta(8, 2, 500),
        "gap_bm25": rng.normal(5, 4, 500),
        "negative_bm25": rng.gamma(2, 3, 500),
    }
    vocabulary, _ = read_terms(["a b c"] * 50, lambda texts: [text.split() for text in texts], most=9)
    return {
        "format": FORMAT,
        "made_with": {"collection": name, "encoder": name},
        "tokens": "whitespace (en)",
        "counts": {"train_queries": 500, "documents": 9_000},
        "distributions": {name: found.tolist() for name, found in values.items()},
        "shares": {f"taken out: {step}": {"share": float((rng.random(500) < 0.1).mean()), "count": 500}},
        "vocabulary": {"documents": vocabulary, "queries": vocabulary},
    }


def text(page: str) -> str:
    tree = lxml.html.fromstring(page)
    for element in tree.xpath("//script|//style"):
        element.drop_tree()
    return " ".join(tree.text_content().split())


def table(page: str, name: str) -> list[list[str]]:
    rows = lxml.html.fromstring(page).xpath(f"//table[@id='{name}']//tr")
    return [[" ".join(cell.text_content().split()) for cell in row] for row in rows]


def test_the_verdict_comes_first_and_in_words() -> None:
    old, new = made(0), made(1, shift=0.1)
    found = drift(old, new)
    page = render(found, new, old)
    shown = text(page)
    assert shown.index("differ strongly from the champion's") < shown.index("How many")
    assert "strong: cosine similarity of negatives: 0.50" in shown
    assert "+0.9" in shown or "+1.0" in shown
    rows = table(page, "distributions")
    assert rows[1][:2] == ["cosine similarity of negatives", "strong"]
    row = found["distributions"]["negative_dense"]
    assert rows[1][5] == f"{row['distance']:.3f}"
    assert {entry[1] for entry in rows[2:]} == {"none"}
    assert ["documents", "none", "9,000", "9,000"] in table(page, "counts")
    assert summary(found)[1] == f"strong: {findings(found)[0][1]}"


def test_without_a_champion_the_page_says_so_and_shows_today() -> None:
    new = made()
    found = drift(None, new)
    page = render(found, new, {})
    assert "Drift was not measured: there is no champion to compare with." in text(page)
    assert summary(found) == [verdict_sentence(found)]
    drawn = [figure.spec["data"] for figure in figures(found, new)]
    assert [len(data) for data in drawn] == [1] * 6


def test_every_histogram_is_one_that_plotly_accepts() -> None:
    old, new = made(0), made(1, shift=0.1)
    drawn = figures(drift(old, new), new, old)
    assert drawn[0].name == "drift-negative_dense"
    for figure in drawn:
        shown = go.Figure(figure.spec).data
        name = figure.name.removeprefix("drift-")
        assert [list(trace.x) for trace in shown] == [old["distributions"][name], new["distributions"][name]]
    json.dumps([figure.spec for figure in drawn], allow_nan=False)


def test_names_from_data_cannot_become_markup() -> None:
    old, new = made(0, name=HOSTILE, step=HOSTILE), made(1, name=HOSTILE + "2", step=HOSTILE)
    old["distributions"][HOSTILE] = old["distributions"]["query_length"]
    page = render(drift(old, new | {"tokens": HOSTILE}), new | {"tokens": HOSTILE}, old)
    tree = lxml.html.fromstring(page)
    assert not tree.xpath("//img")
    assert not [script for script in tree.xpath("//script") if (script.text or "").startswith("alert")]
    assert HOSTILE in tree.xpath("//h1")[0].text_content()
    assert f"candidates taken out: {HOSTILE}" in text(page)
    new["distributions"][HOSTILE] = old["distributions"][HOSTILE]
    assert not lxml.html.fromstring(render(drift(old, new), new, old)).xpath("//img")
    for figure in figures(drift(old, new), new, old):
        assert "<" not in figure.spec["layout"]["xaxis"]["title"]["text"]


@pytest.mark.parametrize(
    "name", [f"{kind}_{score}" for kind in ("positive", "negative", "gap") for score in ("elo", "bm25")]
)
def test_every_score_has_a_name(name: str) -> None:
    assert drift_name(name) != name
