"""The page in a real browser: Debian's Chromium, without a window."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import serving

from anmi.corpus.marks import current_marks, read_log
from anmi.retrieval.bm25 import BM25Index
from anmi.search import HybridSearch, Part
from anmi.serve.run import Run

api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as player:
        # Chromium's own walls need rights that root in a container has not.
        opened = player.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] * (os.geteuid() == 0)
        )
        yield opened
        opened.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.said = []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    yield page
    context.close()


def test_a_query_is_labelled_by_the_keyboard_alone(tab: Any, served: str, marks: Path) -> None:
    tab.goto(served + "/queries")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/query?id=q1")
    for keys in ("jr", "jjn", "kku"):
        for key in keys:
            tab.keyboard.press(key)
        tab.wait_for_selector("#told:not(:empty)")
        tab.wait_for_timeout(150)
    focused = tab.locator("[data-item]").first
    assert tab.evaluate("document.activeElement === document.querySelector('[data-item]')")
    outline = focused.evaluate(
        "e => getComputedStyle(e).outlineWidth + getComputedStyle(e).outlineStyle"
    )
    assert outline == "3pxsolid"
    first, third = (tab.locator(".marks").nth(place) for place in (0, 2))
    assert first.locator("[aria-pressed=true]").count() == 0
    assert third.locator("[aria-pressed=true]").inner_text().startswith("not relevant")
    assert [mark.relevance for mark in read_log(marks)] == [1, 0, None]
    # What stands is there after a reload, too.
    tab.reload()
    assert tab.locator("[aria-pressed=true]").count() == 1
    tab.keyboard.press("]")
    tab.wait_for_url(lambda address: "id=q/2" in address)
    assert not tab.said


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_all_of_it_by_touch(
    browser: Any, served: str, marks: Path, scheme: str
) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(served + "/query?id=q1")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    button = page.locator("[data-mark='1']").first
    assert button.bounding_box()["height"] >= 40
    button.tap()
    page.wait_for_selector("[aria-pressed=true]")
    assert current_marks(read_log(marks)).relevance.tolist() == [1]
    colours = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert (colours[0] == "rgb(255, 255, 255)") == (scheme == "light")
    context.close()


def test_what_was_not_kept_is_said(tab: Any, served: str, marks: Path) -> None:
    tab.goto(served + "/query?id=q1")
    tab.evaluate("document.querySelector('.marks').dataset.document = 'no such document'")
    tab.locator("[data-mark='1']").first.click()
    tab.wait_for_selector("#told.bad")
    assert "no such document" in tab.locator("#told").inner_text()
    assert tab.locator("[aria-pressed=true]").count() == 0
    assert not marks.exists()


def test_a_phone_shows_one_system_at_a_time(browser: Any, run: Run, marks: Path) -> None:
    index = BM25Index.build(run.corpus.text.str[:100].tolist(), "en")
    settings = {"method": "convex", "weights": {"bm25": 1.0}, "depth": 10}
    search = HybridSearch([Part("bm25", index)], run.corpus, settings)
    for served in serving(replace(run, search=search), marks):
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(served + "/?q=plain")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        lists = page.locator(".systems ol")
        assert [lists.nth(place).is_visible() for place in (0, 1)] == [True, False]
        page.locator(".systems label", has_text="BM25").click()
        assert [lists.nth(place).is_visible() for place in (0, 1)] == [False, True]
        page.set_viewport_size({"width": 1280, "height": 900})
        assert [lists.nth(place).is_visible() for place in (0, 1)] == [True, True]
        page.close()
