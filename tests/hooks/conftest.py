"""An empty tracking database, which takes MLflow seconds to make, and projects with and without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commands import Commands
from tests.hooks.selecting import Selecting, write_selecting


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty tracking database."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("database") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def tracked(tmp_path: Path, database: Path, commands: Commands) -> Selecting:
    """A project with a tracking database in it."""
    return write_selecting(tmp_path, commands, database)
