"""Every setting stands in conf/base with its default and the reason for it, and nothing else does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.validation.type_extractor import TypeExtractor
from pydantic import BaseModel

ROOT: Final = Path(__file__).parents[1]
FILES: Final = sorted((ROOT / "conf" / "base").glob("parameters*.yml"))
# A place that depends on globals.yml, and a mapping that Kedro would merge with the user's.
OTHERWISE: Final = {"ingestion.marks", "elo.judges"}


def leaves(model: BaseModel, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a branch with their defaults, those of inner branches by dotted names."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel) and type(value).model_fields:
            yield from leaves(value, f"{place}.{name}")
        else:
            yield f"{place}.{name}", model.model_dump(mode="json")[name]


def stated(values: dict[str, Any], known: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a file, as deep as those of the models go."""
    for name, value in values.items():
        path = f"{place}.{name}" if place else name
        if isinstance(value, dict) and path not in known:
            yield from stated(value, known, path)
        else:
            yield path, value


@pytest.fixture(scope="module")
def defaults() -> dict[str, Any]:
    bootstrap_project(ROOT)
    models = TypeExtractor(dict(pipelines)).extract_types_from_pipelines()
    branches = {name: model for name, model in models.items() if name != "recipes" and "." not in name}
    return {path: value for name, model in branches.items() for path, value in leaves(model(), name)}


def test_conf_base_states_every_setting_with_its_default(defaults: dict[str, Any]) -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in FILES)
    found = dict(stated(yaml.safe_load(re.sub(r"\$\{.*?\}", "", texts)), defaults))
    general = {"collection", "recipe", "encoder", "seed", "audit_judges_for"}
    assert len(found) > 100
    assert found.keys() - general - OTHERWISE == defaults.keys() - OTHERWISE
    assert {path: found[path] for path in defaults.keys() - OTHERWISE} == {
        path: value for path, value in defaults.items() if path not in OTHERWISE
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_comment_gives_the_reason_for_each(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("  ") and not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("#"), f"{path.name}: {line.strip()}"
