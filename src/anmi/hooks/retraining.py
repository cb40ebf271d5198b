# mypy: allow-untyped-decorators
"""Around the pipeline ``retrain``: one at a time, the registry for its nodes, and how it ended as an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline

from anmi.errors import AnmiError
from anmi.hooks.mlflow import tracked_at
from anmi.hooks.record import RunRecord

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
    """Keep two retrainings over one store from running at once, and give the nodes the registry.

    Of retrainings on several machines the one that ends last finds that the champion is not the one it compared with,
    and promotes nothing.

    Parameters
    ----------
    record
        Of the run.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._context: KedroContext | None = None
        self._lock: FileLock | None = None
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
        """Take the lock, and connect the registry.

        Raises
        ------
        AlreadyRetraining
            Another process has the lock.
        AnmiError
            Tracking is switched off, so there is no registry.
        """
        if "model_registry" not in pipeline.inputs():
            return
        from anmi.datasets.model_registry import ModelRegistry

        assert self._context is not None
        if not (uri := tracked_at(self._context)):
            raise AnmiError(
                "retraining needs the model registry, and tracking is switched off: set `enabled: true` in mlflow.yml"
            )
        self._watched = PIPELINE in (run_params.get("pipeline_names") or ())
        if self._watched:
            path = Path(catalog.get("store")._describe()["filepath"]) / LOCK
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path, thread_local=False)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                raise AlreadyRetraining(
                    f"another retraining is under way: {path} is locked; wait for it to end, or end it"
                ) from None
        registry = ModelRegistry(uri, self._record.tracking_run)
        catalog.get("model_registry").connect(registry)

    @hook_impl
    def after_dataset_saved(self, dataset_name: str, data: Any) -> None:
        """Remember the decision."""
        if self._watched and dataset_name == "registration":
            self.decision = data["decision"]

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Let the next one in."""
        self._release()

    @hook_impl
    def on_pipeline_error(self, error: Exception) -> None:
        """Let the next one in."""
        self.interrupted(error)

    def interrupted(self, error: BaseException) -> None:
        """Let the next one in, also when a run is stopped from outside and Kedro calls no hook."""
        self.decision = None
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
