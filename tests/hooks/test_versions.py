"""Which versions a run loads: those that it made, and of all else what belongs together when it starts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kedro.io import DataCatalog
from kedro.io.core import Version
from kedro.pipeline import Node, Pipeline
from tests.commands import Commands
from tests.hooks.selecting import Selecting, write_selecting

from anmi.datasets import JsonDataset
from anmi.errors import AnmiError
from anmi.files import plain
from anmi.hooks.record import Runs
from anmi.hooks.versions import facts, fix, settle
from anmi.selection.recipe import RecipeBook


def node(inputs: str, outputs: str) -> Node:
    return Node(lambda *_: None, inputs.split(), outputs.split(), name=outputs.split(maxsplit=1)[0])


STAGES = Pipeline(
    [
        node("params:collection", "corpus queries"),
        node("corpus queries", "bm25"),
        node("corpus queries", "dense"),
        node("bm25 dense corpus", "rows"),
        node("rows", "model"),
    ]
)
NAMES = ("corpus", "queries", "bm25", "dense", "rows", "model")
MINED = dict.fromkeys(["corpus", "queries", "bm25", "dense", "rows"])
ALL = "bm25 corpus dense model queries rows"


def save(path: Path, run: str, *names: str) -> None:
    for name in names:
        dataset = JsonDataset(filepath=f"{path}/{name}.json", version=Version(None, run))
        dataset.save({"run": run})


def data_root(path: Path, history: Mapping[str, Mapping[str, str | None]]) -> Runs:
    """Make what runs left: by run, what each saved (None) and loaded (the run that had saved it)."""
    for run, artifacts in history.items():
        saved = {name: {"version": run} for name, version in artifacts.items() if version is None}
        save(path, run, *saved)
        loaded = {name: {"version": version} for name, version in artifacts.items() if version}
        record = {"run_id": run, "saved": saved, "loaded": loaded, "status": "finished"}
        record["start"] = run
        (path / "runs" / run).mkdir(parents=True)
        (path / "runs" / run / "run.json").write_text(json.dumps(record))
    return Runs(str(path))


def opened(path: Path, names: str, **given: str) -> dict[str, Any]:
    return {
        name: JsonDataset(filepath=f"{path}/{name}.json", version=Version(given.get(name), "9"))
        for name in names.split()
    }


INDEXED: dict[str, str | None] = {"corpus": "1", "queries": "1", "bm25": None}
TRAINED: dict[str, str | None] = {"rows": "1", "model": None}
INGESTED: dict[str, str | None] = {"corpus": None, "queries": None}
TWICE = {"1": MINED, "2": MINED}


@pytest.mark.parametrize(
    ("history", "asked", "expected"),
    [
        (TWICE, "corpus rows", "corpus 2 rows 2"),
        # Training after a mining that was killed.
        ({"1": MINED, "2": INGESTED}, "corpus queries rows", "corpus 1 queries 1 rows 1"),
        # Evaluation of a model that is older than the last mining.
        (TWICE | {"2": TRAINED, "3": MINED}, "corpus queries model", "corpus 1 queries 1 model 2"),
        # Stages one by one.
        (
            {"1": INGESTED, "2": INDEXED, "3": INDEXED | {"dense": None, "bm25": "2"}},
            "bm25 dense corpus",
            "bm25 2 dense 3 corpus 1",
        ),
        # Half of a node.
        ({"1": MINED, "2": {"corpus": None}}, "corpus queries", "corpus 1 queries 1"),
        # What belongs to the version that was asked for, on both sides of it.
        (TWICE, "corpus rows:1", "corpus 1 rows 1"),
        (TWICE, "corpus:1 rows", "corpus 1 rows 1"),
        (TWICE | {"3": TRAINED}, "corpus:2 model", "corpus 2 model 3"),
        # What no record names.
        ({"2": {}}, "corpus rows", "corpus 8 rows 9"),
    ],
)
def test_inputs_belong_together(
    tmp_path: Path, history: dict[str, Any], asked: str, expected: str
) -> None:
    origins = data_root(tmp_path, history)
    if "8" in expected:
        save(tmp_path, "8", "corpus")
        save(tmp_path, "9", "rows")
    given = dict(name.split(":") for name in asked.split() if ":" in name)
    datasets = opened(tmp_path, " ".join(name.split(":")[0] for name in asked.split()), **given)
    settle(datasets, origins, [STAGES])
    versions = [f"{name} {dataset.resolve_load_version()}" for name, dataset in datasets.items()]
    assert " ".join(versions) == expected


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    again = {"corpus": "2", "queries": "2", "dense": None}
    origins = data_root(tmp_path, {"1": MINED, "2": INGESTED, "3": again})
    for name in ("dense", "rows"):
        for place in (tmp_path / f"{name}.json" / "1").iterdir():
            place.unlink()
    with pytest.raises(AnmiError, match='"bm25" of run 1 goes with "corpus" of run 1'):
        settle(opened(tmp_path, "bm25 dense corpus"), origins, [STAGES])
    with pytest.raises(AnmiError, match='"rows" yet'):
        settle(opened(tmp_path, "rows"), origins, [STAGES])


def test_what_others_save_while_a_run_goes_on_is_not_loaded(tmp_path: Path) -> None:
    """Its own stays its own, what it read stays what it was, and what was not there stays absent."""
    origins = data_root(tmp_path, {"1": MINED})
    running = {"run_id": "2", "status": "running", "start": "2", "saved": {}, "loaded": {}}
    (tmp_path / "runs" / "2").mkdir()
    (tmp_path / "runs" / "2" / "run.json").write_text(json.dumps(running))
    save(tmp_path, "2", "corpus", "cross_encoder")
    save(tmp_path, "1", "fits")
    catalog = DataCatalog({**opened(tmp_path, ALL)})
    training = Pipeline([node("rows corpus queries", "model")])
    fix(catalog, training, origins, [STAGES])
    save(tmp_path, "2", "fits", "rows", "model", "queries")
    save(tmp_path, "99", "rows", "model")
    catalog.save("model", {"run": "9"})
    for name in training.datasets():
        # As Kedro does between two nodes; it forgets what was looked up.
        catalog.release(name)
    runs = {name: catalog.load(name)["run"] for name in training.datasets()}
    assert runs == {"corpus": "1", "model": "9", "queries": "1", "rows": "1"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Selecting:
    project = write_selecting(tmp_path_factory.mktemp("trained"), commands)
    (project.path / "model").mkdir()
    (project.path / "model" / "weights").write_text("as trained")
    code, text = project.do(f"run --params {project.options},encoder=model,recipe=hard")
    assert code == 0, text
    return project


AS_MADE = {"encoder": "model", "recipe": "hard"}


@pytest.mark.parametrize(
    ("part", "other", "right"),
    [
        ("--pipelines=after", {"recipe": "plain"}, "recipe=hard"),
        ("--nodes=tell", {"recipe": "plain"}, "recipe=hard"),
        ("--nodes=tell", {"encoder": "minilm"}, "encoder=model"),
        ("--nodes=tell", {"seed": "2"}, "seed=1"),
        ("--nodes=tell", {"dense.prompt_query": "'find:'"}, "dense.prompt_query=null"),
        ("--nodes=tell", {"dense.prompt_document": "''"}, "dense.prompt_document=null"),
        ("--pipelines=after", {"dense.max_length": "64"}, "dense.max_length=256"),
        ("--nodes=select", {"collection": "api_docs"}, "collection=beir:"),
        ("--nodes=tell", {"collection": "api_docs"}, "collection=beir:"),
    ],
)
def test_what_was_made_from_something_else_is_refused(
    trained: Selecting, part: str, other: dict[str, str], right: str
) -> None:
    asked = {"collection": trained.options.partition("=")[2], **AS_MADE, **other}
    words = ",".join(map("=".join, asked.items()))
    code, text = trained.do(f"run {part} --params {words}")
    assert code == 1
    assert f"this run asks for {'='.join(*other.items())}: set --params {right}" in text
    cure = text.partition("set --params ")[2].partition(", or")[0]
    given = dict(item.split("=", 1) for item in f"{words},{cure}".split(","))
    code, text = trained.do(f"run {part} --params {','.join(map('='.join, given.items()))}")
    assert code == 0, f"the parameters it names are not right: {text}"


def test_rows_are_trained_on_with_several_seeds_and_both_are_noted(trained: Selecting) -> None:
    options = f"{trained.options},encoder=model,recipe=hard"
    assert trained.do(f"run --pipelines=after --params {options},seed=2")[0] == 0
    assert trained.do(f"run --nodes=tell --params {options},seed=2")[0] == 0
    *_, training, telling = trained.records()
    for record in (training, telling):
        assert (record["made_from"]["seed"], record["made_from"]["mining_seed"]) == (2, 1)
        expected = {"collection", "collection_files", "encoder_files", "recipe"}
        assert record["made_from"].keys() >= expected


def test_other_weights_in_the_folder_of_the_encoder_are_noticed(trained: Selecting) -> None:
    (trained.path / "model" / "weights").write_text("replaced")
    code, text = trained.do(
        f"run --pipelines=after --params {trained.options},encoder=model,recipe=hard"
    )
    (trained.path / "model" / "weights").write_text("as trained")
    assert code == 1
    assert "the files of encoder=model are not those that" in text


def test_nodes_that_lack_nothing_are_left_out_and_what_they_made_is_read(
    tmp_path: Path, commands: Commands
) -> None:
    project = write_selecting(tmp_path, commands)
    assert project.do(f"run --params {project.options},options.rows=5")[0] == 0
    shutil.rmtree(project.data / "mini" / "summary.json")
    code, text = project.do(f"run --only-missing-outputs --params {project.options},options.rows=7")
    first, second = project.records()
    assert code == 0, text
    assert "told of 5" in text
    assert second["loaded"]["training_rows"]["version"] == first["run_id"]
    assert second["loaded"]["training_rows"]["digest"] == first["saved"]["training_rows"]["digest"]
    assert set(second["saved"]) == {"summary", "history"}
    words = f"run --only-missing-outputs --to-nodes write --params {project.options}"
    code, text = project.do(words)
    assert (code, "nothing is missing: all outputs are there" in text) == (0, True), text
    assert project.records() == [first, second], "and no run without nodes is left behind"


def test_a_recipe_as_read_is_the_same_fact_as_one_that_kedro_validated() -> None:
    near = {"description": "Near.", "steps": {"top": {"by": "dense"}}}
    read = {"near": near | {"training": {"loss": "infonce"}}}
    validated = plain({"recipe": "near", "recipes": RecipeBook(**read)})
    found = facts({"recipe": "near", "recipes": read})
    assert found == facts(validated) and "recipes.near" in found
