"""The report in a real browser: Debian's Chromium, driven by Playwright, whose own browsers are not needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.report.conftest import full, query_table

from anmi.candidates import Candidates, Rule
from anmi.report.html import render
from anmi.report.query_table import QueryTable

pytestmark = pytest.mark.slow
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("there is no Chromium: apt-get install chromium", allow_module_level=True)
HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
MOST_BYTES, MOST_SECONDS = 6_000_000, 2.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # Without a sandbox of its own, which a container run by root has no right to make.
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def opened(browser: Any, page: str, folder: Path, **context: Any) -> tuple[Any, list[str]]:
    """Open a page, and return it with whatever its console says from the start on."""
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    tab = browser.new_context(**context).new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    tab.goto(path.as_uri())
    tab.wait_for_selector("#query-table tbody tr")
    return tab, said


def first_cells(tab: Any) -> list[str]:
    return [
        text.strip()
        for text in tab.locator("#query-table > tbody > tr:not(.inside) > td:first-child > button").all_inner_texts()
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_drawn_in_any_light_and_width(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    size = {"width": width, "height": 844}
    tab, said = opened(browser, render(full()), tmp_path, viewport=size, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width, "nothing stands out at the side"
    tab.wait_for_function("window.Plotly !== undefined")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    undrawn = "Array.from(document.querySelectorAll('.plot')).filter(p => !p.querySelector('svg')).length"
    tab.wait_for_function(f"{undrawn} === 0")
    unnamed = "Array.from(document.querySelectorAll('[role=img]')).filter(p => !p.getAttribute('aria-label')).length"
    assert tab.evaluate(unnamed) == 0
    assert said == []


def test_queries_are_searched_sorted_and_opened_by_keys_alone(browser: Any, tmp_path: Path) -> None:
    tab, said = opened(browser, render(full()), tmp_path)
    assert len(first_cells(tab)) == 13
    tab.focus("#query-search")
    tab.keyboard.type("q1 along")
    assert [text.split("(")[1] for text in first_cells(tab)] == ["q1)", "q10)", "q11)"]
    tab.keyboard.press("Control+A")
    tab.keyboard.press("Delete")
    head = tab.locator("#query-table th", has_text="change")
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert "(held)" in first_cells(tab)[0], "the only one that has a change; all others stand below it"
    tab.select_option("#query-split", "train")
    assert tab.inner_text("#query-status") == "1 to 12 of 12 queries"
    row = tab.locator("#query-table > tbody > tr").first.locator("button")
    row.press("Enter")
    assert row.get_attribute("aria-expanded") == "true"
    verdicts = tab.locator("tr.inside tbody td:first-child").all_inner_texts()
    assert [text.split("\n")[0] for text in verdicts] == [
        "positive", *["negative"] * 3, "max_ratio", "max_ratio", "<b>barred</b>",
    ]  # fmt: skip
    assert "max_ratio (dense ≥ 0.95 of the positive's) 2; <b>barred</b> 1" in tab.inner_text("tr.inside p.note")
    row.press("Enter")
    assert tab.locator("tr.inside").count() == 0
    assert said == []


def test_hostile_texts_are_shown_and_not_obeyed(browser: Any, tmp_path: Path) -> None:
    tab, said = opened(browser, render(full(queries=query_table(HOSTILE))), tmp_path)
    for button in tab.locator("#query-table > tbody > tr > td:first-child > button").all()[:3]:
        button.click()
    assert HOSTILE in tab.inner_text("tr.inside >> nth=0")
    assert tab.locator("#query-table img, #query-table script").count() == 0
    assert said == []


def many(rows: int, documents: int) -> dict[str, Any]:
    """Make a table of so many queries with as much around each as a run has; no two texts are alike."""
    rng, size = np.random.default_rng(0), 60
    words = np.array([f"{a}{b}" for a in ("ba", "ko", "mi", "ru", "ta", "ze") for b in range(400)])
    texts = [" ".join(line) for line in rng.choice(words, (documents, 40))]
    corpus = pd.DataFrame({"document_id": [f"document-{i:06d}" for i in range(documents)], "title": "", "text": texts})
    shape = (rows, size)
    columns = {
        name: rng.uniform(0, 1, shape).astype(np.float32) for name in ("dense", "bm25", "p_relevant", "elo", "choice")
    }
    block = Candidates(
        np.array([f"query-{i:05d}" for i in range(rows)]), rng.integers(0, documents, (rows, 1)).astype(np.int32),
        rng.integers(0, documents, shape).astype(np.int32), np.ones(shape, np.uint8), columns=columns,
        verdict=rng.choice(5, shape).astype(np.int16), legend=("open", "negative", "max_ratio", "elo_gap", "barred"),
        rules={"max_ratio": Rule("dense ≥ 0.95 of the positive's", "unsafe")},
    )  # fmt: skip
    queries = {
        str(name): " ".join(line) for name, line in zip(block.query_ids, rng.choice(words, (rows, 12)), strict=True)
    }
    table = QueryTable(queries, dict.fromkeys(queries, 0.5), dict.fromkeys(queries, "train"))
    table.add_mined([block])
    found = table.as_dict(corpus)
    assert found is not None
    return found


def test_of_five_thousand_queries_it_is_small_and_quick(browser: Any, tmp_path: Path) -> None:
    page = render(full(queries=many(5_000, 40_000)))
    assert len(page.encode()) < MOST_BYTES
    tab, said = opened(browser, page, tmp_path)
    assert tab.inner_text("#query-status") == "1 to 15 of 5,000 queries"
    # What the page itself took, by its processor's time, which a busy machine does not lengthen.
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.reload()
    tab.wait_for_selector("#query-table tbody tr")
    measured = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    print(f"{len(page.encode()):,} bytes", {name: measured[name] for name in ("TaskDuration", "ScriptDuration")})
    assert measured["TaskDuration"] < MOST_SECONDS
    assert said == []
