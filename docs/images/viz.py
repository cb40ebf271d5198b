"""Take the picture of Kedro-Viz: a figure of the last run, the node that made it, and what it was made of.

    make viz && python docs/images/viz.py

It opens the site in Debian's Chromium by Playwright, both of which the tests need as well.
"""

from __future__ import annotations

import http.server
import io
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
SITE: Final = HERE.parents[1] / "build"
SHOWN: Final = "nearness_figure"
SIZE: Final = {"width": 1280, "height": 800}
# Beside the page as it opens for the first time: without its hints, and with room for the graph.
SETTINGS: Final = {
    "showFeatureHints": False,
    "theme": "light",
    "visible": {"sidebar": False, "miniMap": False},
}


def chromium() -> str | None:
    """Return the browser that is installed, None where there is none."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder as any host of static files does; give its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(site))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def opened(settings: dict[str, Any], heard: Callable[[str], None] = print) -> Iterator[Any]:
    """Give a tab of the browser; what goes wrong in it is told by ``heard``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Without a sandbox of its own, which a container run by root has no right to make.
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        tab = browser.new_context(viewport=SIZE).new_page()
        tab.on(
            "console", lambda said: heard(said.text) if said.type in ("error", "warning") else None
        )
        tab.on("pageerror", lambda error: heard(str(error)))
        tab.on("requestfailed", lambda request: heard(f"failed: {request.url}"))
        if settings:
            tab.add_init_script(
                f"localStorage.setItem('KedroViz', {json.dumps(json.dumps(settings))})"
            )
        yield tab
        browser.close()


def place_of(site: Path, name: str) -> str:
    """Return the address, within the site, of a node or an artifact of the default pipeline."""
    nodes = json.loads((site / "api" / "main").read_text(encoding="utf-8"))["nodes"]
    (found,) = [node["id"] for node in nodes if node["name"] == name]
    return f"?pid=__default__&sid={found}"


def main(site: Path = SITE, target: Path = HERE / "viz.png") -> None:
    """Write the picture, in few colours, since it has few."""
    from PIL import Image

    with served(site) as address, opened(SETTINGS) as tab:
        # In the pipeline of its stage there is room for what it was made of.
        tab.goto(
            address
            + place_of(site, SHOWN).replace("__default__", "reporting")
            + "&expandAllPipelines=true"
        )
        tab.locator(".js-plotly-plot svg.main-svg").first.wait_for()
        # The graph moves to what was asked for.
        tab.wait_for_timeout(2000)
        picture = Image.open(io.BytesIO(tab.screenshot()))
    picture.convert("RGB").quantize(128).save(target, optimize=True)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
