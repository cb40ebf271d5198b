"""How many of single flipped bits are noticed, in all that a run leaves: artifacts, record, search folder, store.

One bit at each of 30 places, spread evenly over the bytes of everything of a kind, is flipped and put back. What is
loaded must then end in a sentence, or, from the store, be computed again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = 30
KINDS: Final = (
    "training_rows", "candidates", "judgments", "selection", "document_embeddings", "bm25_index", "trained_model",
    "search_index", "training_summary", "queries",
)  # fmt: skip


def bit_flips_noticed() -> list[dict[str, Any]]:
    """Flip bits in what a small run left; return ``case, value, unit, note`` of all, then of each kind."""
    with tempfile.TemporaryDirectory(prefix="anmi-flips-") as folder:
        data, store = Path(folder, "data"), Path(folder, "store")
        os.environ |= {"ANMI_DATA_ROOT": str(data), "ANMI_STORE": str(store)}
        command = [Path(sys.executable).with_name("kedro"), "run", "--env", "test"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = _tried(data) | {"store": _of_store(Path(folder, "values"))}
    noticed, harmless = (sum(each[place] for each in found.values()) for place in (0, 1))
    tried = PLACES * len(found)
    note = f"single bits, {harmless} more read as before; the rest unnoticed; {PLACES} in each of {', '.join(found)}"
    rows = [{"case": "bit_flips_noticed", "value": noticed, "unit": f"of {tried}", "note": note}]
    return rows + [
        {"case": f"bit_flips_noticed_{kind}", "value": seen, "unit": f"of {PLACES}", "note": f"{same} read as before"}
        for kind, (seen, same) in found.items()
    ]


def _tried(data: Path) -> dict[str, tuple[int, int]]:
    from kedro.framework.session import KedroSession
    from kedro.framework.startup import bootstrap_project

    from anmi.errors import AnmiError, causes
    from anmi.hooks.record import Runs
    from anmi.search import HybridSearch

    bootstrap_project(ROOT)
    known = Runs(str(data))
    (run,) = known.all()
    with KedroSession.create(ROOT, env="test") as session:
        context = session.load_context()

        catalog = context.catalog

    def told(act: Callable[[], Any]) -> bool:
        try:
            act()
        except Exception as error:
            return any(isinstance(cause, AnmiError) for cause in causes(error))
        return False

    found = {}
    for name in KINDS:
        fresh = catalog.get(name)._copy()
        found[name] = sum(told(fresh._copy().load) for _ in _flipped(catalog.get(name).local_copy())), 0
    record = data / "runs" / run["run_id"] / "run.json"
    seen = same = 0
    for _ in _flipped(record):
        noticed = told(lambda: known.read(run["run_id"]))
        seen += noticed
        same += not noticed and {name: known.read(run["run_id"])[name] for name in run} == {**run}
    found["run.json"] = seen, same
    search = catalog.get("search_index").local_copy()
    travelled = data / "elsewhere"
    search.rename(travelled)
    seen = sum(told(lambda: HybridSearch.load(travelled)) for _ in _flipped(travelled))
    return found | {"search folder alone": (seen, 0)}


def _of_store(place: Path) -> tuple[int, int]:
    from anmi.errors import AnmiError
    from anmi.store import Store

    texts = [str(number) for number in range(1000)]
    vectors = np.random.default_rng(0).standard_normal((len(texts), 384), np.float32)

    def compute(asked: list[str]) -> np.ndarray:
        return vectors[[int(text) for text in asked]]

    with Store(place) as store:
        store.vectors("noise", texts, compute)
    seen = same = 0
    for _ in _flipped(place / "data.mdb"):
        try:
            with Store(place) as store:
                missing = store.missing("noise", texts)
                right = np.array_equal(store.vectors("noise", texts, compute), vectors)
            seen += right and missing > 0
            same += right and not missing
        except AnmiError:
            seen += 1
    return seen, same


def _flipped(place: Path) -> Iterator[None]:
    """Flip one bit at a time of a file, or of all files of a folder, and put it back."""
    files = [path for path in sorted([place, *place.rglob("*")]) if path.is_file()]
    ends = np.cumsum([path.stat().st_size for path in files])
    for turn in range(PLACES):
        offset = (2 * turn + 1) * int(ends[-1]) // (2 * PLACES)
        which = int(np.searchsorted(ends, offset, side="right"))
        path, offset = files[which], offset - int(ends[which - 1] if which else 0)
        data = bytearray(path.read_bytes())
        data[offset] ^= 1 << turn % 8
        path.write_bytes(data)
        yield
        data[offset] ^= 1 << turn % 8
        path.write_bytes(data)
