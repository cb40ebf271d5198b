"""The picture of the pipeline, with what a run made, as a site that CI keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project

from anmi.pipeline_registry import STAGES

LAYERS = {
    "02_intermediate",
    "03_primary",
    "04_feature",
    "05_model_input",
    "06_models",
    "07_model_output",
    "08_reporting",
}
FIGURES = {"metrics_figure", "funnel_figure", "nearness_figure", "training_figure"}


@pytest.fixture(scope="module")
def site(project: Path, whole_run: Any, open_catalog: Any) -> Path:
    """What ``kedro viz build --include-previews`` writes of a run; it stays where CI keeps it."""
    import fsspec
    from kedro_viz.api.rest.responses.save_responses import save_api_responses_to_fs
    from kedro_viz.data_access import data_access_manager
    from kedro_viz.server import populate_data

    folder = project / "build" / "viz"
    folder.mkdir(parents=True, exist_ok=True)
    with open_catalog(whole_run, "test") as (catalog, _):
        data_access_manager.reset_fields()
        populate_data(data_access_manager, catalog, dict(pipelines), {})
        save_api_responses_to_fs(str(folder), fsspec.filesystem("file"), True)
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
    names = {node["full_name"] for node in graph["nodes"] if node["type"] == "task"}
    assert names == {node.name for node in whole.nodes}
    drawn = of_type(graph, "data")
    assert {name for name in whole.datasets() if not name.startswith("params:")} == drawn.keys()
    assert {node["layer"] for node in drawn.values()} == LAYERS
    assert set(graph["layers"]) == LAYERS
    assert graph["layers"] == sorted(LAYERS)


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
    names = {node["id"]: node.get("full_name", node["name"]) for node in graph["nodes"]}
    for name in STAGES:
        children = graph["modular_pipelines"][name]["children"]
        folded = {names[child["id"]] for child in children if child["type"] == "task"}
        assert folded == {node.name for node in pipelines[name].nodes}


def test_what_a_run_made_can_be_looked_at(graph: dict[str, Any], site: Path) -> None:
    shown = {}
    for name, node in of_type(graph, "data").items():
        told = response(site, f"nodes/{node['id']}")
        if told.get("preview"):
            shown[name] = told["preview_type"], told["preview"]
    assert {name for name, (kind, _) in shown.items() if kind == "PlotlyPreview"} == FIGURES
    assert all(shown[name][1]["data"] for name in FIGURES)
    assert {"results", "metrics_flat", "selection_summary"} <= {
        n for n, (kind, _) in shown.items() if kind == "JSONPreview"
    }
    tables = {name: preview for name, (kind, preview) in shown.items() if kind == "TablePreview"}
    assert {"corpus", "candidates", "training_rows"} <= tables.keys()
    assert len(tables["corpus"]["data"]) == 5
    assert len(tables["metrics"]["data"]) > 100, "who looks at results wants all of them"
    assert (
        max(len(cell) for table in tables.values() for row in table["data"] for cell in row) <= 121
    )
