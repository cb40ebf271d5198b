"""Mining again what is there already: noticed from contents, never from the mere existence of an output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kedro.io import DataCatalog
from kedro.io.core import Version
from tests.commands import Commands
from tests.hooks.conftest import write_project

from anmi.datasets import FolderDataset, TableDataset
from anmi.errors import AnmiError
from anmi.runs.origin import collection_facts
from anmi.runs.unchanged import compare, fingerprint, is_forced, is_whole, stamps

INPUTS = ("params:collection", "params:recipe", "params:recipes", "params:bm25", "params:encoder", "store")
V1, V2 = "2026-01-01T00.00.00.000Z", "2026-01-02T00.00.00.000Z"


@pytest.fixture
def parameters(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "a_001.jsonl").write_text('{"query": "q", "document": "d"}\n')
    (tmp_path / "b_001.jsonl").write_text('{"query": "r", "document": "e"}\n')
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return {
        "collection": f"pairs:{tmp_path}/a*.jsonl;{tmp_path}/b*.jsonl@1000",
        "recipe": "plain",
        "recipes": {"plain": {"negatives": 7}, "other": {"negatives": 3}},
        "bm25": {"k1": 0.9, "shard": 512},
        "encoder": str(model),
        "training": {"epochs": 1},
    }


def hashes(parameters: dict[str, Any], **versions: str) -> dict[str, str]:
    collection = collection_facts(parameters["collection"])["digest"]
    return fingerprint(INPUTS, parameters, collection, {"anmi": "1"} | versions, {"corpus": {"filepath": "x"}}, Path())


def add_line(folder: Path, given: dict[str, Any]) -> None:
    with (folder / "b_001.jsonl").open("a") as file:
        file.write("\n")


def same_size(folder: Path, given: dict[str, Any]) -> None:
    path = folder / "a_001.jsonl"
    path.write_text(path.read_text().replace("q", "p"))


def new_file(folder: Path, given: dict[str, Any]) -> None:
    (folder / "a_002.jsonl").write_text("")


def new_weights(folder: Path, given: dict[str, Any]) -> None:
    (folder / "model" / "weights").write_text("1")


CHANGES: dict[str, tuple[str | None, Callable[[Path, dict[str, Any]], None]]] = {
    "a line added to a file of the second pattern": ("collection", add_line),
    "other bytes, as many": ("collection", same_size),
    "a new file under a pattern": ("collection", new_file),
    "another weight of the encoder": ("models", new_weights),
    "a parameter": ("parameters", lambda _, given: given["bm25"].update(k1=1.2)),
    "another recipe": ("parameters", lambda _, given: given.update(recipe="other")),
    "the definition of the recipe": ("parameters", lambda _, given: given["recipes"]["plain"].update(negatives=5)),
    "a recipe that was not chosen": (None, lambda _, given: given["recipes"]["other"].update(negatives=5)),
    "queries at a time": (None, lambda _, given: given["bm25"].update(shard=32)),
    "a parameter that mining does not take": (None, lambda _, given: given["training"].update(epochs=9)),
    "a file beside the patterns": (None, lambda folder, _: (folder / "c_001.jsonl").write_text("")),
    "a file read and closed again": (None, lambda folder, _: (folder / "a_001.jsonl").touch()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_fingerprint_changes_with_what_changes_the_result(
    name: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    part, change = CHANGES[name]
    before = hashes(parameters)
    change(tmp_path, parameters)
    after = hashes(parameters)
    assert [key for key in before if before[key] != after[key]] == ([part] if part else [])


def test_libraries_count() -> None:
    given = {"collection": "api_docs"}
    assert hashes(given)["libraries"] != hashes(given, bm25s="2")["libraries"]


@pytest.fixture
def mined(tmp_path: Path) -> tuple[DataCatalog, list[str], dict[str, str]]:
    """Two artifacts of the run V1, and its manifest."""
    catalog = catalog_of(tmp_path, V1)
    save(catalog)
    now = {"collection": "c", "code": "x"}
    write_manifest(tmp_path, V1, {"fingerprint": now, "outputs": stamps(catalog, ["rows", "index"])})
    return catalog, ["rows", "index"], now


def catalog_of(folder: Path, version: str) -> DataCatalog:
    pinned = Version(None, version)
    return DataCatalog({
        "rows": TableDataset(filepath=str(folder / "rows.parquet"), version=pinned),
        "index": FolderDataset(filepath=str(folder / "index"), version=pinned),
    })  # fmt: skip


def save(catalog: DataCatalog, *names: str) -> None:
    for name in names or ("rows", "index"):
        catalog.save(name, pd.DataFrame({"a": [1]}) if name == "rows" else Saved())


class Saved:
    """Something that knows how to save itself."""

    def save(self, path: Path) -> None:
        (path / "settings.json").write_text("{}")


def write_manifest(folder: Path, version: str, content: dict[str, Any]) -> None:
    place = folder / "runs" / version / "manifest.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"run_id": version, "status": "finished"} | content))


def test_the_same_again_has_nothing_to_do(mined: Any, tmp_path: Path) -> None:
    catalog, outputs, now = mined
    manifest, changes = compare(catalog, outputs, str(tmp_path), now)
    assert (manifest["run_id"], changes) == (V1, [])
    assert compare(catalog, outputs, str(tmp_path), now | {"code": "y"})[1] == ["code"]


def edit(folder: Path) -> None:
    (folder / "index" / V1 / "index" / "settings.json").write_text("[]")


def delete(folder: Path) -> None:
    (folder / "rows.parquet" / V1 / "rows.parquet").unlink()


@pytest.mark.parametrize("damage", [edit, delete])
def test_an_output_that_was_touched_is_made_again(mined: Any, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    damage(tmp_path)
    catalog, outputs, now = mined
    assert compare(catalog, outputs, str(tmp_path), now)[1] == ["outputs"]


def test_a_later_run_of_a_part_is_not_taken_for_the_whole(mined: Any, tmp_path: Path) -> None:
    _, outputs, now = mined
    later = catalog_of(tmp_path, V2)
    save(later, "rows")
    assert compare(later, outputs, str(tmp_path), now) == ({}, []), "no manifest, as when the disk was full"
    write_manifest(tmp_path, V2, {"fingerprint": now, "status": "failed"})
    assert compare(later, outputs, str(tmp_path), now) == ({}, [])


def test_a_run_that_noted_nothing_never_stands_for_another(mined: Any, tmp_path: Path) -> None:
    _, outputs, now = mined
    later = catalog_of(tmp_path, V2)
    save(later)
    write_manifest(tmp_path, V2, {"outputs": stamps(later, outputs)})
    assert compare(later, outputs, str(tmp_path), now) == ({}, [])
    assert compare(catalog_of(tmp_path / "elsewhere", V1), outputs, str(tmp_path), now) == ({}, [])


def test_artifacts_far_away(tmp_path: Path) -> None:
    root = f"memory://{tmp_path.name}"
    catalog = DataCatalog({"index": FolderDataset(filepath=f"{root}/index", version=Version(None, V1))})
    catalog.save("index", Saved())
    found = stamps(catalog, ["index"])["index"]
    assert found["version"] == V1
    assert found["bytes"] == 2
    assert "changed" not in found


@pytest.mark.parametrize("name", ["from_nodes", "to_nodes", "tags", "load_versions", "only_missing_outputs"])
def test_a_part_of_the_pipeline_is_always_run(name: str) -> None:
    assert is_whole({"pipeline_names": ["mining"], name: None})
    assert not is_whole({"pipeline_names": ["mining"], name: ["x"]})
    assert not is_whole({"pipeline_names": ["mining", "training"]})
    assert not is_whole({"pipeline_names": None})


def test_force_is_yes_or_no() -> None:
    assert [is_forced({"force": value}) for value in (True, "true", "no", False)] == [True, True, False, False]
    assert not is_forced({})
    with pytest.raises(AnmiError, match='parameter "force": true or false was expected'):
        is_forced({"force": "perhaps"})


def test_kedro_run_skips_says_so_and_can_be_forced(tmp_path: Path, commands: Commands) -> None:
    project = write_project(tmp_path, commands)
    (tmp_path / "conf/local/mlflow.yml").write_text("enabled: false\n")
    (tmp_path / "conf/base/parameters.yml").open("a").write("force: false\n")
    registry = tmp_path / "src/miniature/pipeline_registry.py"
    registry.write_text(registry.read_text().replace('"first": first,', '"first": first, "mining": first,'))

    def run(*arguments: str) -> str:
        done = project.kedro("run", "--pipelines", "mining", *arguments)
        return done.stdout + done.stderr

    def runs() -> int:
        return len(list((tmp_path / "data/runs").iterdir()))

    run()
    again = run()
    assert "Nothing to mine" in again
    assert "force=true" in again
    assert runs() == 1, "a run that does not take place leaves no record"
    run("--params", "force=true")
    assert runs() == 2
