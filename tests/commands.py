"""``kedro`` from a process that has imported everything: a start takes a fork instead of ten seconds."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# The child leaves the loop and ends as any process does. What is imported starts no thread, or a
# fork would lack it.
_SERVER: Final = """
import gc, json, os, signal, sys
before = set(os.environ)
import faiss, mlflow.store.tracking.sqlalchemy_store, pyarrow.parquet, sentence_transformers, sklearn.metrics, torch
import kedro.framework.cli.project, kedro.framework.session
import anmi.cli, anmi.pipeline_registry, anmi.settings
from kedro.framework.cli.cli import main

# What the package sets for libraries when it is imported.
own = {name: value for name, value in os.environ.items() if name not in before}
gc.freeze()
for line in sys.stdin:
    words, folder, variables, seconds, streams = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        os.setsid()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(own | variables)
        for number, name in enumerate([os.devnull, *streams]):
            os.dup2(os.open(name, os.O_RDWR), number)
        sys.argv = ["kedro", *words]
        main()
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Commands:
    """Runs each command in a process of its own, one after the other."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], folder: Path, variables: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Do what ``kedro`` with these words does in a folder; the variables are its whole environment."""
        server = self._running(variables)
        assert server.stdin is not None
        assert server.stdout is not None
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            asked = [list(words), str(folder), dict(variables), int(timeout), [out.name, err.name]]
            server.stdin.write(json.dumps(asked) + "\n")
            server.stdin.flush()
            code = server.stdout.readline()
            assert code, "the process that runs commands has ended"
            said = [Path(file.name).read_text(encoding="utf-8") for file in (out, err)]
        return subprocess.CompletedProcess(["kedro", *words], int(code), *said)

    def _running(self, variables: Mapping[str, str]) -> subprocess.Popen[str]:
        if self._server is None:
            # Here, since Kedro reads the configuration of logging when it is imported.
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                cwd=Path(__file__).parents[1],
                env=dict(variables),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._server

    def close(self) -> None:
        """End the process."""
        if self._server is not None:
            self._server.communicate()


def environment(**variables: str) -> dict[str, str]:
    """Return the environment without what names places and servers of ours, and these variables."""
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("MLFLOW", "ANMI", "KEDRO", "AWS"))
    }
    return {**inherited, "COLUMNS": "200", **variables}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(*words: str, port: int, log: Path, **variables: str) -> Iterator[str]:
    """Run a module of Python's that serves, and give its address; what it prints goes to a file."""
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env=environment(**variables),
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, log.read_text()
                time.sleep(0.25)
            yield f"http://127.0.0.1:{port}"
        finally:
            # Asked to end, MLflow's takes many seconds to, and nothing of it is needed any more.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)


@contextmanager
def serving_mlflow(folder: Path, *words: str, **variables: str) -> Iterator[str]:
    """Serve MLflow's tracking and registry with what it keeps in a folder: ``files`` and a log."""
    port = free_port()
    words = ("mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers=1", *words)
    places = (
        f"--backend-store-uri=sqlite:///{folder}/mlflow.db",
        f"--artifacts-destination={folder}/files",
    )
    with serving(*words, *places, port=port, log=folder / "log", **variables) as address:
        yield address
