"""Environment variables that the project's commands set before libraries read them."""

import os
import sys


def set_defaults() -> None:
    """Set what the user has not set; in a script of the user's nothing is set.

    Telemetry stays silent (MLflow takes only `true`, Kedro takes 1), and so does MLflow's start; an
    unreachable server is noticed in seconds, where the default is minutes. Tokenizers use all cores
    and do not warn at every fork, local models load without waiting for a hub (unless ANMI_ONLINE
    allows it), and there are no progress bars where nobody watches.
    """
    defaults = {
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
        "TOKENIZERS_PARALLELISM": "true",
    }
    if not os.environ.get("ANMI_ONLINE"):
        defaults["HF_HUB_OFFLINE"] = "1"
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        defaults["TQDM_DISABLE"] = "1"
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
