"""Every setting stands in conf/base with its default and reason, and documents mention those alone that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from kedro.framework.cli.utils import _split_params
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.validation.type_extractor import TypeExtractor
from pydantic import BaseModel
from tests.mined import recipe_book

from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import Recipe, merged
from anmi.selection.steps import STEPS
from anmi.training.options import TrainingOptions

ROOT = Path(__file__).parents[1]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("conf/**/*.yml"),
    *ROOT.glob("src/**/*.py"),
]
_NO_PARAMETERS = re.compile(
    r"\.(py|md|yml|json|jsonl|html|parquet|npy|tsv|safetensors|rated_candidates|corpus|consistency)$"
)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    bootstrap_project(ROOT)
    return dict(TypeExtractor(dict(pipelines)).extract_types_from_pipelines())


def exists(name: str, models: dict[str, Any]) -> bool:
    """Follow a dotted name through the models."""
    first, *parts = name.split(".")
    model: Any = models[first]
    if first == "recipes":
        # The name of any recipe, and of what it holds.
        model, parts = Recipe, parts[1:]
        if parts[:1] == ["steps"] and len(parts) > 1:
            model, parts = STEPS[parts[1]].params if parts[1] in STEPS else None, parts[2:]
    if name in {node.name for node in pipelines["retrain"].nodes}:
        return True
    for place, part in enumerate(parts):
        if (
            name.startswith(("training.options.", "recipes."))
            and parts[place - 1] in ("options", "training")
            and place
        ):
            model = TrainingOptions
        inner = [found for kind in _members(model) if (found := _step(kind, part)) is not None]
        if not inner:
            return False
        model = inner[0]
    return True


def _members(kind: Any) -> Iterator[Any]:
    """Yield the types that a value may be of."""
    if get_origin(kind) in (dict, list, tuple) or isinstance(kind, type):
        yield kind
        return
    for inner in get_args(kind) or (kind,):
        if inner is not kind:
            yield from _members(inner)
        else:
            yield inner


def _step(kind: Any, part: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if "kind" in kind.model_fields and kind.model_fields["kind"].default == part:
            return kind
        field = kind.model_fields.get(part)
        return None if field is None else field.annotation
    # Names below a mapping are the user's own; options of a loss or a curriculum are looked up by
    # the model itself.
    return Any if get_origin(kind) is dict or kind is Any else None


def mentioned(models: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield file and dotted name of what is written as a parameter: in backticks, or as KEY=VALUE."""
    branch = "|".join(sorted(models))
    written = re.compile(rf"`((?:{branch})(?:\.\w+)+)(?:=[^`]*)?`|[\s,`]((?:{branch})(?:\.\w+)+)=")
    for path in TEXTS:
        for found in written.finditer(path.read_text(encoding="utf-8")):
            name = found[1] or found[2]
            # A last part in capitals stands for any.
            if not _NO_PARAMETERS.search(name) and not name.rpartition(".")[2].isupper():
                yield path.relative_to(ROOT).as_posix(), name


def test_what_is_mentioned_exists(models: dict[str, Any]) -> None:
    everything = sorted(set(mentioned(models)))
    assert len(everything) > 50
    assert not [(file, name) for file, name in everything if not exists(name, models)]
    assert not exists("elo.candidates", models) and not exists("training.options.epoch", models)


BASE = {
    key: value
    for name in ("recipes", "parameters_training")
    for key, value in yaml.safe_load(
        (ROOT / "conf" / "base" / f"{name}.yml").read_text(encoding="utf-8")
    ).items()
}
SETTINGS = re.findall(
    r"`(recipe=[^`]+)`", (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_of_variants_make_a_recipe_that_differs(settings: str) -> None:
    def resolved(given: dict[str, Any]) -> tuple[Recipe, TrainingOptions]:
        found = merged(BASE, given)
        recipe = recipe_book(found["recipes"]).get(found["recipe"])
        return recipe, merged_options(recipe, TrainingParams.model_validate(found["training"]))

    given = _split_params(None, None, settings)  # type: ignore[arg-type]
    assert (resolved(given) == resolved({"recipe": given["recipe"]})) == (len(given) == 1)


FILES = sorted((ROOT / "conf" / "base").glob("parameters*.yml"))
# A place that depends on globals.yml, a mapping that Kedro would merge with the user's, and a word for
# all parts.
OTHERWISE = {"ingestion.marks", "elo.judges", "search.parts"}


def leaves(model: BaseModel, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a branch with their defaults, those of inner branches by dotted names."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel) and type(value).model_fields:
            yield from leaves(value, f"{place}.{name}")
        else:
            yield f"{place}.{name}", model.model_dump(mode="json")[name]


def stated(
    values: dict[str, Any], known: dict[str, Any], place: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a file, as deep as those of the models go."""
    for name, value in values.items():
        path = f"{place}.{name}" if place else name
        if isinstance(value, dict) and path not in known:
            yield from stated(value, known, path)
        else:
            yield path, value


@pytest.fixture(scope="module")
def defaults(models: dict[str, Any]) -> dict[str, Any]:
    branches = {
        name: model for name, model in models.items() if name != "recipes" and "." not in name
    }
    return {
        path: value for name, model in branches.items() for path, value in leaves(model(), name)
    }


def test_conf_base_states_every_setting_with_its_default(defaults: dict[str, Any]) -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in FILES)
    found = dict(stated(yaml.safe_load(re.sub(r"\$\{.*?\}", "", texts)), defaults))
    general = {"collection", "recipe", "encoder", "seed", "audit_judges_for", "final"}
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
