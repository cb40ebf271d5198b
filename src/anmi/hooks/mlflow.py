# mypy: allow-untyped-decorators
"""One MLflow run per ``kedro run``, through the client only: no global state, no autologging."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from pydantic import BaseModel, ConfigDict, ValidationError

from anmi.datasets.model_registry import ModelRegistry, connect
from anmi.errors import AnmiError, first_line, masked
from anmi.files import plain
from anmi.hooks.record import all_masked, data_root, flatten
from anmi.hooks.run import RunHooks
from anmi.pipelines.params import sentence
from anmi.retrieval.kinds import quieter

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import DatasetInput

logger = logging.getLogger(__name__)

_LONGEST_KEY = 250
_LONGEST_VALUE = 6000
# Of a curve; more are not seen, and take a second for every few thousand.
_MOST_POINTS: Final = 1000
_ROWS: Final = "training_rows"
# Lets MLflow's page open with the runs; without it, it asks what the experiment is for.
_KIND: Final = {"mlflow.experimentKind": "custom_model_development"}
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

    def __init__(self, run_hooks: RunHooks) -> None:
        self._run_hooks = run_hooks
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
        """Open the run, or go on with that of ``MLFLOW_RUN_ID``; connect the registry."""
        try:
            self._begin(pipeline, catalog)
        except AnmiError as error:
            # Kedro tells hooks of no error before the first node.
            self._run_hooks.on_pipeline_error(error)
            raise

    def _begin(self, pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        is_registering = "model_registry" in pipeline.inputs()
        self._uri = tracked_at(self._context)
        self._experiment = read_settings(self._context).experiment
        if not self._uri and is_registering:
            raise AnmiError(
                "retraining needs the model registry of MLflow: set `enabled: true` in mlflow.yml"
            )
        if not self._uri:
            return
        self._catalog = catalog
        names = {name.removeprefix("params:").split(".")[0] for name in pipeline.inputs()}
        try:
            with quiet():
                self._client = connect(self._uri)
                self._open(names)
                if is_registering:
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
        metadata = getattr(dataset, "metadata", None) or {}
        kind = metadata.get("anmi", {}).get("mlflow")
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
        """Close the run that failed, or that a signal stopped."""
        self._close("FAILED" if isinstance(error, Exception) else "KILLED", error)

    def _open(self, parameter_names: Set[str]) -> None:
        """Make the run, or go on with it; log the parameters that nodes read."""
        from mlflow.entities import Param

        record = self._run_hooks.record
        parameters = all_masked(record.parameters)
        self._run_id = os.environ.get("MLFLOW_RUN_ID") or record.tracking_run
        if self._run_id:
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            labels = [parameters.get(name) for name in ("recipe", "collection")]
            run_name = " · ".join(str(label) for label in labels if label)
            run = self._client.create_run(self._experiment_id(), run_name=run_name)
            self._run_id = run.info.run_id
        record.tracking_run = self._run_id
        self._log_tags(
            {
                "run_id": record.run_id,
                "environment": record.environment,
                "pipelines": ",".join(record.pipelines),
                "git_commit": record.git.get("commit", "unknown"),
                "git_changed": record.git.get("changed", "unknown"),
                "mlflow.source.name": "anmi",
                **flatten(record.made_from),
            }
        )
        logged = {
            name: value
            for name, value in parameters.items()
            if name in parameter_names or not isinstance(value, Mapping)
        }
        if "recipes" in parameter_names:
            recipe = parameters["recipe"]
            logged["recipes"] = {recipe: parameters["recipes"].get(recipe)}
        # What was logged of the same run before cannot change.
        earlier = self._client.get_run(self._run_id).data.params
        texts = {_key(name): str(value)[:_LONGEST_VALUE] for name, value in flatten(logged).items()}
        new = [Param(name, text) for name, text in texts.items() if name not in earlier]
        self._client.log_batch(self._run_id, params=new)

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        if self._client.get_experiment_by_name(self._experiment) is None:
            location = None
            if self._uri.startswith("sqlite:///"):
                folder = Path(self._uri.removeprefix("sqlite:///")).parent
                location = (folder / "artifacts").as_uri()
            # Another run may make it in between.
            with suppress(MlflowException):
                self._client.create_experiment(self._experiment, location, _KIND)
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment.lifecycle_stage != "active":
            raise AnmiError(
                f'experiment "{self._experiment}" was deleted: restore it or choose another name'
            )
        return str(experiment.experiment_id)

    def _describe(self, results: Mapping[str, Any]) -> None:
        """Describe the run by its verdict and what tells it apart from other runs."""
        import pandas as pd

        from anmi.report import sentences

        record = self._run_hooks.record
        settings = {name: record.parameters.get(name) for name in _APART}
        settings = all_masked(settings | flatten(record.runtime_parameters))
        tables = [pd.DataFrame(results[name]) for name in ("rows", "comparisons")]
        paragraphs = [
            sentences.pseudo_query_notice(results["test_queries"]),
            sentences.verdict(*tables),
            ", ".join(f"{name} `{value}`" for name, value in settings.items()),
            "All of it: `report.html` among the artifacts.",
        ]
        self._log_tags({"mlflow.note.content": "\n\n".join(filter(None, paragraphs))})

    def _log_tags(self, tags: Mapping[str, Any]) -> None:
        from mlflow.entities import RunTag

        texts = {_key(name): masked(str(value))[:_LONGEST_VALUE] for name, value in tags.items()}
        run_tags = [RunTag(name, text) for name, text in texts.items()]
        self._client.log_batch(self._run_id, tags=run_tags)

    def _log_metrics(self, curves: Mapping[str, Mapping[int, float]]) -> None:
        """Log values by name and step."""
        from mlflow.entities import Metric

        milliseconds = int(time.time() * 1000)
        points = [
            Metric(_key(name), value, milliseconds, step)
            for name, values in curves.items()
            for step, value in values.items()
        ]
        self._client.log_batch(self._run_id, metrics=points)

    def _close(self, status: str, error: BaseException | None = None) -> None:
        catalog = self._catalog
        self._catalog = None
        if self._run_id is None or catalog is None:
            return
        record = self._run_hooks.record
        with self._forgiving("logging inputs"):
            self._client.log_inputs(self._run_id, self._inputs(catalog))
        with self._forgiving("closing the run"), quiet():
            tags = flatten(record.made_from)
            tags |= {f"load.{name}": entry["version"] for name, entry in record.loaded.items()}
            if error is not None:
                tags["error"] = f"{type(error).__name__}: {error}"
            self._log_tags(tags)
            self._client.log_text(self._run_id, record.as_text(), f"runs/{record.run_id}/run.json")
            self._client.set_terminated(self._run_id, status=status)
        self._run_id = None

    def _inputs(self, catalog: CatalogProtocol) -> list[DatasetInput]:
        """Return the collection and the training rows by the hashes that ``run.json`` has."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        record = self._run_hooks.record
        collection = masked(str(record.parameters.get("collection")))
        rows = record.saved.get(_ROWS) or record.loaded.get(_ROWS, {})
        inputs = []
        for name, digest, context in (
            (collection, record.made_from.get("collection_digest"), "collection"),
            (_ROWS, rows.get("digest"), "training"),
        ):
            if digest:
                place = catalog.get(_ROWS).place() if name == _ROWS else collection
                dataset = Dataset(name, digest, "local", json.dumps({"uri": place}))
                inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
        return inputs

    @contextmanager
    def _forgiving(self, action: str) -> Iterator[None]:
        """Let a run of hours outlive its tracking server."""
        try:
            yield
        except Exception as error:
            logger.warning("tracking: %s failed: %s", action, first_line(error))


def _key(name: str) -> str:
    return re.sub(r"[^\w.\- :/]", "_", name.replace("@", "_at_"))[:_LONGEST_KEY]


def _numbers(dataset_name: str, data: Any) -> dict[str, dict[int, float]]:
    """Return the numbers of a dataset by section, its first key; those of a list by position."""
    sections = {}
    for name, value in flatten(plain(data)).items():
        section = name.replace(".", "/", 1) if "." in name else f"{dataset_name}/{name}"
        values = value if isinstance(value, list) else [value]
        sections[section] = {
            position: float(number)
            for position, number in enumerate(values)
            if isinstance(number, (int, float))
        }
    return sections


def _curves(dataset_name: str, table: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Return every column of numbers over ``step``; a long one is thinned."""
    numbers = table.select_dtypes("number").astype(float)
    numbers = numbers.set_index(numbers.pop("step").astype(int))
    curves: dict[str, Any] = {}
    for name, column in numbers.items():
        finite = column[abs(column) < float("inf")]
        stride = max(1, math.ceil(len(finite) / _MOST_POINTS))
        curves[f"{dataset_name}/{name}"] = finite.iloc[::stride].to_dict()
    return curves
