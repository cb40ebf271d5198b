"""What Kedro asks a project for: hooks, and how to read ``conf/``."""

from kedro.config import OmegaConfigLoader
from omegaconf.resolvers import oc

import anmi.environment  # noqa: F401
from anmi.hooks import CheckHooks, MlflowHooks, RunHooks

# Pluggy calls hooks last registered first: checks run before a record or an MLflow run is opened,
# and the record is complete when tracking reads it.
_run_hooks = RunHooks()
HOOKS = (MlflowHooks(_run_hooks), _run_hooks, CheckHooks())
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-mlflow",)

CONFIG_LOADER_CLASS = OmegaConfigLoader
CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    # A test or production file overrides the keys it names, not the whole branch.
    "merge_strategy": {"parameters": "soft", "globals": "soft", "mlflow": "soft"},
    "config_patterns": {
        "parameters": ["parameters*", "parameters*/**", "recipes*"],
        "mlflow": ["mlflow*", "mlflow*/**"],
    },
    # Kedro allows environment variables in credentials only; paths need them as well.
    "custom_resolvers": {"oc.env": oc.env},
}
