"""What happens around a run: checks, the versions that it loads, its record, and MLflow."""

from anmi.hooks.checks import CheckHooks
from anmi.hooks.mlflow import MlflowHooks
from anmi.hooks.run import RunHooks

__all__ = ["CheckHooks", "MlflowHooks", "RunHooks"]
