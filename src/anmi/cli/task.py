# mypy: allow-untyped-decorators
"""``kedro anmi task``: one run in several tasks of a scheduler, with one version and one MLflow run.

``kedro run`` gives every session a version of its own. Here the version is given: a task saves under it, loads what
earlier tasks saved under it, and leaves out the nodes that an earlier attempt has finished, so that a retry goes on
where that one stopped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from kedro.framework.cli.utils import env_option
from kedro.pipeline import Pipeline

from anmi.cli.common import echo_json, example, json_option, plain_errors, project, silence, told_of_interruption
from anmi.cli.params import split_params
from anmi.errors import AnmiError, masked

if TYPE_CHECKING:
    from anmi.runs.again import Rest

_VERSION: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\d\.\d{3}Z")
_KEY: Final = re.compile(r"[\w.~:+/@-]{1,250}")
_KEY_TAG: Final = "scheduler.key"
_VERSION_TAG: Final = "scheduler.version"


@click.group(name="task", epilog=example("kedro anmi task open nightly-2026-11-23"))
def task() -> None:
    """Do one run in several tasks of a scheduler."""


@task.command("open", epilog=example("kedro anmi task open nightly-2026-11-23"))
@click.argument("key")
@env_option
def open_task(key: str, env: str | None) -> None:
    """Open the run that a scheduler calls KEY, and print its version and its MLflow run as JSON.

    Asked again with the same key it prints the same, so a retry opens no second run.
    """
    with silence():
        opened = open_run(key, env)
    click.echo(json.dumps(opened))


@task.command("run", epilog=example("kedro anmi task run 2026-11-23T21.50.03.110Z ingestion"))
@click.argument("version")
@click.argument("pipeline")
@click.option("--params", default="", callback=split_params, help="As in kedro run.")
@env_option
def run_task(version: str, pipeline: str, params: dict[str, Any], env: str | None) -> None:
    """Run PIPELINE under VERSION, without the nodes that an earlier attempt has finished.

    The variable MLFLOW_RUN_ID names the MLflow run to log to.
    """
    with plain_errors(), told_of_interruption():
        run_part(version, pipeline, params, env)


@task.command("close", epilog=example("kedro anmi task close nightly-2026-11-23"))
@click.argument("key")
@click.option("--failed", is_flag=True, help="A task has failed; without it, all went well.")
@json_option
@env_option
def close_task(key: str, failed: bool, as_json: bool, env: str | None) -> None:
    """Close the MLflow run of KEY."""
    with silence() if as_json else nullcontext(), _tracked(env) as (client, context):
        run = None if client is None else _find(client, context, _checked(key))
        status = "FAILED" if failed else "FINISHED"
        if run is not None:
            client.set_terminated(run.info.run_id, status=status)
        if as_json:
            found = (
                {"mlflow_run": "", "status": ""} if run is None else {"mlflow_run": run.info.run_id, "status": status}
            )
            echo_json({"key": key, **found})
        elif run is None:
            click.echo(f"no MLflow run is open for {key}")
        else:
            click.echo(f"MLflow run {run.info.run_id}: {status}")


def open_run(key: str, env: str | None) -> dict[str, str]:
    """Open the run of a key, or find the one that was opened for it.

    Parameters
    ----------
    key
        What the scheduler calls the run; unique among its runs.
    env
        Environment of the configuration.

    Returns
    -------
    dict
        ``version``, under which all tasks save, and ``mlflow_run``, empty where runs are not tracked.
    """
    from kedro.io.core import generate_timestamp

    from anmi.hooks import RunRecord, TrackingHooks
    from anmi.runs.record import git_state

    with _tracked(env) as (client, context):
        _checked(key)
        version = str(generate_timestamp())
        if client is None:
            return {"version": version, "mlflow_run": ""}
        found = _find(client, context, key)
        if found is not None:
            return {"version": found.data.tags[_VERSION_TAG], "mlflow_run": found.info.run_id}
        # A run that the surroundings name is not that of this key.
        os.environ.pop("MLFLOW_RUN_ID", None)
        record = RunRecord(run_id=version, environment=context.env or "local", git=git_state(context.project_path))
        hooks = TrackingHooks(record)
        hooks.after_context_created(context)
        run = hooks.open_run(client.tracking_uri)
        for tag, value in ((_VERSION_TAG, version), (_KEY_TAG, key)):
            client.set_tag(run, tag, value)
        return {"version": version, "mlflow_run": run}


def run_part(version: str, pipeline: str, parameters: Mapping[str, Any], env: str | None) -> None:
    """Run a pipeline as the part of a run.

    Parameters
    ----------
    version
        Of all that the run saves.
    pipeline
        Name in the registry.
    parameters
        Runtime parameters, the same for every part.
    env
        Environment of the configuration.

    Raises
    ------
    AnmiError
        The version is none of Kedro's, there is no such pipeline, or an earlier part had other parameters.
    """
    from kedro.framework.project import pipelines
    from kedro.framework.session import KedroServiceSession

    from anmi.errors import nearest
    from anmi.runs.manifests import read_manifest
    from anmi.runs.record import data_root
    from anmi.runs.replay import Replay, replaying

    if not _VERSION.fullmatch(version):
        raise AnmiError(f'version "{version}": take the one that `kedro anmi task open` prints')
    if pipeline not in pipelines:
        raise AnmiError(f'there is no pipeline "{pipeline}": {nearest(pipeline, pipelines)}')
    with KedroServiceSession.create(env=env) as session:
        context = session.load_context(runtime_params=dict(parameters))
        before = read_manifest(data_root(context), version)
        if before and before["runtime_parameters"] != dict(parameters):
            raise AnmiError(
                f"run {version} was begun with the parameters {before['runtime_parameters']}, not {dict(parameters)}: "
                "give every part the same, or open another run"
            )
        rest = left(context, pipelines[pipeline], version)
        with replaying(Replay(notes={"saved": rest.reused, "filters": {}})):
            session.run(
                run_id=version,
                pipeline_names=[pipeline],
                node_names=rest.nodes or None,
                load_versions=rest.load_versions or None,
                # With nothing left no node runs, and the end is noted.
                only_missing_outputs=not rest.nodes,
                runtime_params=dict(parameters),
            )


def left(context: Any, pipeline: Pipeline, version: str) -> Rest:
    """Return what attempts before have left to do, and remove what they left of nodes that they did not finish.

    Parameters
    ----------
    context
        Of the session.
    pipeline
        What is about to run.
    version
        Of the run.

    Returns
    -------
    Rest
        Of what is made in this version or is there in it already. Inputs from outside the run are chosen as for any;
        see :func:`anmi.runs.versions.fix`.
    """
    from anmi.runs.again import rest_of

    names = sorted(pipeline.datasets() & set(context.config_loader["catalog"]))
    catalog = context._get_catalog(save_version=version, load_versions=dict.fromkeys(names, version))
    datasets = {name: catalog.get(name) for name in names}
    versioned = {name for name, dataset in datasets.items() if getattr(dataset, "_version", None)}
    there = {name for name in versioned if catalog.exists(name)}
    rest = rest_of(pipeline, {"saved": dict.fromkeys(there, version)}, lambda *_: True)
    made = {name for node in pipeline.nodes if node.name in rest.nodes for name in node.outputs}
    for name in made & versioned:
        # Also what is half there: a folder on object storage whose upload was cut off.
        catalog.get(name).discard()
    wanted = versioned & (there | made)
    return replace(rest, load_versions=dict.fromkeys(sorted(wanted), version))


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise AnmiError(f'key "{key}": letters, digits and . ~ : + / @ _ - were expected, at most 250 of them')
    return key


@contextmanager
def _tracked(env: str | None) -> Iterator[tuple[Any, Any]]:
    """Give a client of the tracking store, None where runs are not tracked, and the project's context."""
    from anmi.datasets.model_registry import connect
    from anmi.runs.record import data_root
    from anmi.runs.tracking import quiet, read_settings, tracking_uri

    with project(env) as context:
        settings = read_settings(context)
        if not settings.enabled:
            yield None, context
            return
        uri = tracking_uri(settings, data_root(context))
        try:
            with quiet():
                yield connect(uri), context
        except AnmiError:
            raise
        except Exception as error:
            raise AnmiError(
                f"the tracking store {masked(uri)} cannot be used ({type(error).__name__}): check MLFLOW_TRACKING_URI"
            ) from error


def _find(client: Any, context: Any, key: str) -> Any:
    from anmi.runs.tracking import read_settings

    experiment = client.get_experiment_by_name(read_settings(context).experiment)
    if experiment is None:
        return None
    runs = client.search_runs([experiment.experiment_id], f"tags.`{_KEY_TAG}` = '{key}'", max_results=1)
    return runs[0] if runs else None
