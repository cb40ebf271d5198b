"""What running an earlier run again takes: its pipeline, its parameters, and what of it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline

from anmi.corpus.contents import code_digest
from anmi.errors import AnmiError
from anmi.files import measured
from anmi.runs import origin
from anmi.runs.manifests import versions_of
from anmi.runs.origin import changes
from anmi.runs.record import as_plain, git_state, package_versions

IsThere = Callable[[str, str], bool]


@dataclass(frozen=True)
class Rest:
    """What is left to do of a run.

    Attributes
    ----------
    nodes
        Names, in the order in which they run; none where all was made and only the end was not noted.
    reused
        Versions of what the others made.
    load_versions
        Versions of what the nodes read and do not make.
    """

    nodes: list[str]
    reused: dict[str, str]
    load_versions: dict[str, str]


def pipeline_of(manifest: Mapping[str, Any]) -> Pipeline:
    """Return the nodes of a run, those included that it took over from a run that it resumed.

    Raises
    ------
    AnmiError
        The code has no such pipeline or node any more.
    """
    from kedro.framework.project import pipelines

    filters = {name: value for name, value in manifest.get("filters", {}).items() if name != "load_versions"}
    if "namespaces" in filters:
        filters["node_namespaces"] = filters.pop("namespaces")
    try:
        whole: Any = sum((pipelines[name] for name in manifest["pipelines"]), Pipeline([]))
        return whole.filter(**filters) if filters else whole
    except (KeyError, ValueError) as error:
        raise AnmiError(
            f"run {manifest['run_id']} ran {', '.join(manifest['pipelines'])}, and this code has not all of it "
            f"({' '.join(str(error).split())}): use the code of commit {(manifest.get('git') or {}).get('commit')}"
        ) from error


def rest_of(pipeline: Pipeline, manifest: Mapping[str, Any], is_there: IsThere) -> Rest:
    """Return what is left to do of a run that did not end well.

    A node is done when all that it makes was saved and is there as it was saved. Nodes that make nothing are never
    done, and neither are those whose results were not kept and are read by nodes that are to run.

    Parameters
    ----------
    pipeline
        Its nodes.
    manifest
        Of the run.
    is_there
        Tells whether a version of a dataset is there.
    """
    saved = {**manifest.get("reused", {}), **{name: v for name, v in manifest.get("saved", {}).items() if v}}
    there = {name for name in sorted(pipeline.all_outputs() & saved.keys()) if is_there(name, saved[name])}
    done = {node.name for node in pipeline.nodes if node.outputs and set(node.outputs) <= there}
    makers = {name: node for node in pipeline.nodes for name in node.outputs}
    waiting = [node for node in pipeline.nodes if node.name not in done]
    left = {node.name for node in waiting}
    while waiting:
        node = waiting.pop()
        for name in node.inputs:
            maker = makers.get(name)
            if maker is not None and maker.name not in left and name not in there:
                left.add(maker.name)
                waiting.append(maker)
    nodes = [node for node in pipeline.nodes if node.name in left]
    made = {name for node in nodes for name in node.outputs}
    read = {name for node in nodes for name in node.inputs} - made
    known = versions_of(manifest)
    return Rest(
        nodes=[node.name for node in nodes],
        reused={name: saved[name] for name in sorted(there - made)},
        load_versions={name: known[name] for name in sorted(read & known.keys())},
    )


@contextmanager
def opened(manifest: Mapping[str, Any]) -> Iterator[Any]:
    """Open a session as that run's was opened."""
    from kedro.framework.session import KedroSession

    given = manifest.get("runtime_parameters") or None
    with KedroSession.create(env=manifest["environment"], runtime_params=given) as session:
        yield session


def checker(context: Any, manifest: Mapping[str, Any], versions: Mapping[str, str]) -> IsThere:
    """Return what tells whether a version is there, with the files that were noted when it was saved.

    Parameters
    ----------
    context
        Of the project.
    manifest
        That notes the files.
    versions
        Of the datasets that will be asked for.
    """
    entries = context.config_loader["catalog"]
    catalog = context._get_catalog(load_versions={name: v for name, v in versions.items() if name in entries})

    def is_there(name: str, version: str) -> bool:
        dataset = catalog.get(name) if name in entries and versions.get(name) == version else None
        if dataset is None or not getattr(dataset, "_version", None) or not dataset.exists():
            return False
        noted = manifest.get("files", {}).get(name)
        if not noted or getattr(dataset, "_fs", None) is not None:
            # A folder in a bucket counts as there once it is marked as complete.
            return True
        found = measured(Path(dataset._get_load_path()))
        return all(found.get(key) == value for key, value in noted.items())

    return is_there


def absent(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Return what a run could read and was not there when it began, such as the cross-encoder of an earlier run."""
    return frozenset(name for name, version in (manifest.get("inputs") or {}).items() if version is None)


def changes_since(manifest: Mapping[str, Any], context: Any, pipeline: Pipeline) -> dict[str, str]:
    """Return in words what is no longer as it was when a run began; see :func:`anmi.runs.origin.changes`."""
    inputs = pipeline.inputs()
    parameters = as_plain(context.params)
    now: dict[str, Any] = {
        "parameters": origin.relevant(parameters, inputs),
        "code": code_digest(),
        "git": git_state(context.project_path),
        "versions": package_versions(),
    }
    if manifest.get("collection"):
        now["collection"] = origin.collection_facts(str(manifest["collection"]["name"]), origin.marks_of(parameters))
    return changes({**manifest, "parameters": origin.relevant(manifest["parameters"], inputs), "python": ""}, now)
