"""``kedro anmi store prune``, on the store that the project's own catalog names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.cli.conftest import anmi

from anmi.store import Store


def test_what_is_old_enough_goes_and_without_a_store_none_is_made(project: Path) -> None:
    folder = project / "store"
    done = anmi("store", "prune", "--older-than", "3")
    assert done.exit_code == 1
    assert done.stderr == f"Error: there is no store in {folder} yet: `kedro run` makes it, or set ANMI_STORE\n"
    assert not folder.exists()
    with Store(folder) as store:
        store.vectors("model", ["a", "b"], lambda part: np.ones((len(part), 96)))
    for days, removed, left in ((1, 0, 2), (0, 1, 0)):
        done = anmi("store", "prune", "--older-than", str(days))
        assert done.exit_code == 0, done.output
        assert f"values of {removed} fingerprints" in done.output
        with Store(folder) as store:
            assert len(store) == left
