"""Registries of a real MLflow: a database, and a server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import serving_mlflow


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a database; making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('registry')}/mlflow.db"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that keeps the files of models itself."""
    with serving_mlflow(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="session")
def open_registry() -> Callable[[str], Any]:
    """Open a registry with a run of its own."""

    def opened(uri: str) -> Any:
        from mlflow import MlflowClient

        from anmi.datasets.model_registry import ModelRegistry

        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("tests")
        if experiment is None:
            database = Path(uri.removeprefix("sqlite:///"))
            files = (database.parent / "files").as_uri() if uri.startswith("sqlite") else None
            client.create_experiment("tests", artifact_location=files)
            experiment = client.get_experiment_by_name("tests")
        return ModelRegistry(uri, client.create_run(experiment.experiment_id).info.run_id)

    return opened


@pytest.fixture
def registry(database: str, open_registry: Callable[[str], Any]) -> Any:
    """A registry in the database."""
    return open_registry(database)


@pytest.fixture(scope="session")
def new_folder(word_encoder: Callable[..., Any]) -> Callable[..., Path]:
    """Write a small model as it is registered."""

    def make(path: Path, seed: int = 0, profile: dict[str, Any] | None = None) -> Path:
        from anmi.datasets.model_registry import model_folder

        model = word_encoder(["night", "day"], seed=seed)
        return model_folder(model, path, {"prompt_query": "", "max_length": None}, profile)

    return make
