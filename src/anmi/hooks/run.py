# mypy: allow-untyped-decorators
"""Fix the versions that a run loads, and keep its record, ``run.json``."""

from __future__ import annotations

import json
import logging
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any, Final

from filelock import FileLock, Timeout
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.framework.project import pipelines
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi import buckets
from anmi.datasets.artifact import ArtifactDataset
from anmi.errors import AnmiError
from anmi.files import measured
from anmi.hooks import lineage, versions
from anmi.hooks.record import FILE, LOCK, RunRecord, Runs, all_masked, data_root, flatten, now

logger = logging.getLogger(__name__)

# Each write to a bucket is a request, which takes a tenth of a second.
_REMOTE_SECONDS: Final = 30.0
_SECONDS_BETWEEN_LOOKS: Final = 5.0
# How ``kedro run --pipelines retrain`` ends. Every other end has the shell's code: 130 after
# Ctrl-C, 143 after SIGTERM.
EXIT_CODES: Final = {"promoted": 0, "failed": 1, "kept": 10, "refused": 11}


class AlreadyRetraining(AnmiError):
    """Another retraining is under way."""


class AlreadyRunning(AnmiError):
    """A pipeline is run in this process."""


class NothingMissing(AnmiError):
    """All outputs of a run that makes what is missing are there."""


class RunHooks:
    """Fix the versions that a run loads, measure its nodes, keep its record, allow one retraining.

    The record is written at the start, after all that is saved, so that a killed run tells how far
    it came, and at the end; where the data root is remote, every half a minute at most. Blocks of
    candidates are made while they are saved, so a node is measured from its first input to its last
    output. Of retrainings on several machines, which share no lock, the one that ends last finds
    another champion than it compared with, and promotes nothing.
    """

    def __init__(self) -> None:
        self.record = RunRecord()
        self._root = "data"
        self._project = Path.cwd()
        self._runs = Runs(self._root)
        self._parameters: dict[str, Any] = {}
        self._catalog: CatalogProtocol | None = None
        self._locks: list[FileLock] = []
        self._is_recording = False
        self._last_write = 0.0
        self._start_times: dict[str, float] = {}
        self._saved_names: set[str] = set()
        self._node_count = 0
        self._ended = Event()
        self._graph: lineage.Graph = {}
        # That runs a pipeline now.
        self._thread: Thread | None = None

    @hook_impl(tryfirst=True)
    def after_context_created(self, context: KedroContext) -> None:
        """Learn where things lie.

        Raises
        ------
        AnmiError
            Another thread runs a pipeline, as `kedro server` would at a second request.
        """
        if self._thread not in (None, current_thread()):
            raise AlreadyRunning(
                f"run {self.record.run_id} is under way in this process: wait for its end"
            )
        self._root = data_root(context)
        self._project = context.project_path

    @hook_impl
    def after_catalog_created(self, parameters: dict[str, Any]) -> None:
        """Keep the parameters as validated, with their defaults."""
        self._parameters = parameters.get("parameters", {})

    @hook_impl
    def before_pipeline_run(
        self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol
    ) -> None:
        """Open the record and fix the versions.

        Raises
        ------
        AnmiError
            The run or another retraining is under way, or something that is read was never made.
        """
        self._release()
        self._catalog = catalog
        self._runs = Runs(self._root)
        self._start_times.clear()
        self._saved_names.clear()
        run_id = run_params["run_id"]
        only_missing = run_params.get("only_missing_outputs")
        earlier = self._runs.read(run_id) if only_missing else {}
        if only_missing and not earlier and not self._incomplete(pipeline, catalog):
            raise NothingMissing(
                "nothing is missing: all outputs are there, so nothing was run; without"
                " --only-missing-outputs `kedro run` makes them again"
            )
        self.record = RunRecord.begin(run_params, self._parameters, self._project)
        self._claim(run_id, resumed=bool(earlier))
        facts = versions.facts(all_masked(self.record.parameters))
        facts |= versions.hashes(facts, pipeline.inputs())
        if earlier:
            self._refuse_changes(earlier, facts)
            self.record.resume(earlier)
        self._is_recording = True
        if only_missing and not earlier:
            # The outputs of nodes that lack none are read.
            pipeline = Pipeline(self._incomplete(pipeline, catalog))
        loaded = {name: entry.get("version") for name, entry in self.record.loaded.items()}
        project_pipelines = pipelines.values()
        inputs = versions.fix(catalog, pipeline, self._runs, project_pipelines, loaded)
        self.record.made_from |= versions.origin(inputs, self._runs, pipelines, pipeline, facts)
        remaining = self._incomplete(pipeline, catalog)
        if earlier:
            for name in {name for node in remaining for name in node.outputs}:
                # The node was killed between two outputs.
                if catalog.exists(name):
                    catalog.get(name).discard()
            self._note_unrecorded([node for node in pipeline.nodes if node not in remaining])
        if "retrain" in self.record.pipelines:
            path = Path(catalog.get("store")._describe()["filepath"]) / "retrain.lock"
            message = (
                f"another retraining is under way: {path} is locked; wait for it to end, or end it"
            )
            self._lock(path, AlreadyRetraining(message))
        self._node_count = len(remaining)
        self._graph = {node.name: (node.inputs, node.outputs) for node in pipeline.nodes}
        self._write()
        self._ended = Event()
        self._thread = current_thread()
        Thread(target=self._tell_running, args=(self._ended,), daemon=True).start()
        self._write_lineage()

    @hook_impl
    def before_dataset_loaded(self, node: Node) -> None:
        """Start the clock at the first input."""
        if node.name not in self._start_times:
            self._start_times[node.name] = time.perf_counter()
            # Lets the peak count from now on; only Linux allows it.
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    # Of a node without inputs.
    before_node_run = before_dataset_loaded

    @hook_impl
    def after_dataset_loaded(self, dataset_name: str) -> None:
        """Note the version that was read."""
        dataset = self._versioned(dataset_name)
        if dataset is not None and dataset_name not in self.record.saved:
            version = str(dataset.resolve_load_version())
            saved = self._runs.read(version).get("saved", {}).get(dataset_name, {})
            digest = {"digest": saved["digest"]} if "digest" in saved else {}
            self.record.loaded[dataset_name] = {"version": version, **digest}

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        """Stop the clock of a node without outputs."""
        if not node.outputs:
            self._stop(node)

    @hook_impl
    def before_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Let results say of which run they are."""
        if dataset_name == "results":
            data["run"] = self.record.run_id

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any, node: Node) -> None:
        """Note the version that was written and its files; stop the clock at the last output."""
        dataset = self._versioned(dataset_name)
        if dataset is not None:
            version = str(dataset.resolve_save_version())
            self.record.saved[dataset_name] = {"version": version, **dataset.written}
        if dataset_name == "collection_info":
            self.record.made_from["collection_digest"] = data["fingerprint"]
            self.record.made_from["queries"] = data["queries"]
        if dataset_name == "registration":
            self.record.decision = data["decision"]
        self._saved_names.add(dataset_name)
        if not self._saved_names >= set(node.outputs):
            return
        self._stop(node)
        if "://" not in self._root or time.monotonic() - self._last_write > _REMOTE_SECONDS:
            self._try_to_write()

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Close the record."""
        self.record.finish()
        self._write()
        self._write_lineage()
        self._release()

    @hook_impl
    def on_pipeline_error(self, error: BaseException) -> None:
        """Close the record of a run that failed, or that a signal stopped."""
        if self._is_recording and self.record.end is None:
            finished = {entry["node"] for entry in self.record.nodes}
            running = [name for name in self._start_times if name not in finished]
            self.record.failed_at = running[0] if running else ""
            self.record.decision = ""
            self.record.finish(error)
            self._try_to_write()
            self._write_lineage()
        self._release()

    def _claim(self, run_id: str, *, resumed: bool) -> None:
        """Hold the folder of the run, by which others see that this process lives."""
        if "://" in self._root:
            return
        folder = Path(self._root, "runs", run_id)
        folder.mkdir(parents=True, exist_ok=True)
        message = "another run began in this millisecond: run again"
        if resumed:
            message = f"run {run_id} is still running: wait for it, or end its process first"
        self._lock(folder / LOCK, AnmiError(message))

    def _lock(self, path: Path, error: AnmiError) -> None:
        """Hold a lock until the run ends; raise the error where another process holds it."""
        lock = FileLock(path, thread_local=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise error from None
        self._locks.append(lock)

    def _refuse_changes(self, earlier: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Refuse to resume under other parameters or files; the code may have been mended."""
        origins = earlier.get("made_from", {})
        shared_files = [name for name in facts if name.endswith(versions.FILES) and name in origins]
        before = flatten(earlier["parameters"]) | {name: origins[name] for name in shared_files}
        after = flatten(all_masked(self.record.parameters))
        after |= {name: facts[name] for name in shared_files}
        for name in sorted(before | after):
            if before.get(name) == after.get(name):
                continue
            reason = (
                f'the parameter "{name}" was {before.get(name)!r} and is {after.get(name)!r} now:'
                " set it back"
            )
            if name in shared_files:
                setting = name.removesuffix(versions.FILES)
                reason = (
                    f"the files of {setting}={facts.get(setting)} are not those that it began with:"
                    " put them back"
                )
            raise AnmiError(
                f"run {self.record.run_id} cannot go on, since {reason}, or begin another run"
            )
        if earlier["git"] != self.record.git:
            logger.warning("The code has changed since run %s began", self.record.run_id)

    def _note_unrecorded(self, finished_nodes: list[Node]) -> None:
        """Note what nodes saved whose run was killed before it wrote so."""
        for name in sorted({name for node in finished_nodes for name in node.outputs}):
            dataset = self._versioned(name)
            if dataset is not None and not self.record.saved.get(name, {}).get("digest"):
                version = str(dataset.resolve_save_version())
                self.record.saved[name] = {"version": version, **measured(dataset.local_copy())}

    @staticmethod
    def _incomplete(pipeline: Pipeline, catalog: CatalogProtocol) -> list[Node]:
        """Return the nodes that Kedro runs for missing outputs, or for what lives in memory."""
        incomplete: list[Node] = []
        inputs: set[str] = set()
        for node in reversed(pipeline.nodes):
            is_missing = [
                name in inputs if catalog.get(name)._EPHEMERAL else not catalog.exists(name)
                for name in node.outputs
            ]
            if any(is_missing) or not is_missing:
                incomplete.append(node)
                inputs |= set(node.inputs)
        return incomplete[::-1]

    def _versioned(self, name: str) -> ArtifactDataset | None:
        """Return a versioned artifact of the catalog, None for all else."""
        if self._catalog is None or name.startswith("params:") or name == "parameters":
            return None
        dataset = self._catalog.get(name)
        is_artifact = isinstance(dataset, ArtifactDataset) and dataset.is_versioned
        return dataset if is_artifact else None

    def _stop(self, node: Node) -> None:
        """Note the time and memory of a node that has ended."""
        entry: dict[str, Any] = {
            "node": node.name,
            "stage": node.namespace or "",
            "end": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "seconds": round(time.perf_counter() - self._start_times[node.name], 3),
            "peak_mib": round(peak_mib()),
        }
        earlier = [record for record in self.record.nodes if record["node"] != node.name]
        self.record.nodes = [*earlier, entry]
        finished = sum(record["node"] in self._start_times for record in self.record.nodes)
        logger.info(
            "%5s  %-32s %7.1f s %6d MiB",
            f"{finished}/{self._node_count}",
            node.name,
            entry["seconds"],
            entry["peak_mib"],
        )

    def _tell_running(self, ended: Event) -> None:
        """Say after half a minute, and then once a minute, which node runs."""
        minutes_announced = Counter[str]()
        while not ended.wait(_SECONDS_BETWEEN_LOOKS):
            finished = {entry["node"] for entry in self.record.nodes}
            for name, start in list(self._start_times.items()):
                seconds = time.perf_counter() - start
                minutes = round(seconds / 60)
                if name not in finished and minutes > minutes_announced[name]:
                    minutes_announced[name] = minutes
                    logger.info("%s has been running for %.0f s", name, seconds)

    def _write(self) -> None:
        self.record.updated = now()
        buckets.write_text(f"{self._root}/runs/{self.record.run_id}/{FILE}", self.record.as_text())
        self._last_write = time.monotonic()

    def _write_lineage(self) -> None:
        record = json.loads(self.record.as_text())
        text = lineage.as_text(record, self._root, self._graph)
        try:
            buckets.write_text(f"{self._root}/runs/{self.record.run_id}/{lineage.FILE}", text)
        except (AnmiError, OSError) as error:
            logger.warning("%s was not written: %s", lineage.FILE, error)

    def _try_to_write(self) -> None:
        """Write where the run goes on, or ends for another reason, if this fails."""
        try:
            self._write()
        except (AnmiError, OSError) as error:
            logger.warning("%s was not written: %s", FILE, error)

    def _release(self) -> None:
        # Hooks live as long as the process, and a catalog and the store in it hold files open.
        self._catalog = None
        self._is_recording = False
        self._thread = None
        self._ended.set()
        while self._locks:
            self._locks.pop().release()


def peak_mib() -> float:
    """Return the largest resident memory of this process in MiB, on Linux since the last reset."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        peak = re.search(r"VmHWM:\s+(\d+)", status)
        if peak:
            return int(peak[1]) / 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)
