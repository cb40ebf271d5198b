"""ANMI: hard and clean negatives for training retrievers."""

import os
import sys

__version__ = "0.1.0"

# Libraries read these when they are imported. Telemetry stays silent (MLflow takes only `true`,
# Kedro takes 1), and so does MLflow's start; an unreachable server is noticed in seconds, where the
# default is minutes. Tokenizers use all cores and do not warn at every fork, local models load
# without waiting for a hub (unless ANMI_ONLINE allows it), and there are no progress bars where
# nobody watches.
for _name, _value in {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "TOKENIZERS_PARALLELISM": "true",
    **({} if os.environ.get("ANMI_ONLINE") else {"HF_HUB_OFFLINE": "1"}),
    **({} if sys.stderr.isatty() or "ipykernel" in sys.modules else {"TQDM_DISABLE": "1"}),
}.items():
    os.environ.setdefault(_name, _value)
