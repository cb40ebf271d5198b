"""What happens around a run: checks, its versions and record, MLflow, one retraining at a time."""

from anmi.hooks.checks import CheckHooks
from anmi.hooks.mlflow import MlflowHooks
from anmi.hooks.record import RunRecord
from anmi.hooks.retraining import RetrainHooks
from anmi.hooks.run import RunHooks

__all__ = ["CheckHooks", "MlflowHooks", "RetrainHooks", "RunHooks", "RunRecord"]
