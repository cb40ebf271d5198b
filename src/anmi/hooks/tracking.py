# mypy: allow-untyped-decorators
"""One MLflow run per ``kedro run``, through the client only: no global state, no autologging.

``mlflow`` is imported when a pipeline runs and not before, because that takes seconds; where the collection is read
first, it is imported, and the run opened, meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi.datasets.files import plain
from anmi.datasets.model_registry import connect
from anmi.errors import AnmiError, masked
from anmi.hooks.mlflow_traces import log_traces
from anmi.hooks.mlflow_values import LONGEST_VALUE, batches, curves_of, first_line, key_of, metrics_of, tag_of
from anmi.report.inputs import by_pass
from anmi.runs.record import RunRecord, all_masked, data_root, flatten, of_this_run
from anmi.runs.signals import PutOff
from anmi.runs.tracking import TrackingSettings, quiet, read_settings, tracking_uri

logger = logging.getLogger(__name__)

# MLflow takes more metrics at once than tags or parameters.
_METRICS: Final = 1000
_FAILED: Final = "failed."
# For a run that is to end before it was opened, in seconds; tables of a new database take six.
_PATIENCE: Final = 30.0
# Parameters that tell runs apart at a glance.
_CHOSEN: Final = ("collection", "recipe", "encoder", "seed")
# What two runs are compared by.
_COMPARED: Final = ("selection", "training_rows")
# Imports nothing that MLflow imports: two threads that enter a circle of imports at different places may each see half
# of a module.
_READS: Final = "ingest"


class TrackingHooks:
    """Write parameters, dataset versions, metrics and small artifacts of a run to MLflow.

    A dataset takes part by its catalog metadata: ``metadata: {anmi: {mlflow: metrics}}`` for JSON whose numbers are
    metrics (a list of numbers becomes a curve), ``{anmi: {mlflow: artifact}}`` for a file to keep beside the run,
    ``{anmi: {mlflow: note}}`` for results whose verdict is to stand at the top of the run's page,
    ``{anmi: {mlflow: traces}}`` for what language models were asked and answered,
    ``{anmi: {mlflow: cells}}`` for a table of which each row becomes a run inside this one, and
    ``{anmi: {mlflow: history}}`` for a table of which each column becomes a curve over its column ``step``.

    Parameters
    ----------
    record
        The run's record, filled by :class:`anmi.hooks.manifest.ManifestHooks`.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._settings = TrackingSettings(enabled=False)
        self._root = "data"
        self._catalog: CatalogProtocol | None = None
        self._client: Any = None
        self._run_id: str | None = None
        self._shared = False
        self._opening: Future[None] | None = None
        self._held: PutOff | None = None

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Read the settings."""
        self._settings = read_settings(context)
        self._root = data_root(context)
        self._client, self._run_id, self._opening = None, None, None

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Open the run and log what was asked for, before the first node or while it reads the collection."""
        if not self._settings.enabled:
            return
        self._catalog = catalog
        uri = tracking_uri(self._settings, self._root)
        reads = _READS in {node.short_name for node in pipeline.nodes} - self._record.taken_over.keys()
        at_once = run_params.get("only_missing_outputs") or "model_registry" in pipeline.inputs()
        # A server's address that is wrong is better told now than after the collection has been read.
        if at_once or not reads or not uri.startswith("sqlite:"):
            self._open(uri)
        else:
            opening = self._opening = Future()
            self._held = PutOff(opening)
            # No executor: the end of the process would wait for its threads, whatever they wait for.
            threading.Thread(target=self._open_for, args=(opening, uri), name="anmi-tracking", daemon=True).start()

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        """Have the run open, or say why it cannot be, before anything is saved."""
        self._wait()

    def _open(self, uri: str) -> None:
        try:
            with quiet():
                self.open_run(uri)
                self._log_parameters()
        except Exception as error:
            raise AnmiError(
                f"the tracking store {masked(uri)} cannot be used ({first_line(error)}): check "
                "MLFLOW_TRACKING_URI, or set `enabled: false` in conf/local/mlflow.yml"
            ) from None  # a traceback of the cause would show the address as it is

    def _open_for(self, opening: Future[None], uri: str) -> None:
        try:
            self._open(uri)
        except BaseException as error:
            opening.set_exception(error)
        else:
            opening.set_result(None)

    def _wait(self, seconds: float | None = None) -> None:
        if self._opening is None:
            return
        opening, self._opening = self._opening, None
        try:
            opening.result(seconds)
        except TimeoutError:
            raise AnmiError(f"the tracking store has not answered in {seconds:.0f} s") from None
        finally:
            if self._held is not None:
                self._held.end()

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any, node: Node) -> None:
        """Log metrics and artifacts as they appear."""
        if self._run_id is None or self._catalog is None:
            return
        dataset = self._catalog.get(dataset_name)
        kind = ((getattr(dataset, "metadata", None) or {}).get("anmi") or {}).get("mlflow")
        with self._forgiving(f"logging {dataset_name}"):
            if kind == "metrics":
                self._log_metrics(metrics_of(dataset_name, data))
            elif kind == "artifact":
                self._log_artifact(dataset_name, dataset)
            elif kind == "note":
                self._log_note(data)
            elif kind == "traces" and len(data):
                log_traces(self._client, self._run_id, data)
            elif kind == "cells":
                self._log_cells(data)
            elif kind == "history":
                for part, rows in by_pass(dataset_name, data).items():
                    self._log_metrics(curves_of(part, rows))

    @hook_impl
    def after_pipeline_run(self, pipeline: Pipeline) -> None:
        """Close the run."""
        self._close("FINISHED")

    @hook_impl
    def on_pipeline_error(self, error: Exception, pipeline: Pipeline) -> None:
        """Close the run as failed."""
        self._close("FAILED", error)

    def interrupted(self, error: BaseException) -> None:
        """Close the run that was stopped from outside, or refused before its first node; Kedro calls no hook then."""
        self._close("FAILED" if isinstance(error, Exception) else "KILLED", error)

    def open_run(self, uri: str) -> str:
        """Open the run that ``MLFLOW_RUN_ID`` names, or else a new one, and return its id."""
        self._client = connect(uri)
        shared = os.environ.get("MLFLOW_RUN_ID")
        self._shared = bool(shared)
        tags = self._tags()
        if shared:
            self._client.get_run(shared)
            self._client.update_run(shared, status="RUNNING")
            self._run_id = self._record.tracking_run = shared
            self._log_tags(tags)
        else:
            experiment = self._experiment(uri)
            run = self._client.create_run(experiment, run_name=self._record.run_id, tags=tags)
            self._run_id = self._record.tracking_run = run.info.run_id
        return str(self._run_id)

    def _experiment(self, uri: str) -> str:
        name = self._settings.experiment
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            if found.lifecycle_stage != "active":
                raise AnmiError(f'experiment "{name}" was deleted: restore it or choose another name')
            return str(found.experiment_id)
        local = uri.startswith("sqlite:///")
        place = (Path(uri.removeprefix("sqlite:///")).parent / "artifacts").as_uri() if local else None
        try:
            return str(self._client.create_experiment(name, artifact_location=place))
        except Exception:
            # Another run may have made it in between.
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def _tags(self) -> dict[str, str]:
        record = self._record
        tags = {
            "run_id": record.run_id,
            "environment": record.environment,
            "pipelines": ",".join(record.pipelines),
            "git_commit": record.git.get("commit", "unknown"),
            "git_changed": str(record.git.get("changed", "unknown")).lower(),
            "mlflow.source.name": "anmi",
        }
        origin = {"code": record.code, "collection_digest": record.collection.get("digest")}
        tags |= {name: value for name, value in origin.items() if value}
        if record.resumed_from:
            tags["resumed_from"] = record.resumed_from
        if "commit" in record.git:
            tags["mlflow.source.git.commit"] = record.git["commit"]
        return tags

    def _log_parameters(self) -> None:
        from mlflow.entities import Param

        values = {
            key_of(key): str(value)[:LONGEST_VALUE]
            for key, value in flatten(all_masked(of_this_run(self._record.parameters, self._record.reads))).items()
        }
        if self._shared:
            # Parameters cannot change; what another task of this run has logged stays.
            known = self._client.get_run(self._run_id).data.params
            values = {key: value for key, value in values.items() if key not in known}
        for batch in batches([Param(key, value) for key, value in values.items()]):
            self._client.log_batch(self._run_id, params=batch)
        self._log_collection()

    def _log_tags(self, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        for batch in batches([RunTag(key_of(key), tag_of(value)) for key, value in tags.items()]):
            self._client.log_batch(self._run_id, tags=batch)

    def _log_metrics(self, metrics: list[Any]) -> None:
        for batch in batches(metrics, _METRICS):
            self._client.log_batch(self._run_id, metrics=batch)

    def _log_note(self, results: Any) -> None:
        """Describe the run in Markdown by what it brought, with where to read on."""
        import pandas as pd

        from anmi.report import sentences as by_bucket

        tables = [pd.DataFrame(results[name]) for name in ("rows", "comparisons")]
        told = [by_bucket.standing_in(results["test_queries"]), by_bucket.verdict(*tables), self._asked()]
        told.append("All of it: `report.html` among the artifacts.")
        self._client.set_tag(self._run_id, "mlflow.note.content", tag_of("\n\n".join(filter(None, told))))

    def _asked(self) -> str:
        """Return what was asked for, of the many parameters those that somebody chose for this run."""
        chosen = {name: self._record.parameters.get(name) for name in _CHOSEN}
        given = {name: value for name, value in flatten(self._record.runtime_parameters).items() if name not in chosen}
        return ", ".join(f"{name} `{value}`" for name, value in all_masked(chosen | given).items())

    def _log_cells(self, cells: Any) -> None:
        """Log each row as a run inside this one: texts and truth values as tags, numbers as metrics.

        Of the columns ``started`` and ``ended`` are seconds since 1970, and a text under ``error`` is why it failed.
        """
        from mlflow.entities import Metric, RunTag

        experiment = self._client.get_run(self._run_id).info.experiment_id
        for row in map(plain, cells.to_dict("records")):
            now = time.time()
            start, end = (int(1000 * (row.pop(name, None) or now)) for name in ("started", "ended"))
            texts: dict[str, Any] = {
                name: value for name, value in row.items() if isinstance(value, (str, bool)) and value != ""
            }
            texts |= {"mlflow.parentRunId": self._run_id, "seed": row.pop("seed", "")}
            name = " ".join(str(row[key]) for key in ("collection", "recipe") if key in row) + f" {texts['seed']}"
            run = self._client.create_run(experiment, start_time=start, run_name=name)
            tags = [RunTag(key_of(key), tag_of(value)) for key, value in texts.items()]
            metrics = [
                Metric(key_of(key), float(value), end, 0)
                for key, value in row.items()
                if isinstance(value, (int, float)) and not isinstance(value, bool)
            ]
            self._client.log_batch(run.info.run_id, metrics=metrics, tags=tags)
            self._client.set_terminated(run.info.run_id, "FAILED" if row.get("error") else "FINISHED", end_time=end)

    def _log_artifact(self, name: str, dataset: Any) -> None:
        # Of what lies in a bucket the copy that was uploaded is still here.
        path = dataset.local_copy() if hasattr(dataset, "local_copy") else Path(dataset._filepath)
        if "://" in self._root and hasattr(dataset, "place"):
            self._log_tags({f"artifact.{name}": dataset.place()})
        if path.is_dir():
            self._client.log_artifacts(self._run_id, str(path), name)
        else:
            self._client.log_artifact(self._run_id, str(path))

    def _close(self, status: str, error: BaseException | None = None) -> None:
        self._catalog = None
        with self._forgiving("opening the run"):
            self._wait(_PATIENCE)
        if self._run_id is None:
            return
        with self._forgiving("closing the run"), quiet():
            record = self._record
            tags = self._origin()
            if error is not None:
                tags["error"] = f"{type(error).__name__}: {error}"
            self._log_tags(tags)
            manifest = json.dumps(record.as_dict(), indent=2, ensure_ascii=False) + "\n"
            self._client.log_text(self._run_id, manifest, f"runs/{record.run_id}/manifest.json")
            if self._shared:
                status = self._shared_status(status)
            self._client.set_terminated(self._run_id, status=status)
        self._run_id = None

    def _origin(self) -> dict[str, str]:
        """Return as tags what runs are searched by; all else is in the manifest, and would stand above the note."""
        record = self._record
        own = {*record.saved, *record.reused}
        tags = {f"load.{name}": version for name, version in record.loaded.items() if version and name not in own}
        for run in sorted({*record.reused.values()}):
            tags[f"reused.{run}"] = ", ".join(sorted(name for name, of in record.reused.items() if of == run))
        tags |= {f"fingerprint.{name}": value for name, value in record.models.items()}
        digests = {name: record.files.get(name, {}).get("digest") for name in _COMPARED}
        return tags | {f"digest.{name}": value for name, value in digests.items() if value}

    def _log_collection(self) -> None:
        """Name the collection among the run's datasets, so that MLflow lists runs by it."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        if found := self._record.collection.get("digest"):
            name = str(all_masked(self._record.parameters["collection"]))
            used = Dataset(name=name, digest=found, source_type="local", source=json.dumps({"collection": name}))
            self._client.log_inputs(self._run_id, [DatasetInput(used, [InputTag("mlflow.data.context", "mining")])])

    def _shared_status(self, status: str) -> str:
        """Return the status of a run that several tasks share: failed while a task of it is."""
        mine = key_of(_FAILED + ",".join(self._record.pipelines))
        tags = self._client.get_run(self._run_id).data.tags
        if status != "FINISHED":
            self._client.set_tag(self._run_id, mine, self._record.run_id)
            return status
        if mine in tags:
            self._client.delete_tag(self._run_id, mine)
        return "FAILED" if any(tag.startswith(_FAILED) and tag != mine for tag in tags) else status

    @contextmanager
    def _forgiving(self, what: str) -> Iterator[None]:
        """Let a run of hours outlive its tracking server."""
        try:
            yield
        except Exception as error:
            logger.warning("tracking: %s failed: %s", what, first_line(error))
