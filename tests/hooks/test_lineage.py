"""Lineage of real runs, read by OpenLineage's own client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.hooks.selecting import Selecting

client = pytest.importorskip("openlineage.client.event_v2", reason="openlineage-python")


def events_of(project: Selecting, run_id: str) -> list[dict[str, Any]]:
    """The events of a run, each of which OpenLineage's classes accept."""
    text = (Path(project.data) / "runs" / run_id / "lineage.jsonl").read_text(encoding="utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    for event in events:
        fields = {name: event[name] for name in ("eventTime", "producer")}
        kind = client.RunState[event["eventType"]]
        run = client.Run(**event["run"])
        job = client.Job(**event["job"])
        inputs = [client.InputDataset(**dataset) for dataset in event["inputs"]]
        outputs = [client.OutputDataset(**dataset) for dataset in event["outputs"]]
        accepted = client.RunEvent(
            **fields, eventType=kind, run=run, job=job, inputs=inputs, outputs=outputs
        )
        assert accepted.schemaURL == event["schemaURL"]
    return events


def test_events_say_what_was_made_of_what(tracked: Selecting) -> None:
    tracked.do(f"run --params {tracked.options}")
    (record,) = tracked.records()
    events = events_of(tracked, record["run_id"])
    assert [events[0]["eventType"], events[-1]["eventType"]] == ["START", "COMPLETE"]
    assert events[0]["run"]["runId"] == events[-1]["run"]["runId"]
    saved = {
        dataset["name"]: (
            dataset["facets"]["version"]["datasetVersion"],
            dataset["facets"]["anmi_digest"]["digest"],
        )
        for dataset in events[-1]["outputs"]
    }
    assert saved == {
        name: (entry["version"], entry["digest"]) for name, entry in record["saved"].items()
    }
    completed = [event for event in events[1:-1] if event["eventType"] == "COMPLETE"]
    assert len(completed) == len(record["nodes"])
    (select,) = [event for event in completed if event["job"]["name"].endswith("select")]
    named = {side: [dataset["name"] for dataset in select[side]] for side in ("inputs", "outputs")}
    assert named == {"inputs": ["corpus", "index"], "outputs": ["selection", "training_rows"]}
    assert select["run"]["facets"]["parent"]["run"] == {"runId": events[0]["run"]["runId"]}


@pytest.mark.parametrize(("end", "kind"), [("fail", "FAIL"), ("stop", "ABORT")])
def test_a_run_that_ended_early_says_so(tracked: Selecting, end: str, kind: str) -> None:
    tracked.do(f"run --params {tracked.options}", AT_SELECT=end)
    (record,) = tracked.records()
    last = events_of(tracked, record["run_id"])[-1]
    assert last["eventType"] == kind
    assert last["run"]["facets"]["errorMessage"]["message"] == record["error"]
