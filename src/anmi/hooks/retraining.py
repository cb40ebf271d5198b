# mypy: allow-untyped-decorators
"""Around the pipeline ``retrain``: one at a time, the registry for its nodes, and how it ended as an exit code."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from anmi.errors import AnmiError
from anmi.hooks.claim import Claim, describe
from anmi.locks import Lock, process
from anmi.runs.record import RunRecord, data_root, now
from anmi.runs.tracking import read_settings, tracking_uri

logger = logging.getLogger(__name__)

PIPELINE: Final = "retrain"
# How ``kedro run --pipelines retrain`` ends. Anything else that ends it is the shell's: 130 after Ctrl-C, 143 after
# SIGTERM, 137 after SIGKILL.
EXIT_CODES: Final = {"promoted": 0, "failed": 1, "kept": 10, "refused": 11}
EXIT_HELP: Final = (
    "\b\nExit codes of --pipelines retrain:\n"
    f"  {EXIT_CODES['promoted']}   the challenger was promoted to champion\n"
    f"  {EXIT_CODES['kept']}  the champion was kept; `kedro anmi champion` says why\n"
    f"  {EXIT_CODES['refused']}  another retraining is under way\n"
    f"  {EXIT_CODES['failed']}   an error; the champion is the one before"
)
LOCK: Final = "retrain.lock"


class AlreadyRetraining(AnmiError):
    """Another retraining is under way."""


class RetrainHooks:
    """Keep two retrainings from running at once, on one machine and on several.

    Registered before the hooks that open the manifest and the tracking run, so it is called after them: a claim names
    the MLflow run, and whoever is refused is in the books.

    Parameters
    ----------
    record
        Of the run.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._context: KedroContext | None = None
        self._lock: Lock | None = None
        self._claim: Claim | None = None
        self._watched = False
        self.decision: str | None = None

    @property
    def exit_code(self) -> int:
        """How the last run of ``retrain`` that came to its end ended; 0 for any other pipeline."""
        return EXIT_CODES[self.decision] if self.decision is not None else 0

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Forget the run before."""
        self._context, self.decision, self._watched = context, None, False

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Pipeline, catalog: CatalogProtocol) -> None:
        """Give the nodes the registry; take the lock and the claim.

        Raises
        ------
        AlreadyRetraining
            Another process has them.
        AnmiError
            Tracking is switched off, so there is no registry.
        """
        if "model_registry" not in pipeline.inputs():
            return
        from anmi.datasets.model_registry import ModelRegistry

        assert self._context is not None
        settings = read_settings(self._context)
        if not settings.enabled:
            raise AnmiError(
                "retraining needs the model registry, and tracking is switched off: set `enabled: true` in mlflow.yml"
            )
        registry = ModelRegistry(tracking_uri(settings, data_root(self._context)), self._record.tracking_run)
        self._watched = PIPELINE in (run_params.get("pipeline_names") or ())
        if self._watched:
            self._take(registry, catalog)
        catalog.get("model_registry").connect(registry)

    def _take(self, registry: Any, catalog: CatalogProtocol) -> None:
        from anmi.pipelines.retrain.params import model_name

        params = catalog.load("params:retrain")
        name = model_name(params, catalog.load("params:collection"))
        mine = process()
        holder = {
            "model": name, "host": mine["host"], "pid": mine["pid"], "run_id": self._record.run_id, "since": now(),
            "mlflow_run": registry.run, "process": mine,
        }  # fmt: skip
        path = Path(catalog.get("store")._describe()["filepath"]) / LOCK
        self._lock, self._claim = Lock(path), Claim(registry, name, params.claim_minutes)
        try:
            other = self._lock.take(holder)
            where = f"{path} is locked"
            if other is None:
                other = self._claim.take(holder)
                where = f'"{name}" is claimed in the model registry'
        except BaseException:
            self._release()
            raise
        if other is not None:
            self._release()
            raise AlreadyRetraining(
                f"another retraining is under way ({describe(other)}): {where}; wait for it to end, or end it"
            )

    @hook_impl
    def before_node_run(self, node: Node) -> None:
        """Make sure that the claim is still ours before the registry is changed."""
        if node.short_name == "register_challenger" and self._claim is not None and not self._claim.is_held():
            raise AlreadyRetraining(
                "another retraining took the claim on the registered model while this one ran, so nothing is promoted: "
                "let the scheduler run one at a time, and give retrain.claim_minutes more time than a retraining takes"
            )

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Remember the decision."""
        if self._watched and dataset_name == "registration":
            self.decision = data["decision"]

    @hook_impl
    def after_pipeline_run(self, pipeline: Pipeline) -> None:
        """Let the next one in."""
        self._release()

    @hook_impl
    def on_pipeline_error(self, error: Exception, pipeline: Pipeline) -> None:
        """Let the next one in."""
        self.decision = None
        self._release()

    def interrupted(self, error: BaseException) -> None:
        """Let the next one in; Kedro calls no hook when a run is stopped from outside."""
        self._release()

    def _release(self) -> None:
        # The claim first: who holds the lock next would find it.
        if self._claim is not None:
            self._claim.release()
        if self._lock is not None:
            self._lock.release()
        self._lock = self._claim = None
