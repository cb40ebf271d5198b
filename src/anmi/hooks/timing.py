# mypy: allow-untyped-decorators
"""How long each node took, over how much, with how much memory, and how much the store saved it."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi.runs.memory import peak_mib, reset_peak
from anmi.runs.record import RunRecord

logger = logging.getLogger(__name__)

# The dataset by which a node is given what its predecessors took.
NODE_TIMES: Final = "node_times"


class TimingHooks:
    """Measure every node from its first input to its last output and log one line for it.

    Blocks of candidates are made while they are saved, so the time of the function alone would say little. A node
    that reads ``node_times`` is given the entries of all that ended before it. An entry has ``node, seconds,
    peak_mib``, and its ``stage``; where results have rows, those of the first (``rows``) and its name (``of``); where
    the store was asked for values, how many different ones (``asked``) and how many it had (``found``).
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._started: dict[str, float] = {}
        self._open_outputs: dict[str, set[str]] = {}
        self._rows: dict[str, dict[str, int]] = {}
        # By node: the store it works with, and how many values had been asked of it, and found, before.
        self._asked: dict[str, tuple[Any, int, int]] = {}
        self._catalog: CatalogProtocol | None = None
        self._total = 0

    @hook_impl
    def before_pipeline_run(self, pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Count the nodes."""
        for noted in (self._started, self._open_outputs, self._rows, self._asked):
            noted.clear()
        self._catalog = catalog
        self._total = len(pipeline.nodes)

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Let go of the catalog, which holds the store open; hooks live as long as the process."""
        self._catalog = None

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Let go of the catalog."""
        self._catalog = None
        self._asked.clear()

    @hook_impl
    def before_dataset_loaded(self, dataset_name: str, node: Node) -> None:
        """Start the clock at the first input."""
        self._start(node)

    @hook_impl
    def after_dataset_loaded(self, dataset_name: str, data: Any, node: Node) -> None:
        """Note how much the store had been asked before."""
        if dataset_name == "store":
            self._asked[node.name] = data, data.asked, data.found

    @hook_impl
    def before_node_run(self, node: Node) -> dict[str, Any] | None:
        """Start the clock of a node without inputs; give the entries so far to one that reads them."""
        self._start(node)
        return {NODE_TIMES: [dict(entry) for entry in self._record.nodes]} if NODE_TIMES in node.inputs else None

    @hook_impl
    def after_node_run(self, node: Node) -> None:
        """Stop the clock of a node without outputs."""
        if not node.outputs:
            self._stop(node)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, node: Node) -> None:
        """Stop the clock at the last output."""
        rows = getattr(self._catalog.get(dataset_name), "rows", None) if self._catalog is not None else None
        if rows is not None:
            self._rows.setdefault(node.name, {})[dataset_name] = rows
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
            "stage": node.namespace or "",
            "seconds": round(time.perf_counter() - started, 3),
            "peak_mib": round(peak_mib()),
        }
        rows = self._rows.pop(node.name, {})
        if rows:
            # A node gives its main result first; the longest may be one that it makes beside, as training does.
            entry["of"] = next(name for name in node.outputs if name in rows)
            entry["rows"] = rows[entry["of"]]
        if node.name in self._asked:
            store, asked, found = self._asked.pop(node.name)
            if store.asked > asked:
                entry |= {"asked": store.asked - asked, "found": store.found - found}
        self._record.nodes.append(entry)
        # The record also has the nodes of earlier tasks of the same run.
        done = sum(entry["node"] in self._started for entry in self._record.nodes)
        place = f"{done}/{self._total - len(self._record.taken_over)}"
        logger.info("%5s  %-32s %7.1f s %6d MiB", place, node.name, entry["seconds"], entry["peak_mib"])
