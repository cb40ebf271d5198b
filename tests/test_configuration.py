"""Reading the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from kedro.config import MissingConfigException

from anmi.configuration import ConfigLoader


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
