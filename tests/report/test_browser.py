"""The report in a real browser: Debian's Chromium, driven by Playwright, whose own browsers are not needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import full

from anmi.report.html import render

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("there is no Chromium: apt-get install chromium", allow_module_level=True)


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
    tab.wait_for_selector("table tbody tr")
    return tab, said


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_it_is_drawn_in_any_light_and_width(
    browser: Any, tmp_path: Path, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 844}
    tab, said = opened(browser, render(full()), tmp_path, viewport=size, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width, (
        "nothing stands out at the side"
    )
    tab.wait_for_function("window.Plotly !== undefined")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    undrawn = (
        "Array.from(document.querySelectorAll('.plot')).filter(p => !p.querySelector('svg')).length"
    )
    tab.wait_for_function(f"{undrawn} === 0")
    unnamed = (
        "Array.from(document.querySelectorAll('[role=img]')).filter(p =>"
        " !p.getAttribute('aria-label')).length"
    )
    assert tab.evaluate(unnamed) == 0
    assert said == []
