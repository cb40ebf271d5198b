"""``kedro anmi store prune``, on the store that the project's own catalog names."""

from __future__ import annotations

import re
from pathlib import Path

import lmdb
import numpy as np
import pytest
from click.testing import Result
from tests.cli.conftest import anmi

from anmi.store import Store


@pytest.fixture(autouse=True)
def folder(project: Path) -> Path:
    return project / "store"


def prune(days: int) -> Result:
    return anmi("store", "prune", "--older-than", str(days))


def test_without_a_store_none_is_made(folder: Path) -> None:
    done = prune(3)
    assert done.exit_code == 1
    assert done.stderr == f"Error: there is no store in {folder} yet: `kedro run` makes it, or set ANMI_STORE\n"
    assert not folder.exists()


def test_a_store_of_another_version_is_one_sentence(folder: Path) -> None:
    folder.mkdir()
    with lmdb.open(str(folder)) as database, database.begin(write=True) as transaction:
        transaction.put(b"format", b"anmi-store-1")
    done = prune(3)
    assert done.exit_code == 1
    assert re.fullmatch(r"Error: .*'anmi-store-1'.*'anmi-store-3': delete .*data\.mdb, .*\n", done.stderr)


def test_what_is_old_enough_goes(folder: Path) -> None:
    with Store(folder) as store:
        store.vectors("model", ["a", "b"], lambda part: np.ones((len(part), 96)))
    for days, removed, left in ((1, 0, 2), (0, 1, 0)):
        done = prune(days)
        assert done.exit_code == 0, done.output
        assert f"values of {removed} fingerprints" in done.output
        with Store(folder) as store:
            assert len(store) == left
