"""Lineage of a run in the terms of OpenLineage, ``lineage.jsonl``, made from its record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from anmi import __version__

FILE: Final = "lineage.jsonl"
_PRODUCER: Final = f"https://pypi.org/project/anmi-retrieval/{__version__}"
_SPEC: Final = "https://openlineage.io/spec"
_EVENT: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs"
_ENDS: Final = {"finished": "COMPLETE", "failed": "FAIL", "interrupted": "ABORT"}
_JOBS: Final = "anmi"
# Inputs and outputs by node.
Graph = Mapping[str, tuple[Sequence[str], Sequence[str]]]


def as_text(record: Mapping[str, Any], root: str, graph: Graph) -> str:
    """Return the events of a run, one a line.

    Parameters
    ----------
    record
        What ``run.json`` has.
    root
        The data root: the namespace of all datasets but the collection.
    graph
        Inputs and outputs of the nodes, by their names.
    """
    return "".join(f"{json.dumps(event)}\n" for event in _events(record, root, graph))


def _events(record: Mapping[str, Any], root: str, graph: Graph) -> Iterator[dict[str, Any]]:
    run_uuid = uuid5(NAMESPACE_URL, f"{root}/runs/{record['run_id']}")
    job = ",".join(record["pipelines"])
    kedro = record["packages"].get("kedro", "unknown")
    engine = _facet("ProcessingEngineRunFacet", "1-1-1", name="kedro", version=kedro)
    facets = {"processing_engine": engine}
    yield _event("START", record["start"], run_uuid, job, facets)
    parent_facet = _facet(
        "ParentRunFacet",
        "1-2-0",
        run={"runId": str(run_uuid)},
        job={"namespace": _JOBS, "name": job},
    )
    datasets = _Datasets(record, root)
    for node in record["nodes"]:
        name = node["node"]
        inputs, outputs = graph.get(name, ((), ()))
        node_uuid = uuid5(run_uuid, name)
        end = datetime.fromisoformat(node["end"])
        start = end - timedelta(seconds=node["seconds"])
        of_node = (node_uuid, f"{job}.{name}", {"parent": parent_facet})
        yield _event("START", start.isoformat(), *of_node)
        yield _event(
            "COMPLETE",
            node["end"],
            *of_node,
            datasets.inputs(inputs),
            datasets.outputs(outputs),
        )
    if record["end"] is None:
        return
    if record["error"]:
        facets["errorMessage"] = _facet(
            "ErrorMessageRunFacet", "1-0-1", message=record["error"], programmingLanguage="python"
        )
    yield _event(
        _ENDS[record["status"]],
        record["end"],
        run_uuid,
        job,
        facets,
        datasets.inputs(["params:collection", *record["loaded"]]),
        datasets.outputs(record["saved"]),
    )


class _Datasets:
    """Datasets of events, by their names in the catalog."""

    def __init__(self, record: Mapping[str, Any], root: str) -> None:
        self._versions = {**record["loaded"], **record["saved"]}
        self._namespace = root if "://" in root else f"file://{root}"
        self._collection = str(record["parameters"].get("collection"))
        self._collection_digest = record["made_from"].get("collection_digest")

    def inputs(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return what was read; of parameters the collection, where its hash is known."""
        datasets = [self._dataset(name) for name in names if name in self._versions]
        if "params:collection" in names and self._collection_digest:
            facets = _version_facets(self._collection_digest, self._collection_digest)
            datasets.append({"namespace": _JOBS, "name": self._collection, "facets": facets})
        return datasets

    def outputs(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return what was written, with its size."""
        return [
            self._dataset(name) | {"outputFacets": self._size_facets(name)}
            for name in names
            if name in self._versions
        ]

    def _dataset(self, name: str) -> dict[str, Any]:
        entry = self._versions[name]
        facets = _version_facets(entry.get("version"), entry.get("digest"))
        return {"namespace": self._namespace, "name": name, "facets": facets}

    def _size_facets(self, name: str) -> dict[str, Any]:
        entry = self._versions[name]
        if "bytes" not in entry:
            return {}
        size = {"size": entry["bytes"], "fileCount": entry["files"]}
        return {"outputStatistics": _facet("OutputStatisticsOutputDatasetFacet", "1-0-2", **size)}


def _version_facets(version: str | None, digest: str | None) -> dict[str, Any]:
    facets = {}
    if version:
        facets["version"] = _facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=version)
    if digest:
        # OpenLineage has no facet for a hash; facets of a producer have its prefix.
        schema = {"_producer": _PRODUCER, "_schemaURL": f"{_EVENT}/DatasetFacet"}
        facets["anmi_digest"] = {**schema, "digest": digest}
    return facets


def _facet(kind: str, release: str, /, **values: Any) -> dict[str, Any]:
    schema = f"{_SPEC}/facets/{release}/{kind}.json#/$defs/{kind}"
    return {"_producer": _PRODUCER, "_schemaURL": schema, **values}


def _event(
    kind: str,
    time: str,
    run_uuid: UUID,
    job: str,
    run_facets: Mapping[str, Any],
    inputs: Sequence[dict[str, Any]] = (),
    outputs: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": time,
        "producer": _PRODUCER,
        "schemaURL": f"{_EVENT}/RunEvent",
        "run": {"runId": str(run_uuid), "facets": dict(run_facets)},
        "job": {"namespace": _JOBS, "name": job},
        "inputs": list(inputs),
        "outputs": list(outputs),
    }
