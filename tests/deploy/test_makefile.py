"""Which of the rare tests a landing runs: those of what changed, and all where that cannot be told."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Changed = Callable[..., list[str] | None]


def table() -> dict[str, list[str]]:
    """Return the files of tests by the pattern of paths."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = (
        text.partition("define RARE_TESTS\n")[2]
        .partition("endef")[0]
        .replace("$$", "$")
        .splitlines()
    )
    return {line.split()[0]: line.split()[1:] for line in lines}


def test_every_file_with_rare_tests_is_run_when_something_changed() -> None:
    named = {ROOT / name for names in table().values() for name in names if name != "tests"}
    marked = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"pytest\.mark\.rare\b", path.read_text(encoding="utf-8"))
        and path != Path(__file__)
    ]
    assert len(marked) > 15
    assert [path for path in marked if not named & {path, *path.parents}] == []


def test_every_pattern_is_of_something_that_is_there() -> None:
    listed = [
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if ".venv" not in path.parts
    ]
    assert [
        pattern for pattern in table() if not any(re.search(pattern, path) for path in listed)
    ] == []


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    """Commit a change in a repository with our Makefile, and return what `make changed` asks pytest for."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in {name for names in table().values() for name in names}:
        file = tmp_path / name if name.endswith(".py") else tmp_path / name / "test_it.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for name in ("pyproject.toml", "requirements.lock", "requirements-test.lock"):
        (tmp_path / name).touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in (".installed", ".installed-test"):
        (tmp_path / ".venv" / name).touch()
    # It stands for pytest, which is not what is asked about here.
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "asked: $*"\n', encoding="utf-8")
    python.chmod(0o755)

    def git(*words: str) -> None:
        own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null")
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    def make(path: str, base: str = "HEAD~1") -> list[str] | None:
        git("init", "--quiet")
        git("add", "Makefile", "tests")
        git("commit", "--quiet", "--message=before")
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("changed", encoding="utf-8")
        git("add", path)
        git("commit", "--quiet", "--message=after")
        done = subprocess.run(
            ["make", "changed", f"BASE={base}"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        asked = re.search(r"^asked: (.*)$", done.stdout, flags=re.MULTILINE)
        return asked[1].partition("-m rare")[2].split() if asked else None

    return make


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("conf/prod/globals.yml", "tests/e2e/test_production.py"),
        ("src/anmi/engine/shards.py", "tests/e2e/test_engines.py"),
        ("tests/e2e/test_viz.py", "tests/e2e/test_viz.py"),
        ("src/anmi/seeds.py", "tests"),
    ],
)
def test_what_changed_decides(path: str, file: str, changed: Changed) -> None:
    asked = changed(path)
    assert asked is not None
    assert file in asked
    assert len(asked) < 8, "and little else"


def test_what_no_rare_test_looks_at_asks_for_none(changed: Changed) -> None:
    assert changed("CHANGELOG.md") is None


@pytest.mark.parametrize("base", ["", "0123456789abcdef0123456789abcdef01234567", "--help"])
def test_without_a_commit_to_compare_with_all_are_run(base: str, changed: Changed) -> None:
    assert changed("CHANGELOG.md", base) == []
