"""Nothing of the project phones home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import anmi.settings
from mlflow.telemetry.utils import is_telemetry_disabled
print(is_telemetry_disabled())
"""


def test_mlflow_sends_no_telemetry() -> None:
    # Under pytest and in CI MLflow is silent by itself.
    clean = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "True"
