"""Reading the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kedro.config import MissingConfigException, OmegaConfigLoader

from anmi.configuration import LOADER_ARGS, ConfigLoader


def loader(folder: Path, **parameters: object) -> ConfigLoader:
    return ConfigLoader(
        str(folder), base_env="base", default_run_env="local", runtime_params=parameters,
        merge_strategy={"parameters": "soft"},
    )  # fmt: skip


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for name in ("base", "local"):
        (tmp_path / name).mkdir()
    (tmp_path / "base" / "parameters.yml").write_text("seed: 1\nretrain: {hours: [1, 2]}\n", encoding="utf-8")
    return tmp_path


def test_a_part_is_read_once_and_what_is_done_to_it_stays_with_its_reader(conf: Path) -> None:
    found = loader(conf, seed=7)
    first = found["parameters"]
    assert first == {"seed": 7, "retrain": {"hours": [1, 2]}}
    first["retrain"]["hours"].append(3)
    (conf / "base" / "parameters.yml").write_text("seed: 2\n", encoding="utf-8")
    assert found["parameters"] == {"seed": 7, "retrain": {"hours": [1, 2]}}
    assert loader(conf)["parameters"] == {"seed": 2}


def test_a_part_that_is_set_replaces_the_files_even_after_they_were_read(conf: Path) -> None:
    found = loader(conf)
    assert found["parameters"]["seed"] == 1
    found["parameters"] = {"seed": 3}
    assert found["parameters"] == {"seed": 3}


def test_what_is_missing_is_missing_each_time(conf: Path) -> None:
    found = loader(conf)
    for _ in range(2):
        with pytest.raises(MissingConfigException):
            found["catalog"]


def test_what_the_chosen_recipe_says_of_mining_stands_under_what_is_set(conf: Path) -> None:
    (conf / "base" / "parameters.yml").write_text(
        """
        recipe: plain
        bm25: {}
        elo: {variant: zelo}
        recipes:
          plain: {description: Plain.}
          stated: {description: Stated., mining: {bm25: {k1: 1.5, b: 0.75}, elo: {depth: 50, variant: paraphrase}}}
          heir: {extends: stated}
          lost: {extends: lost}
        """,
        encoding="utf-8",
    )
    assert loader(conf)["parameters"]["bm25"] == {}
    for name in ("stated", "heir"):
        found = loader(conf, recipe=name, bm25={"b": 0.4})["parameters"]
        assert found["bm25"] == {"k1": 1.5, "b": 0.4}
        assert found["elo"] == {"variant": "zelo", "depth": 50}, "a file says more than a recipe"
    # That these are no recipes is for those to say who validate them.
    for name in ("lost", "unknown"):
        assert loader(conf, recipe=name)["parameters"]["bm25"] == {}


def read(kind: type[OmegaConfigLoader], folder: Path, part: str, env: str | None, **parameters: Any) -> Any:
    """What a loader reads, with the kinds of values, or the kind of its complaint."""
    try:
        found = kind(str(folder), env=env, runtime_params=parameters, **LOADER_ARGS)[part]
    except Exception as error:
        return type(error)
    return found, repr(sorted_by_name(found))


def sorted_by_name(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((name, sorted_by_name(item)) for name, item in value.items())
    return [sorted_by_name(item) for item in value] if isinstance(value, list) else value


class ByKedro(ConfigLoader):
    def _plainly(self, key: str) -> None:
        return None


@pytest.mark.parametrize("part", ["parameters", "catalog"])
@pytest.mark.parametrize("env", [None, "base", "test", "prod"])
def test_the_project_is_read_as_kedro_reads_it(part: str, env: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANMI_DATA_ROOT", "s3://bucket/data")
    conf = Path(__file__).parents[1] / "conf"
    asked: dict[str, Any] = {"recipe": "nv_retriever", "bm25": {"k1": 1.2}, "elo": None, "new": {"a": [1]}}
    assert ConfigLoader(str(conf), env=env, **LOADER_ARGS)._plainly(part), "by OmegaConf it takes ten times as long"
    for parameters in ({}, asked):
        ours = read(ConfigLoader, conf, part, env, **parameters)
        assert ours == read(ByKedro, conf, part, env, **parameters)


NAMES = st.sampled_from(["a", "b", "c", "_d", "recipe"])
TEXTS = [
    "plain", "${globals:data}", "${globals:data}/x", "${globals: seed}", "x${globals:seed}", "${globals:none}",
    "${globals:none,${globals:data}}/y", "${globals:none,5}", "${globals:_hidden}", "${a}", "${runtime_params:a,1}",
    "${globals:branch}", "${globals:data", "\\\\${globals:data}", "???", "1e-3", "$x",
]  # fmt: skip
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-1, 1), st.sampled_from(TEXTS))
TREES = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda of: st.lists(of, max_size=2) | st.dictionaries(NAMES, of, max_size=3)),
    max_size=3,
)  # fmt: skip


@given(
    files=st.lists(TREES, min_size=1, max_size=2), chosen=st.none() | TREES, asked=TREES,
    part=st.sampled_from(["parameters", "catalog"]),
)  # fmt: skip
@example(files=[{"a": "${globals:data"}], chosen=None, asked={"a": None}, part="parameters")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_the_files_is_read_as_kedro_reads_it(
    files: list[Any], chosen: Any, asked: Any, part: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("conf")
    for name in ("base", "local"):
        (folder / name).mkdir()
    (folder / "base" / "globals.yml").write_text("{data: d/e, seed: 3, branch: {a: 1}, _hidden: h}", encoding="utf-8")
    for number, tree in enumerate(files):
        (folder / "base" / f"{part}_{number}.yml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    if chosen is not None:
        (folder / "local" / f"{part}.yml").write_text(yaml.safe_dump(chosen), encoding="utf-8")
    ours = read(ConfigLoader, folder, part, None, **asked)
    assert ours == read(ByKedro, folder, part, None, **asked)
