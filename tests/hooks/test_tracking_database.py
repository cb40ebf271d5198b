from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anmi.datasets.model_registry import connect

MAKE = "import sys; from anmi.datasets.model_registry import connect; connect(sys.argv[1])"


@pytest.mark.rare
@pytest.mark.slow
def test_who_is_killed_while_the_tables_are_made_leaves_no_half_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "tracking"
    uri = f"sqlite:///{folder}/mlflow.db"
    with subprocess.Popen([sys.executable, "-c", MAKE, uri], stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        # Some tables are there, and not all of them: SQLite has written a few pages of the many.
        while not any(file.stat().st_size > 40_000 for file in folder.glob(".*/mlflow.db")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not (folder / "mlflow.db").exists()
    client = connect(uri)
    run = client.create_run(client.create_experiment("anmi"))
    client.log_param(run.info.run_id, "seed", 1)
    assert connect(uri).get_run(run.info.run_id).data.params == {"seed": "1"}
