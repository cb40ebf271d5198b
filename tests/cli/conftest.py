"""The project's own commands and catalog, with a data root and a store of a test's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project

from anmi.candidates import NEGATIVE, Candidates

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


def selection() -> Candidates:
    """A query of two positives, and one that was dropped."""
    block = Candidates(
        query_ids=np.array(["q-alpha", "q-beta"]),
        positives=np.array([[0, 5], [1, -1]], np.int32),
        documents=np.array([[1, 2, 3], [2, 0, -1]], np.int32),
        source=np.array([[3, 1, 2], [8, 1, 0]], np.uint8),
        columns={"bm25": np.array([[9.5, 8, 0.125], [1, 2, np.nan]], np.float32)},
        positive_columns={"bm25": np.array([[10, 4], [3, np.nan]], np.float32)},
        query_columns={"positive_rank": np.array([1, 40], np.float32)},
    )
    first = np.array([[True, False, False], [False] * 3])
    block = block.rejected("max_ratio", first, "bm25 ≥ 0.9 of the positive's", "unsafe")
    taken = np.array([[False, False, True], [False] * 3])
    block = block.with_columns({"choice": np.where(taken, 1, np.nan)})
    block = replace(block, verdict=np.where(taken, np.int16(NEGATIVE), block.verdict))
    return block.dropped(
        "consistency", np.array([False, True]), "BM25 does not find a positive near the top"
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which data and store lie."""
    at_home(monkeypatch, tmp_path)
    return tmp_path
