"""Environment variables of the project's commands, set on import, before libraries read them.

What the user has set stays, and in a script of the user's, which does not import this, nothing is
set.
"""

import os
import sys

# Telemetry stays silent (MLflow takes only `true`, Kedro takes 1), and so does MLflow's start; an
# unreachable server is noticed in seconds, where the default is minutes. Tokenizers use all cores
# and do not warn at every fork, local models load without waiting for a hub (unless ANMI_ONLINE
# allows it), and there are no progress bars where nobody watches.
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
