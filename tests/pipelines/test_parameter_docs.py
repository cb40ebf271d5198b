"""The settings listed in conf/base."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kedro.framework.startup import bootstrap_project
from pydantic import BaseModel, Field

from anmi.pipelines.parameter_docs import MARK, listed, models_of_parameters, updated

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "conf" / "base").glob("parameters*.yml"))


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    bootstrap_project(ROOT)
    return models_of_parameters()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_files_list_every_setting_and_nothing_else(path: Path, models: dict[str, Any]) -> None:
    text = path.read_text(encoding="utf-8")
    assert updated(text, models) == text, "run `python -m anmi.pipelines.parameter_docs conf/base`"


def test_every_branch_is_listed_once(models: dict[str, Any]) -> None:
    lists = "".join(path.read_text(encoding="utf-8").partition(MARK)[2] for path in FILES)
    names = re.findall(r"^# (\w[\w.]*)(?: = | \(|$)", lists, re.M)
    assert {name.split(".")[0] for name in names} == set(models) - {"recipes"}
    assert len(names) == len(set(names)) > 200


def test_what_is_listed_as_a_default_is_the_default(models: dict[str, Any]) -> None:
    for branch in models.keys() - {"recipes"}:
        text = listed(branch, models[branch])
        values = dict(re.findall(r"^# ([\w.]+) = (.+?)(?: \(.*\))?$", text, re.M))
        # What stands below something that is empty by default is told, too.
        empty = tuple(f"{name}." for name, value in values.items() if value in ("null", "{}"))
        for name, value in values.items():
            if not name.startswith(empty):
                given: Any = yaml.safe_load(value)
                for part in reversed(name.split(".")[1:]):
                    given = {part: given}
                # Setting one thing to its default leaves all others as they are.
                assert models[branch](**given) == models[branch](), name


def test_what_a_file_sets_stays() -> None:
    class Params(BaseModel):
        k1: float = Field(1.2, ge=0, description="A reason.")

    text = updated("# Ours.\nbm25: {k1: 2}\n", {"bm25": Params})
    assert text.startswith("# Ours.\nbm25: {k1: 2}\n")
    assert text.endswith("# bm25.k1 = 1.2 (≥ 0)\n#     A reason.\n")
    assert yaml.safe_load(text) == {"bm25": {"k1": 2}}
    assert updated(text, {"bm25": Params}) == text
    assert updated("seed: 1\n", {"bm25": Params}) == "seed: 1\n"
