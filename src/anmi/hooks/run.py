# mypy: allow-untyped-decorators
"""What a run is: which versions it loads, and ``run.json``, which says what it read, made, was told and took."""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.framework.project import pipelines
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi import buckets
from anmi.errors import AnmiError
from anmi.files import disk_errors
from anmi.hooks import versions
from anmi.hooks.record import FILE, LOCK, RunRecord, Runs, all_masked, data_root, flatten, in_sequence, now

logger = logging.getLogger(__name__)

# Each write to a bucket is a request, which takes a tenth of a second.
_REMOTE_SECONDS: Final = 30.0


class RunHooks:
    """Fix the versions that a run loads, measure its nodes, and keep its record.

    The record is written at the start, after all that is saved, so that a killed run tells how far it came, and at the
    end; where the data root is remote, every half a minute at most. Blocks of candidates are made while they are saved,
    so a node is measured from its first input to its last output.

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
        self._runs = Runs(self._root)
        self._held: FileLock | None = None
        self._written = 0.0
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._open: dict[str, set[str]] = {}
        self._asked: dict[str, tuple[Any, int, int]] = {}
        self._total = 0

    @hook_impl(tryfirst=True)
    def after_context_created(self, context: KedroContext) -> None:
        """Learn where things lie."""
        self._root, self._project = data_root(context), context.project_path

    @hook_impl
    def after_catalog_created(self, parameters: dict[str, Any]) -> None:
        """Keep the parameters as validated, with their defaults."""
        self._parameters = parameters.get("parameters", {})

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Open the record and fix the versions.

        Raises
        ------
        AnmiError
            Another run has the same id, or something that is read was never made.
        """
        self._catalog, self._runs = catalog, Runs(self._root)
        for noted in (self._started, self._open, self._asked):
            noted.clear()
        before = self._runs.read(run_params["run_id"]) if run_params.get("only_missing_outputs") else {}
        resumed = bool(before)
        # The hooks after this one know the run by this as well.
        run_params["run_id"] = self._claim(run_params["run_id"], resumed=resumed)
        self._record.begin(run_params, self._parameters, self._project)
        asked = versions.facts(all_masked(self._record.parameters))
        asked |= versions.hashes(asked, pipeline.inputs())
        if resumed:
            self._refuse_changes(before, asked)
            self._record.go_on(before)
        elif run_params.get("only_missing_outputs"):
            # Of nodes that lack nothing what is there is read.
            pipeline = Pipeline([n for n in pipeline.nodes if not (n.outputs and all(map(catalog.exists, n.outputs)))])
        loaded = {name: noted["version"] for name, noted in self._record.loaded.items() if noted.get("version")}
        taken = versions.fix(catalog, pipeline, self._runs, pipelines.values(), loaded, self._record.run_id)
        self._record.made_from |= versions.origin(taken, self._runs, pipelines, pipeline, asked, self._record)
        left = [node for node in pipeline.nodes if not (node.outputs and all(map(catalog.exists, node.outputs)))]
        if resumed:
            for name in {name for node in left for name in node.outputs if catalog.exists(name)}:
                # Of a node that was killed between two outputs.
                catalog.get(name).discard()
        self._total = len(left)
        self._write()

    @hook_impl
    def before_dataset_loaded(self, dataset_name: str, node: Node) -> None:
        """Start the clock at the first input."""
        self._start(node)

    @hook_impl
    def after_dataset_loaded(self, dataset_name: str, data: Any, node: Node) -> None:
        """Note the version that was read, and how much the store had been asked before."""
        if dataset_name == "store":
            self._asked[node.name] = data, data.asked, data.found
        dataset = self._versioned(dataset_name)
        if dataset is not None and dataset_name not in self._record.saved:
            version = str(dataset.resolve_load_version())
            noted = self._runs.read(version).get("saved", {}).get(dataset_name, {})
            known = {"digest": noted["digest"]} if "digest" in noted else {}
            self._record.loaded[dataset_name] = {"version": version, **known}

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        """Start the clock of a node without inputs."""
        self._start(node)

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        """Stop the clock of a node without outputs."""
        if not node.outputs:
            self._stop(node)

    @hook_impl
    def before_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Let results say of which run they are."""
        if dataset_name == "results":
            data["run"] = self._record.run_id

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any, node: Node) -> None:
        """Note the version that was written and its files; stop the clock at the last output."""
        dataset = self._versioned(dataset_name)
        if dataset is not None:
            written = {**getattr(dataset, "written", {})}
            self._record.saved[dataset_name] = {"version": str(dataset.resolve_save_version()), **written}
        if dataset_name == "collection_info":
            self._record.made_from |= {"collection_digest": data["fingerprint"], "queries": data["queries"]}
        remaining = self._open.setdefault(node.name, set(node.outputs))
        remaining.discard(dataset_name)
        if not remaining:
            self._stop(node)
        if "://" not in self._root or time.monotonic() - self._written > _REMOTE_SECONDS:
            self._try_to_write()

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Close the record."""
        self._record.finish()
        self._write()
        self._release()

    @hook_impl
    def on_pipeline_error(self, error: Exception) -> None:
        """Close the record with the error."""
        self.interrupted(error)

    def interrupted(self, error: BaseException) -> None:
        """Close the record of a run that failed or was stopped from outside, when Kedro calls no hook."""
        if self._record.run_id and self._record.end is None:
            ended = {each["node"] for each in self._record.nodes}
            self._record.failed_at = next((name for name in self._started if name not in ended), "")
            self._record.finish(error)
            self._try_to_write()
            self._release()

    def _claim(self, run_id: str, *, resumed: bool) -> str:
        """Hold the folder of the run, and return its id: later than all there are, and of one run alone."""
        if self._held is not None:
            self._held.release()
        while True:
            if not resumed:
                run_id = in_sequence(run_id, buckets.names(f"{self._root}/runs"))
            if "://" in self._root:
                return run_id
            folder = Path(self._root, "runs", run_id)
            with disk_errors(folder), suppress(FileExistsError):
                folder.mkdir(parents=True, exist_ok=resumed)
                # Others see from it that this process lives.
                self._held = FileLock(folder / LOCK, thread_local=False)
                try:
                    self._held.acquire(timeout=0)
                except Timeout:
                    self._held = None
                    raise AnmiError(f"run {run_id} is still running: wait for it, or end its process first") from None
                return run_id

    def _refuse_changes(self, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Refuse to go on under other parameters or files than a run began with; its code may have been mended."""
        record, began = self._record, before.get("made_from", {})
        files = {name: asked[name] for name in asked.keys() & began.keys() if name.endswith(versions.FILES)}
        old = flatten(before["parameters"]) | {name: began[name] for name in files}
        new = flatten(all_masked(record.parameters)) | files
        for name in sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
            run_id, record.run_id = record.run_id, ""
            self._release()
            place = name.removesuffix(versions.FILES)
            told = (
                f'the parameter "{name}" was {old.get(name)!r} when it began and is {new.get(name)!r} now: set it back'
            )
            if name in files:
                told = f"the files of {place}={asked.get(place)} are not those that it began with: put them back"
            raise AnmiError(f"run {run_id} cannot go on, since {told}, or begin another run")
        if before["git"] != record.git:
            logger.warning("The code is another than when run %s began", record.run_id)

    def _versioned(self, name: str) -> Any:
        if self._catalog is None or name.startswith("params:") or name == "parameters":
            return None
        dataset = self._catalog.get(name)
        return dataset if getattr(dataset, "_version", None) else None

    def _start(self, node: Node) -> None:
        if node.name not in self._started:
            self._started[node.name] = time.perf_counter()
            # Lets the peak count from now on; only Linux allows it.
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def _stop(self, node: Node) -> None:
        started = self._started.get(node.name)
        if started is None:
            return
        entry: dict[str, Any] = {
            "node": node.name,
            "stage": node.namespace or "",
            "end": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "seconds": round(time.perf_counter() - started, 3),
            "peak_mib": round(peak_mib()),
        }
        # A node gives its main result first; the longest may be one that it makes beside, as training does.
        rows = {name: getattr(self._catalog and self._catalog.get(name), "rows", None) for name in node.outputs}
        if of := next((name for name, count in rows.items() if count is not None), ""):
            entry |= {"of": of, "rows": rows[of]}
        if node.name in self._asked:
            store, asked, found = self._asked.pop(node.name)
            if store.asked > asked:
                entry |= {"asked": store.asked - asked, "found": store.found - found}
        self._record.nodes = [*(each for each in self._record.nodes if each["node"] != node.name), entry]
        done = sum(each["node"] in self._started for each in self._record.nodes)
        place = f"{done}/{self._total}"
        logger.info("%5s  %-32s %7.1f s %6d MiB", place, node.name, entry["seconds"], entry["peak_mib"])

    def _write(self) -> None:
        # A runner may save in several threads.
        with self._lock:
            self._record.updated = now()
            buckets.write_text(f"{self._root}/runs/{self._record.run_id}/{FILE}", self._record.as_text())
            self._written = time.monotonic()

    def _try_to_write(self) -> None:
        """Write where the run goes on, or ends for another reason, if this fails."""
        try:
            self._write()
        except (AnmiError, OSError) as error:
            logger.warning("%s was not written: %s", FILE, error)

    def _release(self) -> None:
        # Hooks live as long as the process, and a catalog and the store in it hold files open.
        self._catalog = None
        self._asked.clear()
        if self._held is not None:
            self._held.release()
            self._held = None


def peak_mib() -> float:
    """Return the largest resident memory of this process in MiB, since the last reset where that is possible."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)
