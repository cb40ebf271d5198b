"""The tutorial can be walked by a stranger: its commands read nothing that only this project's makers have."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commands(folder: Path) -> list[str]:
    spec = importlib.util.spec_from_file_location("tutorial_walk", ROOT / "benchmarks" / "tutorial_walk.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[str] = module.commands(module.PAGE.read_text(encoding="utf-8"), folder)
    return found


def test_it_reads_the_folder_of_who_walks_and_no_other() -> None:
    found = commands(Path("/home/me/notes"))
    runs = [line for line in found if line.startswith("kedro run")]
    assert found[0] == "make install" and "collection=docs:/home/me/notes" in runs[0]
    assert [line for line in runs[1:] if ":" in line] == []
    assert "../" not in "".join(found)


def test_a_search_follows_the_first_run() -> None:
    found = commands(ROOT)
    first = next(place for place, line in enumerate(found) if line.startswith("kedro run"))
    assert found[first + 1].startswith("kedro anmi search")
