"""Project settings, read by Kedro before anything else of the project.

Four environment variables get a default here, because the libraries read them when they are imported:

- ``DO_NOT_TRACK=1``: Kedro's telemetry stays silent (``.telemetry`` says so, too).
- ``MLFLOW_DISABLE_TELEMETRY=true``: MLflow's, too; it takes only ``true`` for ``DO_NOT_TRACK``, and Kedro takes ``1``.
- ``TOKENIZERS_PARALLELISM=false``: tokenizers otherwise warn at every fork.
- ``HF_HUB_OFFLINE=1``: without it every load of a local model waits for a hub that may not be reachable, and finding
  out takes as long as the time-outs. Set ``ANMI_ONLINE=1`` to allow downloads from the hub.

Where nobody watches there are no progress bars, which in a file are a hundred lines of nothing; ``TQDM_DISABLE=0``
brings them back.
"""

import atexit
import gc
import os
import sys

# Imports and tokenisers make millions of objects that stay. By default Python looks for garbage after every 700 new
# ones, and through all of them ever again, which takes seconds of every run; so this goes before the imports below.
gc.set_threshold(100_000, 50, 50)
# Python looks through them all when it ends, too, for a second or more, and the system takes everything back anyway.
atexit.register(gc.freeze)

from anmi.configuration import LOADER_ARGS, ConfigLoader  # noqa: E402
from anmi.hooks import CheckHooks, ManifestHooks, RetrainHooks, RunRecord, TimingHooks, TrackingHooks  # noqa: E402

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not os.environ.get("ANMI_ONLINE"):
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
if not (sys.stderr.isatty() or "ipykernel" in sys.modules or "TQDM_DISABLE" in os.environ):
    os.environ["TQDM_DISABLE"] = "1"
# Pluggy calls hooks last registered first: checks run before a manifest or a tracking run is opened, and the manifest
# is complete when tracking reads it. Whether another retraining is under way is asked last, with a run to name.
_record = RunRecord()
HOOKS = (RetrainHooks(_record), TrackingHooks(_record), ManifestHooks(_record), TimingHooks(_record), CheckHooks())
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-mlflow",)

CONFIG_LOADER_CLASS = ConfigLoader
CONFIG_LOADER_ARGS = LOADER_ARGS
