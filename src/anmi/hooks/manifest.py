# mypy: allow-untyped-decorators
"""The run manifest: what a run read, wrote, was told and took, as one JSON file.

Which versions a run loads is fixed at its start (see :mod:`anmi.runs.versions`); the manifest says which they were,
and ``--load-versions`` replays them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.framework.project import pipelines
from kedro.io import CatalogProtocol
from kedro.io.core import VersionNotFoundError
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi.corpus.contents import code_digest
from anmi.errors import AnmiError
from anmi.files import disk_errors
from anmi.locks import Lock, process
from anmi.runs import origin, replay, reuse, unchanged, versions
from anmi.runs.manifests import LOCK, read_manifest
from anmi.runs.places import Place
from anmi.runs.record import RunRecord, data_root, now

logger = logging.getLogger(__name__)

_LOG_BYTES = 5_000_000
# Each write to a bucket is a request, which takes a tenth of a second.
_REMOTE_SECONDS = 30.0


class ManifestHooks:
    """Keep the record of the run and write it to ``<data>/runs/<run_id>/manifest.json``.

    At the start, after all that is saved, so that a killed run tells how far it came, and at the end. Where the data
    root is remote, it is written in between every half a minute at most.

    Parameters
    ----------
    record
        Shared with the hooks that add to it or read it.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._root = "data"
        self._project = Path.cwd()
        self._parameters: dict[str, Any] = {}
        self._catalog: CatalogProtocol | None = None
        self._context: KedroContext | None = None
        self._held: Lock | None = None
        self._written = 0.0
        self._read_from: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    @hook_impl(tryfirst=True)
    def after_context_created(self, context: KedroContext) -> None:
        """Configure a run that repeats another as that one was, before anything is read; learn where things lie."""
        replay.configure(context)
        self._root = data_root(context)
        self._project = context.project_path
        self._context = context

    @hook_impl
    def after_catalog_created(self, parameters: dict[str, Any]) -> None:
        """Keep the parameters as validated, with their defaults."""
        self._parameters = parameters.get("parameters", {})

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Open the record.

        Raises
        ------
        Unchanged
            The run would mine again what is there; only where the caller expects that.
        """
        self._catalog = catalog
        self._record.begin(run_params, self._parameters, self._project)
        if origin.COLLECTION in pipeline.inputs():
            self._record.collection = origin.collection_facts(
                str(self._record.parameters["collection"]), origin.marks_of(self._record.parameters)
            )
        self._read_from = reuse.collection_state(self._record)
        if unchanged.is_whole(run_params):
            self._compare(pipeline, catalog)
        before = read_manifest(self._root, self._record.run_id)
        self._claim(run_params, before)
        origins = versions.Origins(self._root, pipelines.values())
        versions.fix(catalog, _to_run(pipeline, catalog, run_params), origins)
        self._note_origin(run_params, pipeline, catalog)
        if before:
            # A scheduler's tasks share a run (see anmi.cli.task).
            self._record.go_on(before)
        reuse.take_over(pipeline, catalog, self._record, self._root)
        if "://" not in self._root:
            log = Path(self._root) / "logs" / "anmi.log"
            with disk_errors(log):
                add_log_file(log)
        self._write()
        if self._held is not None:
            self._held.release(remove=True)
        if "://" not in self._root:
            # Others see from it that this process lives. Where nothing can be locked, the process id has to do.
            self._held = Lock(Path(self._root) / "runs" / self._record.run_id / LOCK)
            with suppress(AnmiError):
                self._held.take()

    @hook_impl
    def after_dataset_loaded(self, dataset_name: str, data: Any, node: Node) -> None:
        """Note the version that was read."""
        dataset = self._persisted(dataset_name)
        if dataset is not None:
            self._record.loaded[dataset_name] = _version(dataset, "resolve_load_version")
            self._note_model(dataset_name, data)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any, node: Node) -> None:
        """Note the version that was written, and what of it can be compared."""
        dataset = self._persisted(dataset_name)
        if dataset is None:
            return
        written = dict(getattr(dataset, "written", {}))
        self._note_model(dataset_name, data)
        if "weights" in written:
            self._record.models[dataset_name] = written.pop("weights")
        if written:
            self._record.files[dataset_name] = written
        self._record.saved[dataset_name] = _version(dataset, "resolve_save_version")
        if "://" not in self._root or time.monotonic() - self._written > _REMOTE_SECONDS:
            self._try_to_write()

    @hook_impl
    def after_pipeline_run(self, pipeline: Pipeline) -> None:
        """Close the record."""
        if self._record.fingerprint and self._catalog is not None:
            self._record.outputs = unchanged.stamps(self._catalog, pipeline.all_outputs())
        if reuse.collection_state(self._record) != self._read_from:
            # It may have been read as it is now, or half.
            self._record.made_from = {}
        self._record.finish()
        self._write()
        self._let_go()

    @hook_impl
    def on_pipeline_error(self, error: Exception, pipeline: Pipeline) -> None:
        """Close the record with the error."""
        self._record.finish(error)
        self._try_to_write()
        self._let_go()

    def interrupted(self, error: BaseException) -> None:
        """Close the record of a run that was stopped from outside; Kedro calls no hook then."""
        if self._record.run_id and self._record.end is None:
            self._record.finish(error)
            self._try_to_write()
            self._let_go()

    def _claim(self, run_params: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Make the folder of the run: of two that began within a millisecond, and have one id, one must not go on."""
        if "session_id" in run_params:
            # Of a scheduler's tasks, which were given the id and share it.
            return
        taken = bool(before)
        if "://" not in self._root:
            folder = Path(self._root) / "runs" / self._record.run_id
            try:
                with disk_errors(folder):
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    folder.mkdir()
            except FileExistsError:
                taken = True
        if taken:
            error = AnmiError(f"another run began in the same moment, as {self._record.run_id}: start this one again")
            # Closed at once, since the manifest that is there is not ours.
            self._record.finish(error)
            raise error

    def _note_origin(self, run_params: Mapping[str, Any], pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Note what the run is made from: all that running it again takes."""
        assert self._context is not None
        record, inputs = self._record, pipeline.inputs()
        record.process, record.code = process(), code_digest()
        record.reads = sorted(name.removeprefix("params:") for name in inputs if name.startswith("params:"))
        record.filters = origin.filters_of(run_params)
        record.configured = origin.exact(self._context.config_loader["parameters"])
        record.made_from = reuse.keys(pipeline, record, self._context.config_loader["catalog"], self._project)
        for name in inputs:
            if self._has_versions(name):
                # What only nodes that are left out read may be missing.
                with suppress(VersionNotFoundError):
                    record.inputs[name] = _version(catalog.get(name), "resolve_load_version")
        asked = replay.asked()
        for name, value in (asked.notes if asked else {}).items():
            setattr(record, name, value)

    def _note_model(self, name: str, data: Any) -> None:
        """Note the fingerprint in a description of a model, or those of its folds."""
        if not isinstance(data, Mapping):
            return
        folds = data.get("folds")
        told = [data, *(folds if isinstance(folds, list) else [])]
        found = [part["fingerprint"] for part in told if isinstance(part, Mapping) and "fingerprint" in part]
        if found:
            self._record.models[name] = ",".join(dict.fromkeys(map(str, found)))

    def _compare(self, pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Note what the run is made from; stop it where the last one was made from the same."""
        assert self._context is not None
        entries = self._context.config_loader["catalog"]
        made = {name: entry for name, entry in entries.items() if name in pipeline.all_outputs()}
        record = self._record
        forced, collection = unchanged.is_forced(record.parameters), record.collection.get("digest", "")
        if record.collection and not collection:
            # What is wrong with it is for ingestion to say.
            return
        now = unchanged.fingerprint(
            pipeline.inputs(), record.parameters, collection, record.versions, made, self._project
        )
        record.fingerprint = now
        if forced or not unchanged.is_asked():
            return
        before, changes = unchanged.compare(catalog, pipeline.all_outputs(), self._root, now)
        if before and not changes:
            raise unchanged.Unchanged(
                f"Nothing to mine: collection, parameters, code and outputs are those of run {before['run_id']} "
                f"(recipe {before['parameters'].get('recipe')}); --params force=true mines again"
            )
        if before:
            logger.info("Mining again, since run %s this changed: %s", before["run_id"], ", ".join(changes))

    def _persisted(self, name: str) -> Any:
        if self._catalog is None or name.startswith("params:") or name == "parameters":
            return None
        dataset = self._catalog.get(name)
        return dataset if hasattr(dataset, "_filepath") else None

    def _has_versions(self, name: str) -> bool:
        return bool(getattr(self._persisted(name), "_version", None))

    def _write(self) -> None:
        # A runner may save in several threads.
        with self._lock:
            self._record.updated = now()
            Place(self._root).write(f"runs/{self._record.run_id}/manifest.json", self._record.as_text())
            self._written = time.monotonic()

    def _try_to_write(self) -> None:
        """Write where the run goes on, or ends for another reason, if this fails."""
        try:
            self._write()
        except (AnmiError, OSError) as error:
            logger.warning("The manifest was not written: %s", error)

    def _let_go(self) -> None:
        # Hooks live as long as the process, and a catalog holds the store open.
        self._catalog = None
        if self._held is not None:
            self._held.release(remove=True)
            self._held = None


def _to_run(pipeline: Pipeline, catalog: CatalogProtocol, run_params: Mapping[str, Any]) -> Pipeline:
    """Return the nodes that are about to run: with ``--only-missing-outputs``, those that lack something."""
    if not run_params.get("only_missing_outputs"):
        return pipeline
    return Pipeline([node for node in pipeline.nodes if not (node.outputs and all(map(catalog.exists, node.outputs)))])


def _version(dataset: Any, resolve: str) -> str | None:
    version = getattr(dataset, resolve)() if getattr(dataset, "_version", None) else None
    return None if version is None else str(version)


class _LogFile(RotatingFileHandler):
    """A log that ends, without a word for each line, where its disk takes no more; the run says what is wrong."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Write no more."""
        self.setLevel(logging.CRITICAL + 1)


def add_log_file(path: Path) -> None:
    """Let everything that is logged also go to a rotating file; one such file at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _LogFile(path, maxBytes=_LOG_BYTES, backupCount=3, delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    handler.set_name("anmi-file")
    # Kedro's and Python's warnings do not propagate (see conf/logging.yml), so the root alone would miss them.
    for name in ("", "kedro", "py.warnings"):
        logger = logging.getLogger(name)
        for old in [h for h in logger.handlers if h.get_name() == "anmi-file"]:
            logger.removeHandler(old)
            old.close()
        if name == "" or not logger.propagate:
            logger.addHandler(handler)
