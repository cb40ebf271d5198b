"""What an earlier run made of the same is taken over; in any doubt it is made again."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kedro.pipeline import Node, Pipeline
from tests.commands import Commands
from tests.hooks.conftest import Project, write_project

from anmi.pipelines.bm25.nodes import build_bm25_index, cut_terms
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.ingestion.pipeline import create_pipeline as ingestion
from anmi.runs.record import RunRecord
from anmi.runs.reuse import NODES, allowed, keys, take_over

REGISTRY = """
    from pathlib import Path
    import pandas as pd
    from kedro.pipeline import Node, Pipeline

    def called(name):
        with open("calls", "a") as file:
            file.write(name + " ")

    def ingest(collection: str, share: float) -> pd.DataFrame:
        called("ingest")
        file = Path(collection.partition(":")[2]) / "corpus.jsonl"
        found = pd.read_json(file, lines=True)
        if Path("writes").exists():
            file.write_text(file.read_text() + "\\n")
        return found

    def cut_terms(corpus: pd.DataFrame, bm25: dict) -> dict:
        called("cut_terms")
        return {"terms": corpus.text.str.split().map(len).tolist(), "tokenizer": bm25["tokenizer"]}

    def select(corpus: pd.DataFrame, terms: dict, recipe: str) -> dict:
        called("select")
        if Path("fails").exists():
            raise RuntimeError("asked to")
        return {"recipe": recipe, "documents": len(corpus), **terms}

    def train(selection: dict) -> dict:
        return selection

    def register_pipelines():
        mine = Pipeline([Node(ingest, ["params:collection", "params:share"], "corpus", name="ingest"),
                         Node(cut_terms, ["corpus", "params:bm25"], "terms", name="cut_terms"),
                         Node(select, ["corpus", "terms", "params:recipe"], "selection", name="select")])
        training = Pipeline([Node(train, "selection", "model", name="train_retriever")])
        return {"mine": mine, "training": training, "__default__": mine}
"""
PARAMETERS = """
    collection: beir:{folder}
    recipe: plain
    recipes: {{plain: {{negatives: 7}}, other: {{negatives: 3}}}}
    share: 0.1
    bm25: {{tokenizer: snowball, depth: 10}}
    force: false
    reuse: true
"""
ALL = ["ingest", "cut_terms", "select"]


@pytest.fixture
def project(tmp_path: Path, commands: Commands) -> Project:
    made = write_project(tmp_path, commands)
    (tmp_path / "conf/local/mlflow.yml").write_text("enabled: false\n")
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection/corpus.jsonl").write_text('{"_id": "a", "text": "one two"}\n{"_id": "b", "text": "two"}\n')
    (tmp_path / "src/miniature/pipeline_registry.py").write_text(textwrap.dedent(REGISTRY))
    (tmp_path / "conf/base/parameters.yml").write_text(
        textwrap.dedent(PARAMETERS).format(folder=tmp_path / "collection")
    )
    kinds = {"corpus": "TableDataset", "terms": "JsonDataset", "selection": "JsonDataset", "model": "JsonDataset"}
    entries = [
        f"{name}: {{type: anmi.datasets.{kind}, versioned: true, filepath: '${{globals:data}}/{name}/{name}."
        f"{'parquet' if kind == 'TableDataset' else 'json'}'}}"
        for name, kind in kinds.items()
    ]
    (tmp_path / "conf/base/catalog.yml").write_text("\n".join(entries) + "\n")
    return made


def called(project: Project, *arguments: str, params: str = "") -> list[str]:
    """Run, and return the nodes that were called."""
    project.kedro("run", *(arguments or ("--pipelines", "mine")), *(["--params", params] if params else []))
    file = project.path / "calls"
    found = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def manifests(project: Project) -> list[dict[str, Any]]:
    places = sorted((project.path / "data/runs").glob("*/manifest.json"))
    return [json.loads(place.read_text()) for place in places]


def artifact(project: Project, name: str, run: int = -1) -> Path:
    version = manifests(project)[run]["run_id"]
    return next((project.path / "data" / name).glob(f"*/{version}/*"))


def test_a_second_recipe_takes_over_what_the_first_read_and_indexed(project: Project) -> None:
    assert called(project) == ALL
    assert called(project, params="recipe=other,bm25.depth=99") == ["select"]
    first, second = manifests(project)
    assert second["taken_over"] == {"ingest": first["run_id"], "cut_terms": first["run_id"]}
    assert first["taken_over"] == {}
    assert second["saved"] == dict.fromkeys(("corpus", "terms", "selection"), second["run_id"]), "a run owns its parts"
    assert {name: second["files"][name] for name in ("corpus", "terms")} == {
        name: first["files"][name] for name in ("corpus", "terms")
    }
    assert json.loads(artifact(project, "selection").read_text()) == {
        "recipe": "other", "documents": 2, "terms": [2, 1], "tokenizer": "snowball"
    }  # fmt: skip
    # Whatever becomes of the first run, the second is whole; and a third takes over from it.
    for name in ("corpus", "terms", "selection", "runs"):
        for place in (project.path / "data" / name).rglob(first["run_id"]):
            shutil.rmtree(place)
    assert called(project) == ["select"]
    assert set(manifests(project)[-1]["taken_over"].values()) == {second["run_id"]}


def other_byte(project: Project) -> None:
    file = project.path / "collection/corpus.jsonl"
    file.write_text(file.read_text().replace("one", "uno"))


def damaged(project: Project) -> None:
    place = artifact(project, "corpus")
    state = place.stat()
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    os.utime(place, ns=(state.st_atime_ns, state.st_mtime_ns))


def cut_off(project: Project) -> None:
    place = artifact(project, "corpus")
    place.write_bytes(place.read_bytes()[:20])


def pruned(project: Project) -> None:
    shutil.rmtree(artifact(project, "corpus").parent)


def terms_gone(project: Project) -> None:
    artifact(project, "terms").unlink()


def without_manifest(project: Project) -> None:
    shutil.rmtree(project.path / "data/runs" / manifests(project)[-1]["run_id"])


def killed(project: Project) -> None:
    place = project.path / "data/runs" / manifests(project)[-1]["run_id"] / "manifest.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"status": "running", "end": None}))


DOUBTS: dict[str, tuple[Callable[[Project], Any] | None, str, list[str]]] = {
    "nothing changed": (None, "", ["select"]),
    "another byte in a file": (other_byte, "", ALL),
    "an artifact of as many bytes and the same time, damaged": (damaged, "", ALL),
    "an artifact that is cut off": (cut_off, "", ALL),
    "an artifact that was pruned": (pruned, "", ALL),
    "an artifact of the second node is gone": (terms_gone, "", ["cut_terms", "select"]),
    "no manifest": (without_manifest, "", ALL),
    "a run that never ended": (killed, "", ALL),
    "a parameter of the first node": (None, "share=0.2", ALL),
    "a parameter of the second node": (None, "bm25.tokenizer=ngram", ["cut_terms", "select"]),
    "not wanted": (None, "reuse=false", ALL),
    "forced": (None, "force=true", ALL),
}


def test_in_any_doubt_it_is_made_again(project: Project) -> None:
    called(project)
    shutil.copytree(project.path / "data", project.path / "kept")
    collection = (project.path / "collection/corpus.jsonl").read_text()
    for name, (doubt, params, made) in DOUBTS.items():
        shutil.rmtree(project.path / "data")
        shutil.copytree(project.path / "kept", project.path / "data")
        (project.path / "collection/corpus.jsonl").write_text(collection)
        if doubt is not None:
            doubt(project)
        assert called(project, params=params) == made, name


def test_who_names_a_runner_gets_just_that(project: Project) -> None:
    called(project)
    assert called(project, "--pipelines", "mine", "--runner", "SequentialRunner") == ALL


def test_nothing_is_taken_over_where_training_checks_what_is_read(tmp_path: Path) -> None:
    def train(corpus: Any) -> None:
        return None

    made, pipeline = record(), ingestion()
    made.made_from = keys(pipeline, made, {}, tmp_path)
    # It would look at the runs and ask the catalog, and there is neither.
    with allowed():
        take_over(pipeline + Pipeline([Node(train, "corpus", None, name="train_retriever")]), None, made, str(tmp_path))
        with pytest.raises(FileNotFoundError):
            take_over(pipeline, None, made, str(tmp_path))
    take_over(pipeline, None, made, str(tmp_path))
    assert made.taken_over == {}


def test_a_failed_run_gives_nothing_and_takes_nothing_back(project: Project) -> None:
    (project.path / "fails").touch()
    project.kedro("run", "--pipelines", "mine", code=1)
    (project.path / "fails").unlink()
    (project.path / "calls").unlink()
    assert called(project) == ALL


def test_a_collection_that_is_written_to_while_it_is_read_is_not_relied_on(project: Project) -> None:
    (project.path / "writes").touch()
    called(project)
    assert manifests(project)[-1]["made_from"] == {}
    (project.path / "writes").unlink()
    assert called(project) == ALL


def record(**changes: Any) -> RunRecord:
    parameters = {
        "collection": "beir:x", "recipe": "plain", "recipes": {"plain": {"training": {"kinds": ["title"]}, "pool": 1}},
        "ingestion": {"dev_share": 0.1}, "seed": 1, "training": {"refit": False, "options": {}},
        "bm25": {"tokenizer": "auto", "depth": 10, "shard": 5}, "adaptation": {"views": 5, "llm": None},
    }  # fmt: skip
    made = RunRecord(
        code="c", python="3.11.1", versions={"numpy": "1"}, collection={"digest": "d"}, parameters=parameters,
        machine={"platform": "Linux", "processor": "x86_64", "cores": 2},
    )  # fmt: skip
    for name, value in changes.items():
        place, _, inner = name.partition("__")
        if inner:
            getattr(made, place).update({inner: value})
        else:
            setattr(made, name, value)
    return made


def nodes() -> Pipeline:
    from anmi.pipelines.adaptation.pipeline import create_pipeline as adaptation
    from anmi.pipelines.bm25.pipeline import create_pipeline as bm25
    from anmi.pipelines.selection.pipeline import create_pipeline as selection

    return ingestion() + adaptation() + bm25() + selection()


def test_the_nodes_that_can_be_taken_over_are_those_of_the_pipeline() -> None:
    assert keys(nodes(), record(), {}, Path()).keys() == NODES


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"code": "another release"}, NODES),
        ({"python": "3.12.0"}, NODES),
        ({"versions__numpy": "2"}, NODES),
        ({"machine__processor": "aarch64"}, NODES),
        ({"collection__digest": "e"}, NODES),
        ({"parameters__seed": 2}, NODES),
        ({"parameters__bm25": {"tokenizer": "ngram", "depth": 10, "shard": 5}}, {"cut_terms", "build_bm25_index"}),
        ({"parameters__bm25": {"tokenizer": "auto", "depth": 99, "shard": 7}}, set()),
        ({"parameters__recipes": {"plain": {"training": {"kinds": []}, "pool": 1}}}, {"ask_corpus"}),
        ({"parameters__recipes": {"plain": {"training": {"kinds": ["title"]}, "pool": 2}}}, set()),
        ({"machine__cores": 64}, set()),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set | frozenset) else value),
)
def test_a_key_changes_with_all_that_can_change_the_result(changes: dict[str, Any], changed: set[str]) -> None:
    before, after = (keys(nodes(), made, {}, Path()) for made in (record(), record(**changes)))
    assert {name for name in before if before[name] != after[name]} == changed


def test_another_package_anywhere_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(nodes(), record(), {}, Path())
    (tmp_path / "reader-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not {*before.items()} & {*keys(nodes(), record(), {}, Path()).items()}


def test_what_a_language_model_wrote_or_nobody_could_read_has_no_key() -> None:
    asked = record(parameters__adaptation={"views": 5, "llm": {"model": "m"}})
    assert keys(nodes(), asked, {}, Path()).keys() == NODES - {"ask_corpus"}
    assert keys(nodes(), record(collection__digest=""), {}, Path()) == {}
    alone = Pipeline([node for node in nodes().nodes if node.name != "ingest"])
    assert keys(alone, record(), {}, Path()) == {}, "what it would be made from is not known"


def test_an_index_does_not_depend_on_how_deep_it_is_searched() -> None:
    import pandas as pd

    corpus = pd.DataFrame({"document_id": ["a", "b"], "title": ["", ""], "text": ["one two", "two three"]})

    class Undepthed:
        """Parameters of which the depth may not be read."""

        def __getattr__(self, name: str) -> Any:
            assert name != "depth"
            return getattr(BM25Params(), name)

    params: Any = Undepthed()
    terms = cut_terms(corpus, {"language": "en"}, params)
    assert build_bm25_index(terms, params) is not None


def test_nodes_without_a_name_here_are_never_taken_over() -> None:
    def nothing(collection: str) -> None:
        return None

    assert keys(Pipeline([Node(nothing, "params:collection", "x", name="other")]), record(), {}, Path()) == {}
