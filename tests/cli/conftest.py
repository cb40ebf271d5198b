"""The project's own commands and catalog, with a data root and a store of a test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project

ROOT = Path(__file__).parents[2]


def at_home(patch: pytest.MonkeyPatch, place: Path) -> None:
    """Go to the project, and let data and store lie in a folder."""
    patch.chdir(ROOT)
    patch.setenv("ANMI_DATA_ROOT", str(place / "data"))
    patch.setenv("ANMI_STORE", str(place / "store"))
    for name in ("MLFLOW_TRACKING_URI", "ANMI_ONLINE", "COLUMNS"):
        patch.delenv(name, raising=False)
    bootstrap_project(ROOT)


def anmi(*arguments: str) -> Result:
    """Run ``kedro anmi`` with arguments."""
    from anmi.cli import cli

    return CliRunner().invoke(cli, ["anmi", *arguments])


def save(**datasets: Any) -> None:
    """Save datasets as a run does."""
    with KedroSession.create(project_path=ROOT) as session:
        catalog: Any = session.load_context().catalog
        for name, data in datasets.items():
            catalog.save(name, data)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which data and store lie."""
    at_home(monkeypatch, tmp_path)
    return tmp_path
