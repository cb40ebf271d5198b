# mypy: allow-untyped-decorators
"""What a run is: which versions it loads, and ``run.json``, which says what it read, made, was told and took."""

from __future__ import annotations

import logging
import re
import resource
import sys
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
from anmi.files import disk_errors, measured
from anmi.hooks import versions
from anmi.hooks.record import FILE, LOCK, RunRecord, Runs, all_masked, data_root, flatten, now

logger = logging.getLogger(__name__)

# Each write to a bucket is a request, which takes a tenth of a second.
_REMOTE_SECONDS: Final = 30.0
# How ``kedro run --pipelines retrain`` ends. Every other end has the shell's code: 130 after
# Ctrl-C, 143 after SIGTERM.
EXIT_CODES: Final = {"promoted": 0, "failed": 1, "kept": 10, "refused": 11}


class AlreadyRetraining(AnmiError):
    """Another retraining is under way."""


class NothingMissing(AnmiError):
    """All outputs of a run that makes what is missing are there."""


class RunHooks:
    """Fix the versions that a run loads, measure its nodes, keep its record, and let one retraining run at a time.

    The record is written at the start, after all that is saved, so that a killed run tells how far
    it came, and at the end; where the data root is remote, every half a minute at most. Blocks of
    candidates are made while they are saved, so a node is measured from its first input to its last
    output. Of retrainings on several machines, which share no lock, the one that ends last finds
    another champion than it compared with, and promotes nothing.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self._root = "data"
        self._project = Path.cwd()
        self._runs = Runs(self._root)
        self._parameters: dict[str, Any] = {}
        self._catalog: CatalogProtocol | None = None
        self._locks: list[FileLock] = []
        self._ours = False
        self._written = 0.0
        self._started: dict[str, float] = {}
        self._saved: set[str] = set()
        self._total = 0

    @hook_impl(tryfirst=True)
    def after_context_created(self, context: KedroContext) -> None:
        """Learn where things lie."""
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
        self._started.clear()
        self._saved.clear()
        run_id = run_params["run_id"]
        missing = run_params.get("only_missing_outputs")
        before = self._runs.read(run_id) if missing else {}
        if missing and not before and not self._lacking(pipeline, catalog):
            raise NothingMissing(
                "nothing is missing: all outputs are there, so nothing was run; without"
                " --only-missing-outputs `kedro run` makes them again"
            )
        self.record.begin(run_params, self._parameters, self._project)
        self._claim(run_id, resumed=bool(before))
        asked = versions.facts(all_masked(self.record.parameters))
        asked |= versions.hashes(asked, pipeline.inputs())
        if before:
            self._refuse_changes(before, asked)
            self.record.go_on(before)
        self._ours = True
        if missing and not before:
            # The outputs of nodes that lack none are read.
            pipeline = Pipeline(self._lacking(pipeline, catalog))
        loaded = {
            name: noted["version"]
            for name, noted in self.record.loaded.items()
            if noted.get("version")
        }
        taken = versions.fix(catalog, pipeline, self._runs, pipelines.values(), loaded)
        self.record.made_from |= versions.origin(taken, self._runs, pipelines, pipeline, asked)
        left = self._lacking(pipeline, catalog)
        if before:
            for name in {name for node in left for name in node.outputs if catalog.exists(name)}:
                # The node was killed between two outputs.
                catalog.get(name).discard()
            self._note_unrecorded([node for node in pipeline.nodes if node not in left])
        if "retrain" in self.record.pipelines:
            path = Path(catalog.get("store")._describe()["filepath"]) / "retrain.lock"
            told = (
                f"another retraining is under way: {path} is locked; wait for it to end, or end it"
            )
            self._lock(path, AlreadyRetraining(told))
        self._total = len(left)
        self._write()

    @hook_impl
    def before_dataset_loaded(self, node: Node) -> None:
        """Start the clock at the first input."""
        if node.name not in self._started:
            self._started[node.name] = time.perf_counter()
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
            noted = self._runs.read(version).get("saved", {}).get(dataset_name, {})
            known = {"digest": noted["digest"]} if "digest" in noted else {}
            self.record.loaded[dataset_name] = {"version": version, **known}

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
            written = {**getattr(dataset, "written", {})}
            self.record.saved[dataset_name] = {
                "version": str(dataset.resolve_save_version()),
                **written,
            }
        if dataset_name == "collection_info":
            self.record.made_from |= {
                "collection_digest": data["fingerprint"],
                "queries": data["queries"],
            }
        if dataset_name == "registration":
            self.record.decision = data["decision"]
        self._saved.add(dataset_name)
        if self._saved >= set(node.outputs):
            self._stop(node)
        if "://" not in self._root or time.monotonic() - self._written > _REMOTE_SECONDS:
            self._try_to_write()

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Close the record."""
        self.record.finish()
        self._write()
        self._release()

    @hook_impl
    def on_pipeline_error(self, error: BaseException) -> None:
        """Close the record of a run that failed, or that was stopped from outside, of which the command tells."""
        if self._ours and self.record.end is None:
            ended = {each["node"] for each in self.record.nodes}
            self.record.failed_at = next((name for name in self._started if name not in ended), "")
            self.record.decision = ""
            self.record.finish(error)
            self._try_to_write()
        self._release()

    def _claim(self, run_id: str, *, resumed: bool) -> None:
        """Hold the folder of the run, by which others see that this process lives."""
        if "://" in self._root:
            return
        folder = Path(self._root, "runs", run_id)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        there = f"run {run_id} is still running: wait for it, or end its process first"
        self._lock(
            folder / LOCK,
            AnmiError(there if resumed else "another run began in this millisecond: run again"),
        )

    def _lock(self, path: Path, held: AnmiError) -> None:
        lock = FileLock(path, thread_local=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise held from None
        self._locks.append(lock)

    def _refuse_changes(self, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Refuse to go on under other parameters or files than a run began with; its code may have been mended."""
        record = self.record
        began = before.get("made_from", {})
        files = {
            name: asked[name]
            for name in asked.keys() & began.keys()
            if name.endswith(versions.FILES)
        }
        old = flatten(before["parameters"]) | {name: began[name] for name in files}
        new = flatten(all_masked(record.parameters)) | files
        for name in sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
            place = name.removesuffix(versions.FILES)
            told = (
                f'the parameter "{name}" was {old.get(name)!r} and is {new.get(name)!r} now: set it'
                " back"
            )
            if name in files:
                told = (
                    f"the files of {place}={asked.get(place)} are not those that it began with: put"
                    " them back"
                )
            raise AnmiError(f"run {record.run_id} cannot go on, since {told}, or begin another run")
        if before["git"] != record.git:
            logger.warning("The code has changed since run %s began", record.run_id)

    def _note_unrecorded(self, finished: list[Node]) -> None:
        """Note what nodes saved whose run was killed before it wrote so."""
        for name in sorted({name for node in finished for name in node.outputs}):
            dataset = self._versioned(name)
            if dataset is not None and not self.record.saved.get(name, {}).get("digest"):
                version = str(dataset.resolve_save_version())
                self.record.saved[name] = {"version": version, **measured(dataset.local_copy())}

    @staticmethod
    def _lacking(pipeline: Pipeline, catalog: CatalogProtocol) -> list[Node]:
        """Return the nodes that Kedro runs for missing outputs; one in memory is made for those that read it."""
        lacking: list[Node] = []
        read: set[str] = set()
        for node in reversed(pipeline.nodes):
            is_missing = [
                name in read if catalog.get(name)._EPHEMERAL else not catalog.exists(name)
                for name in node.outputs
            ]
            if any(is_missing) or not is_missing:
                lacking.append(node)
                read |= set(node.inputs)
        return lacking[::-1]

    def _versioned(self, name: str) -> Any:
        if self._catalog is None or name.startswith("params:") or name == "parameters":
            return None
        dataset = self._catalog.get(name)
        return dataset if getattr(dataset, "_version", None) else None

    def _stop(self, node: Node) -> None:
        entry: dict[str, Any] = {
            "node": node.name,
            "stage": node.namespace or "",
            "end": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "seconds": round(time.perf_counter() - self._started[node.name], 3),
            "peak_mib": round(peak_mib()),
        }
        self.record.nodes = [
            *(each for each in self.record.nodes if each["node"] != node.name),
            entry,
        ]
        place = f"{sum(each['node'] in self._started for each in self.record.nodes)}/{self._total}"
        logger.info(
            "%5s  %-32s %7.1f s %6d MiB", place, node.name, entry["seconds"], entry["peak_mib"]
        )

    def _write(self) -> None:
        self.record.updated = now()
        buckets.write_text(f"{self._root}/runs/{self.record.run_id}/{FILE}", self.record.as_text())
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
        self._ours = False
        while self._locks:
            self._locks.pop().release()


def peak_mib() -> float:
    """Return the largest resident memory of this process in MiB, since the last reset where that is possible."""
    with suppress(OSError):
        if found := re.search(
            r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii")
        ):
            return int(found[1]) / 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)
