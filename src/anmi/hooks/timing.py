# mypy: allow-untyped-decorators
"""How long each node took and how much memory it needed."""

from __future__ import annotations

import logging
import time
from typing import Any

from kedro.framework.hooks import hook_impl
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi.runs.memory import peak_mib, reset_peak
from anmi.runs.record import RunRecord

logger = logging.getLogger(__name__)


class TimingHooks:
    """Measure every node from its first input to its last output and log one line for it.

    Blocks of candidates are made while they are saved, so the time of the function alone would say little.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._started: dict[str, float] = {}
        self._open_outputs: dict[str, set[str]] = {}
        self._total = 0

    @hook_impl
    def before_pipeline_run(self, pipeline: Pipeline) -> None:
        """Count the nodes."""
        self._started.clear()
        self._open_outputs.clear()
        self._total = len(pipeline.nodes)

    @hook_impl
    def before_dataset_loaded(self, dataset_name: str, node: Node) -> None:
        """Start the clock at the first input."""
        self._start(node)

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
    def after_dataset_saved(self, dataset_name: str, node: Node) -> None:
        """Stop the clock at the last output."""
        remaining = self._open_outputs.setdefault(node.name, set(node.outputs))
        remaining.discard(dataset_name)
        if not remaining:
            self._stop(node)

    def _start(self, node: Node) -> None:
        if node.name not in self._started:
            self._started[node.name] = time.perf_counter()
            reset_peak()

    def _stop(self, node: Node) -> None:
        started = self._started.get(node.name)
        if started is None or any(entry["node"] == node.name for entry in self._record.nodes):
            return
        entry: dict[str, Any] = {
            "node": node.name,
            "seconds": round(time.perf_counter() - started, 3),
            "peak_mib": round(peak_mib()),
        }
        self._record.nodes.append(entry)
        # The record also has the nodes of earlier tasks of the same run.
        done = sum(entry["node"] in self._started for entry in self._record.nodes)
        place = f"{done}/{self._total - len(self._record.taken_over)}"
        logger.info("%5s  %-32s %7.1f s %6d MiB", place, node.name, entry["seconds"], entry["peak_mib"])
