"""The documentation as a site: built without a warning, searchable, and nothing left out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from anmi.selection.steps import STEPS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Strict: a page that no menu shows, or a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    command += ["--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there_and_can_be_searched(site: Path) -> None:
    pages = {
        path.relative_to(ROOT / "docs").with_suffix(".html")
        for path in (ROOT / "docs").rglob("*.md")
    }
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert {entry["location"].partition("#")[0] for entry in found} >= {str(page) for page in pages}
    assert any("anmi_and_sparse" in entry["text"] for entry in found)


def test_the_menu_names_every_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = (ROOT / "docs").rglob("*.md")
    listed = set(re.findall(r"- ([\w/]+\.md)$", menu, flags=re.MULTILINE))
    assert listed == {path.relative_to(ROOT / "docs").as_posix() for path in pages}


def test_the_reference_has_settings_and_signatures(site: Path) -> None:
    settings = (site / "reference" / "settings.html").read_text(encoding="utf-8")
    for file in (ROOT / "conf" / "base").glob("parameters*.yml"):
        branch = file.stem.removeprefix("parameters_")
        assert f"{branch}:" in re.sub(r"<[^>]+>", "", settings) or branch == "parameters", file.name
    assert not [name for name in STEPS if f"<code>{name}</code>" not in settings]
    for kind in ("loss: debiased", "curriculum: tiers", "tau_plus"):
        assert f"<code>{kind}</code>" in settings
    assert "HybridSearch" in (site / "reference" / "python.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        sources = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"([^\"]+)", text)
        assert not [source for source in sources if source.startswith(("http", "//"))], page.name
        own = [source for source in sources if not source.startswith(("http", "#", "data:", "/"))]
        paths = [page.parent / source.partition("#")[0] for source in own]
        assert not [path for path in paths if not path.exists()], page.name
        # The theme would fetch a script to draw these.
        assert 'class="mermaid"' not in text, page.name


def test_formulas_are_drawn_without_a_script(site: Path) -> None:
    text = (site / "methods.html").read_text(encoding="utf-8")
    assert text.count("<math ") >= 8 and "arithmatex" not in text
    # A mark that the converter does not know stays as it is.
    assert not [
        formula for formula in re.findall(r"<math .*?</math>", text, re.DOTALL) if "\\" in formula
    ]


def test_the_readme_leads_to_pages_that_are_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")]
    assert len(linked) > 15 and not [link for link in linked if not (ROOT / link).exists()]
    assert len(text.splitlines()) <= 150


def test_language_models_are_told_of_every_page(site: Path) -> None:
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# ANMI" and lines[2].startswith("> ")
    pages = [re.fullmatch(r"- \[.+\]\((\S+)\): .+\.", line) for line in lines if line[:1] == "-"]
    named = {page[1] for page in pages if page}
    assert len(named) == len(pages) and not [page for page in named if not (site / page).exists()]
    assert {path.stem for path in (ROOT / "docs").rglob("*.md")} == {
        Path(page).stem for page in named
    }


def test_the_skill_is_one_that_agents_read() -> None:
    text = (ROOT / "docs" / "skill" / "SKILL.md").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    skill = yaml.safe_load(front)
    assert skill.keys() == {"name", "description"} and re.fullmatch("[a-z0-9-]+", skill["name"])
    assert len(skill["description"]) <= 1024 and len(text.splitlines()) <= 150
    files = re.findall(r"`(docs/[\w/.]+)`", body)
    assert files and not [name for name in files if not (ROOT / name).exists()]
