"""Stages fold in Kedro-Viz, can be run alone, and leave the names of datasets as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from kedro.framework.project import pipelines
from kedro.framework.startup import bootstrap_project
from kedro.pipeline import Pipeline

from anmi.pipeline_registry import STAGES


@pytest.mark.filterwarnings("error", "ignore:One or more dataset names contain")
def test_every_node_of_a_stage_is_in_its_namespace(project: Path) -> None:
    bootstrap_project(project)
    whole = pipelines["__default__"]
    for name in STAGES:
        names = {node.name for node in pipelines[name].nodes}
        assert all(each.startswith(f"{name}.") for each in names)
        assert {node.name for node in whole.only_nodes_with_namespaces([name]).nodes} == names
        assert not [dataset for dataset in pipelines[name].datasets() if dataset.startswith(f"{name}.")]
    # Raises where a stage is left and entered again, which could be neither folded nor run as one.
    Pipeline(whole.nodes)
