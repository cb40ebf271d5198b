# mypy: allow-untyped-decorators
"""One MLflow run per ``kedro run``, through the client only: no global state, no autologging."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from pydantic import BaseModel, ConfigDict, ValidationError

from anmi.datasets.model_registry import ModelRegistry, connect
from anmi.errors import AnmiError, first_line, masked
from anmi.files import plain
from anmi.hooks.record import RunRecord, all_masked, data_root, flatten
from anmi.pipelines.params import sentence
from anmi.retrieval.kinds import quieter

logger = logging.getLogger(__name__)

_LONGEST_KEY = 250
_LONGEST_VALUE = 6000
# Of a curve; more are not seen, and take a second for every few thousand.
_MOST_POINTS: Final = 1000
# What tells runs apart at a glance.
_APART: Final = ("recipe", "collection", "encoder", "seed")


class TrackingSettings(BaseModel):
    """The settings in ``conf/*/mlflow.yml``."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    tracking_uri: str | None = None
    experiment: str = "anmi"


def read_settings(context: KedroContext) -> TrackingSettings:
    """Return the settings of the environment."""
    try:
        return TrackingSettings.model_validate(context.config_loader["mlflow"])
    except ValidationError as error:
        raise AnmiError(f"mlflow.yml: {sentence(error, TrackingSettings, 'setting')}") from error


def tracked_at(context: Any) -> str:
    """Return where the runs of a project are tracked; empty where they are not.

    The environment variable goes before the setting, and without both it is a database under the
    data root.

    Raises
    ------
    AnmiError
        The path of the database has marks that mean something else in the address of a database.
    """
    settings = read_settings(context)
    root = data_root(context)
    if not settings.enabled:
        return ""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or settings.tracking_uri
    if not uri and "://" in root:
        raise AnmiError(
            f"the data root {root} is remote: name a tracking server in MLFLOW_TRACKING_URI"
        )
    uri = uri or f"sqlite:///{root}/tracking/mlflow.db"
    if uri.startswith("sqlite:///") and ("?" in uri or unquote(uri) != uri):
        raise AnmiError(
            f"MLflow would make the tracking database {masked(uri)} elsewhere, since it reads ? and"
            " % in its path as marks: set ANMI_DATA_ROOT, or MLFLOW_TRACKING_URI, to a path without"
            " them"
        )
    return uri


def quiet() -> AbstractContextManager[None]:
    """Keep MLflow's accounts of its start and of database migrations out of the console."""
    return quieter("alembic", "mlflow", "mlflow.store.db.utils", level=logging.WARNING)


class MlflowHooks:
    """Write parameters, versions, metrics and small artifacts of a run to MLflow.

    A dataset takes part by its catalog metadata, ``metadata: {anmi: {mlflow: KIND}}``: ``metrics``
    for JSON whose numbers are metrics, ``history`` for a table of which each column becomes a curve
    over its column ``step``, ``artifact`` for a file to keep with the run, ``note`` for the results
    whose verdict is to describe it.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._context: Any = None
        self._uri = ""
        self._experiment = "anmi"
        self._catalog: CatalogProtocol | None = None
        self._client: Any = None
        self._run_id: str | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Learn whose run it is."""
        self._context = context
        self._run_id = None

    @hook_impl
    def before_pipeline_run(self, pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Open the run, or go on with that of ``MLFLOW_RUN_ID``; log what was asked for, and connect the registry."""
        registered = "model_registry" in pipeline.inputs()
        self._uri = tracked_at(self._context)
        self._experiment = read_settings(self._context).experiment
        if not self._uri and registered:
            raise AnmiError(
                "retraining needs the model registry of MLflow: set `enabled: true` in mlflow.yml"
            )
        if not self._uri:
            return
        self._catalog = catalog
        try:
            with quiet():
                self._client = connect(self._uri)
                self._open(
                    {name.removeprefix("params:").split(".")[0] for name in pipeline.inputs()}
                )
                if registered:
                    catalog.save("model_registry", ModelRegistry(self._uri, self._run_id))
        except Exception as error:
            raise AnmiError(
                f"the tracking store {masked(self._uri)} cannot be used ({first_line(error)}):"
                " check MLFLOW_TRACKING_URI, or set `enabled: false` in conf/local/mlflow.yml"
            ) from None  # a traceback of the cause would show the address as it is

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Log metrics and artifacts as they appear."""
        if self._run_id is None or self._catalog is None:
            return
        dataset = self._catalog.get(dataset_name)
        kind = ((getattr(dataset, "metadata", None) or {}).get("anmi") or {}).get("mlflow")
        with self._forgiving(f"logging {dataset_name}"):
            if kind == "metrics":
                self._log_metrics(_numbers(dataset_name, data))
            elif kind == "history":
                self._log_metrics(_curves(dataset_name, data))
            elif kind == "artifact":
                self._client.log_artifact(self._run_id, str(dataset.local_copy()))
            elif kind == "note":
                self._describe(data)

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Close the run."""
        self._close("FINISHED")

    @hook_impl
    def on_pipeline_error(self, error: BaseException) -> None:
        """Close the run that failed, or that was stopped from outside, of which the command tells."""
        self._close("FAILED" if isinstance(error, Exception) else "KILLED", error)

    def _open(self, read: Set[str]) -> None:
        from mlflow.entities import Param

        record = self._record
        given = all_masked(self._record.parameters)
        tags = {
            "run_id": record.run_id,
            "environment": record.environment,
            "pipelines": ",".join(record.pipelines),
            "git_commit": record.git.get("commit", "unknown"),
            "git_changed": record.git.get("changed", "unknown"),
            "mlflow.source.name": "anmi",
            **flatten(record.made_from),
        }
        shared = os.environ.get("MLFLOW_RUN_ID") or record.tracking_run
        if shared:
            self._client.update_run(shared, status="RUNNING")
            self._run_id = shared
        else:
            name = " · ".join(
                str(given[each]) for each in ("recipe", "collection") if given.get(each)
            )
            self._run_id = self._client.create_run(self._experiment_id(), run_name=name).info.run_id
        record.tracking_run = self._run_id
        self._log_tags(tags)
        # Of what nodes read, and of the recipes the chosen one; what was logged of the same run
        # cannot change.
        chosen = {
            name: value
            for name, value in given.items()
            if name in read or not isinstance(value, Mapping)
        }
        if "recipes" in read:
            chosen["recipes"] = {given["recipe"]: given["recipes"].get(given["recipe"])}
        values = {_key(key): str(value)[:_LONGEST_VALUE] for key, value in flatten(chosen).items()}
        known = self._client.get_run(self._run_id).data.params
        params = [Param(key, value) for key, value in values.items() if key not in known]
        self._client.log_batch(self._run_id, params=params)

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        if self._client.get_experiment_by_name(self._experiment) is None:
            local = self._uri.startswith("sqlite:///")
            place = (
                (Path(self._uri.removeprefix("sqlite:///")).parent / "artifacts").as_uri()
                if local
                else None
            )
            # Another run may make it in between.
            with suppress(MlflowException):
                self._client.create_experiment(self._experiment, artifact_location=place)
        found = self._client.get_experiment_by_name(self._experiment)
        if found.lifecycle_stage != "active":
            raise AnmiError(
                f'experiment "{self._experiment}" was deleted: restore it or choose another name'
            )
        return str(found.experiment_id)

    def _describe(self, results: Mapping[str, Any]) -> None:
        """Describe the run by its verdict and what was chosen."""
        import pandas as pd

        from anmi.report import sentences

        told = [
            sentences.pseudo_query_notice(results["test_queries"]),
            sentences.verdict(*(pd.DataFrame(results[name]) for name in ("rows", "comparisons"))),
        ]
        chosen = {name: self._record.parameters.get(name) for name in _APART} | flatten(
            self._record.runtime_parameters
        )
        told += [", ".join(f"{name} `{value}`" for name, value in all_masked(chosen).items())]
        told += ["All of it: `report.html` among the artifacts."]
        self._log_tags({"mlflow.note.content": "\n\n".join(filter(None, told))})

    def _log_tags(self, tags: Mapping[str, Any]) -> None:
        from mlflow.entities import RunTag

        texts = {_key(key): masked(str(value))[:_LONGEST_VALUE] for key, value in tags.items()}
        self._client.log_batch(
            self._run_id, tags=[RunTag(key, value) for key, value in texts.items()]
        )

    def _log_metrics(self, found: Mapping[str, Mapping[int, float]]) -> None:
        from mlflow.entities import Metric

        stamp = int(time.time() * 1000)
        points = [
            Metric(_key(key), y, stamp, x)
            for key, values in found.items()
            for x, y in values.items()
        ]
        self._client.log_batch(self._run_id, metrics=points)

    def _close(self, status: str, error: BaseException | None = None) -> None:
        self._catalog = None
        if self._run_id is None:
            return
        with self._forgiving("closing the run"), quiet():
            record = self._record
            tags = flatten(record.made_from) | {
                f"load.{n}": each["version"] for n, each in record.loaded.items()
            }
            self._log_tags(
                tags | ({} if error is None else {"error": f"{type(error).__name__}: {error}"})
            )
            self._client.log_text(self._run_id, record.as_text(), f"runs/{record.run_id}/run.json")
            self._client.set_terminated(self._run_id, status=status)
        self._run_id = None

    @contextmanager
    def _forgiving(self, what: str) -> Iterator[None]:
        """Let a run of hours outlive its tracking server."""
        try:
            yield
        except Exception as error:
            logger.warning("tracking: %s failed: %s", what, first_line(error))


def _key(name: str) -> str:
    return re.sub(r"[^\w.\- :/]", "_", name.replace("@", "_at_"))[:_LONGEST_KEY]


def _numbers(name: str, data: Any) -> dict[str, dict[int, float]]:
    """Return the numbers of a dataset by section, which is its first key; of a list each by its place."""
    found = {}
    for key, values in flatten(plain(data)).items():
        section = key.replace(".", "/", 1) if "." in key else f"{name}/{key}"
        numbers = enumerate(values if isinstance(values, list) else [values])
        found[section] = {
            place: float(value) for place, value in numbers if isinstance(value, (int, float))
        }
    return found


def _curves(name: str, table: Any) -> dict[str, dict[int, float]]:
    """Return every column of numbers over ``step``, of a long one every so many points."""
    numbers = table.select_dtypes("number").astype(float).set_index("step")
    curves = {}
    for column in numbers.columns:
        known = numbers[column][abs(numbers[column]) < float("inf")]
        thinned = known.iloc[:: max(1, -(-len(known) // _MOST_POINTS))]
        curves[f"{name}/{column}"] = {int(step): value for step, value in thinned.items()}
    return curves
