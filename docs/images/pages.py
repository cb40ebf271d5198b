"""Take the picture of README: the report of the last run and the search page, in light and in dark.

    make run && .venv/bin/python docs/images/pages.py

Both are opened in Debian's Chromium by Playwright, as a user's browser shows them.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from viz import HERE, chromium

ROOT: Final = HERE.parents[1]
QUESTION: Final = "mean of an array ignoring nan"
# The search has four columns at this width.
REPORT, SEARCH, HEIGHT = 1000, 1280, 1020
GAP: Final = 24


@contextmanager
def searching(project: Path) -> Iterator[str]:
    """Run ``kedro anmi serve`` in a project on a free port; give its address."""
    command = [str(project / ".venv" / "bin" / "kedro"), "anmi", "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=project, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield next(line.strip() for line in process.stdout if line.startswith("http://"))
    finally:
        process.terminate()
        process.wait()


def newest_report(project: Path) -> Path:
    """Return the report of the last run."""
    return max((project / "data" / "08_reporting" / "report.html").glob("*/report.html"))


def main(project: Path = ROOT, target: Path = HERE) -> None:
    """Write ``pages.png`` and ``pages_dark.png``, in few colours, since they have few."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with searching(project) as address, sync_playwright() as driver:
        # Without a sandbox of its own, which a container run by root has no right to make.
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for scheme, name in (("light", "pages.png"), ("dark", "pages_dark.png")):
            tab: Any = browser.new_context(color_scheme=scheme).new_page()
            shots = []
            for place, width in (
                (newest_report(project).as_uri(), REPORT),
                (f"{address}?q={QUESTION}", SEARCH),
            ):
                tab.set_viewport_size({"width": width, "height": HEIGHT})
                tab.goto(place)
                tab.wait_for_timeout(1500)
                shots.append(Image.open(io.BytesIO(tab.screenshot())).convert("RGBA"))
            whole = Image.new("RGBA", (REPORT + GAP + SEARCH, HEIGHT))
            for shot, left in zip(shots, (0, REPORT + GAP), strict=True):
                whole.paste(shot, (left, 0))
            whole.quantize(64, method=Image.Quantize.FASTOCTREE).save(target / name, optimize=True)
        browser.close()


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
