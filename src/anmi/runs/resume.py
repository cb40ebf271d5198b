"""Going on with a run that was killed or has failed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from anmi.errors import AnmiError
from anmi.runs import again, origin
from anmi.runs.manifests import UNFINISHED, Runs, versions_of
from anmi.runs.replay import Replay, replaying

logger = logging.getLogger(__name__)


def resumable(runs: Runs, run_id: str | None) -> dict[str, Any]:
    """Return the manifest of the run to go on with: the one asked for, or the last that did not end well.

    Raises
    ------
    AnmiError
        It has finished, is still running, has been resumed already, or there is none.
    """
    known = runs.all()
    later = {manifest["resumed_from"]: manifest for manifest in known if manifest.get("resumed_from")}
    if run_id is None:
        open_ones = [found for found in known if found["status"] in UNFINISHED and found["run_id"] not in later]
        if not open_ones:
            raise AnmiError(f"no run under {runs.root} was killed or has failed: there is nothing to resume")
        found = open_ones[-1]
    else:
        found = runs.get(run_id)
    name = found["run_id"]
    if found["status"] == "finished":
        raise AnmiError(f"run {name} has finished: there is nothing to resume, `kedro run` makes a new one")
    if found["status"] == "running":
        process = found.get("process") or {}
        raise AnmiError(
            f"run {name} is still running as process {process.get('pid')} on {process.get('host')}: "
            "wait for it, or end that process first"
        )
    if name in later and run_id is not None:
        raise AnmiError(f"run {name} was resumed as run {later[name]['run_id']} already: resume that one")
    if not found.get("configured"):
        raise AnmiError(f"run {name} noted too little to be resumed, since an earlier release made it: run it anew")
    return found


def resume(manifest: Mapping[str, Any], *, force: bool) -> tuple[str, again.Rest]:
    """Go on with a run: make what it did not, under its parameters and from what it made.

    Parameters
    ----------
    manifest
        From :func:`resumable`.
    force
        Go on although collection, code, parameters or packages changed since.

    Returns
    -------
    str
        The id of the new run.
    Rest
        What it did and what it took over.

    Raises
    ------
    AnmiError
        Something changed since, or what the run read is gone.
    """
    name = manifest["run_id"]
    pipeline = again.pipeline_of(manifest)
    with again.opened(manifest) as session:
        context = session.load_context()
        changed = again.changes_since(manifest, context, pipeline)
        if changed and not force:
            told = "; ".join(f"{part}: {text}" for part, text in changed.items())
            raise AnmiError(
                f"run {name} cannot be resumed, since this changed ({told}): run it anew, or give --force to go on "
                "under its own parameters all the same"
            )
        is_there = again.checker(context, manifest, versions_of(manifest))
        rest = again.rest_of(pipeline, manifest, is_there)
        if not rest.nodes:
            # All was made and only the end was not noted: the last node says it.
            last = pipeline.nodes[-1]
            kept = {dataset: version for dataset, version in rest.reused.items() if dataset not in last.outputs}
            alone = again.rest_of(pipeline.only_nodes(last.name), manifest, lambda *_: False)
            rest = replace(alone, reused=kept)
        for dataset, version in rest.load_versions.items():
            if dataset not in rest.reused and not is_there(dataset, version):
                raise AnmiError(f'run {name} read "{dataset}" in version {version}, which is gone: run it anew')
    for part, text in changed.items():
        logger.warning("Going on although %s changed: %s", part, text)
    total = len(pipeline.nodes)
    logger.info("Going on with run %s: %d of %d nodes are done", name, total - len(rest.nodes), total)
    notes: dict[str, Any] = {
        "filters": dict(manifest.get("filters", {})),
        "reused": rest.reused,
        "resumed_from": name,
        "inputs": dict(manifest.get("inputs", {})),
        **{kind: {k: v for k, v in manifest.get(kind, {}).items() if k in rest.reused} for kind in ("files", "models")},
    }
    if origin.COLLECTION not in pipeline.only_nodes(*rest.nodes).inputs():
        # Read by the stopped run; this one will not look at it.
        notes["collection"] = dict(manifest.get("collection") or {})
    absent = again.absent(manifest)
    replay = Replay(parameters=manifest["configured"], notes=notes, absent=absent)
    with _same_tracking(manifest), replaying(replay), again.opened(manifest) as session:
        session.run(
            pipeline_names=list(manifest["pipelines"]), node_names=rest.nodes, load_versions=rest.load_versions or None
        )
        return str(session.store["session_id"]), rest


@contextmanager
def _same_tracking(manifest: Mapping[str, Any]) -> Iterator[None]:
    """Let the run be tracked as the MLflow run that the killed one began, unless the surroundings name another."""
    mine = bool(manifest.get("tracking_run")) and "MLFLOW_RUN_ID" not in os.environ
    if mine:
        os.environ["MLFLOW_RUN_ID"] = str(manifest["tracking_run"])
    try:
        yield
    finally:
        if mine:
            del os.environ["MLFLOW_RUN_ID"]
