"""The picture of the pipeline, with what a run made, as a site that CI keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project

from anmi.pipeline_registry import STAGES

pytestmark = pytest.mark.slow
LAYERS = {"collection", "candidates", "judgments", "negatives", "model", "evaluation", "report"}
FIGURES = {"metrics_figure", "funnel_figure", "nearness_figure", "training_figure"}


@pytest.fixture(scope="module")
def site(project: Path, whole_run: Any, in_process: Any) -> Path:
    """What ``kedro anmi viz`` writes of a run; it stays where CI keeps it."""
    folder = project / "build" / "viz"
    done = in_process(whole_run, "anmi", "viz", "--output", str(folder))
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def graph(site: Path) -> dict[str, Any]:
    return response(site, "main")


def response(site: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site / "api" / name).read_text(encoding="utf-8"))
    return found


def of_type(graph: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in graph["nodes"] if node["type"] == kind}


def test_every_node_and_artifact_is_drawn_in_a_layer(graph: dict[str, Any], project: Path) -> None:
    bootstrap_project(project)
    whole = pipelines["__default__"]
    assert {node["full_name"] for node in of_type(graph, "task").values()} == {node.name for node in whole.nodes}
    drawn = of_type(graph, "data")
    assert {name for name in whole.datasets() if not name.startswith("params:")} == drawn.keys()
    assert {node["layer"] for node in drawn.values()} == LAYERS
    assert set(graph["layers"]) == LAYERS
    order = [layer for layer in graph["layers"] if layer in ("collection", "judgments", "model", "report")]
    assert order == ["collection", "judgments", "model", "report"]


def test_every_pipeline_is_drawn_in_layers(site: Path, project: Path) -> None:
    bootstrap_project(project)
    for name in pipelines:
        found = response(site, f"pipelines/{name}")
        layers = {node["layer"] for node in of_type(found, "data").values()}
        # Kedro-Viz draws none where they come round in a circle.
        assert layers, name
        assert layers <= set(found["layers"]) <= LAYERS, name


def test_stages_fold_and_every_pipeline_can_be_chosen(graph: dict[str, Any], project: Path) -> None:
    bootstrap_project(project)
    assert {pipeline["id"] for pipeline in graph["pipelines"]} == set(pipelines)
    assert graph["modular_pipelines"].keys() == {"__root__", *STAGES}
    names = {node["id"]: node["name"] for node in graph["nodes"]}
    for name in STAGES:
        children = graph["modular_pipelines"][name]["children"]
        folded = {names[child["id"]] for child in children if child["type"] == "task"}
        assert folded == {node.name for node in pipelines[name].nodes}


def test_what_a_run_made_can_be_looked_at(graph: dict[str, Any], site: Path, project: Path) -> None:
    shown = {}
    for name, node in of_type(graph, "data").items():
        told = response(site, f"nodes/{node['id']}")
        if told.get("preview"):
            shown[name] = told["preview_type"], told["preview"]
    assert {name for name, (kind, _) in shown.items() if kind == "PlotlyPreview"} == FIGURES
    assert all(shown[name][1]["data"] for name in FIGURES)
    assert str(project) not in "".join(path.read_text(encoding="utf-8") for path in (site / "api" / "nodes").iterdir())
    assert {"results", "metrics_flat", "selection_summary"} <= {
        n for n, (kind, _) in shown.items() if kind == "JSONPreview"
    }
    tables = {name: preview for name, (kind, preview) in shown.items() if kind == "TablePreview"}
    assert {"corpus", "candidates", "training_rows", "negatives"} <= tables.keys()
    assert len(tables["corpus"]["data"]) == 5
    assert len(tables["metrics"]["data"]) > 100, "who looks at results wants all of them"
    assert max(len(cell) for table in tables.values() for row in table["data"] for cell in row) <= 121


def test_a_site_is_replaced_and_nothing_else(site: Path, whole_run: Any, in_process: Any, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "letter.txt"
    mine.parent.mkdir()
    mine.write_text("dear", encoding="utf-8")
    done = in_process(whole_run, "anmi", "viz", "--output", str(mine.parent))
    assert done.exit_code == 1
    assert "holds something else than a site of Kedro-Viz" in done.stderr
    assert [path.name for path in mine.parent.iterdir()] == ["letter.txt"]
    (site / "of_an_older_version.js").write_text("", encoding="utf-8")
    assert in_process(whole_run, "anmi", "viz", "--output", str(site), "--json").exit_code == 0
    assert not (site / "of_an_older_version.js").exists()


def test_no_secret_is_shown(whole_run: Any, in_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the name of a step has in common with a secret is that it stands in the parameters.
    monkeypatch.setenv("JUDGE_API_KEY", "duplicate_guard")
    done = in_process(whole_run, "anmi", "viz", "--output", str(tmp_path / "viz"))
    assert done.exit_code == 1
    assert "holds the value of the environment variable JUDGE_API_KEY" in done.stderr
    assert not (tmp_path / "viz").exists()


@pytest.mark.rare
def test_it_opens_in_a_browser_folds_and_shows_a_figure(browsing: Any, site: Path) -> None:
    wrong: list[str] = []
    with browsing.served(site) as address, browsing.opened({"showFeatureHints": False}, wrong.append) as tab:
        own = (address, f"blob:{address}", "data:")
        tab.on("request", lambda asked: None if asked.url.startswith(own) else wrong.append(asked.url))
        tab.goto(address)
        tab.locator(".pipeline-node--modularPipeline[data-node-fullname=reporting]").wait_for()
        assert tab.locator(".pipeline-node--task").count() == 0, "all stages are folded"
        tab.locator("[role=treeitem][id$='-reporting'] .MuiTreeItem-iconContainer").click()
        tab.locator(".pipeline-node--task[data-node-fullname=draw_selection]").wait_for()
        # It fades out.
        tab.locator(".pipeline-node--modularPipeline[data-node-fullname=reporting]").wait_for(state="detached")
        folded = tab.locator(".pipeline-node--modularPipeline").count()
        assert folded == len(STAGES) - 1, "the others still are"
        tab.goto(address + browsing.place_of(site, "nearness_figure"))
        tab.get_by_text("Expand preview").click()
        tab.locator(".js-plotly-plot .legendtext", has_text="chosen, as the judge expects").first.wait_for()
        tab.goto(address + browsing.place_of(site, "draw_selection"))
        tab.get_by_text("Draw what each step took out of the candidates").first.wait_for()
    assert wrong == []


@pytest.mark.rare
def test_the_picture_of_the_docs_is_taken_by_its_script(browsing: Any, site: Path, tmp_path: Path) -> None:
    from PIL import Image

    browsing.main(site, tmp_path / "viz.png")
    taken, shown = (Image.open(path) for path in (tmp_path / "viz.png", browsing.HERE / "viz.png"))
    assert taken.size == shown.size == (browsing.SIZE["width"], browsing.SIZE["height"])
    assert (browsing.HERE / "viz.png").stat().st_size < 150_000
