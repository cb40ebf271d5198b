"""The rebuilt house against the one before it: what a slot costs on disk, what is mined, how long the tests take.

Four collections are mined by the code of an earlier commit and by the code that is checked out, one after the other on
one machine. Every column of every candidate and every training row is compared by value and by type; the column that
was renamed is compared under its new name. Bytes are those of all artifacts that hold candidates or columns of them.
Run from the repository's root, with the real collections beside it:

    python benchmarks/house.py --before 5e6b744
    python benchmarks/house.py --tests        # runs `make test` besides, on an idle machine
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "house.json"
DATA = Path(os.environ.get("ANMI_DATA", ROOT.parent / "shared" / "data"))
WORK = ROOT / "build" / "house"
# Recipes that read everything, so that no source is left out.
COLLECTIONS = {
    "api_docs": "collection=api_docs,recipe=anmi",
    "scifact": f"collection=beir:{DATA}/scifact,recipe=anmi_2_1,ingestion.max_queries=150",
    "webnlg": f"collection=kg:{DATA}/kg_webnlg/beir_en,recipe=anmi_2_0,ingestion.max_queries=200",
    "medquad": f"collection=beir:{DATA}/medquad,recipe=clean_top,ingestion.max_queries=200",
}
RENAMED = {"kin": "related"}
BLOCKS = (
    "bm25_candidates", "candidates", "evidence_candidates", "judged_candidates", "rated_candidates", "consistency",
    "evidence", "judgments", "ratings", "selection",
)  # fmt: skip


def mine(source: Path, place: Path) -> dict[str, float]:
    """Mine the collections with the code in ``source``; return seconds by collection."""
    seconds = {}
    for name, settings in COLLECTIONS.items():
        shutil.rmtree(place / name, ignore_errors=True)
        environment = os.environ | {
            "ANMI_DATA_ROOT": str(place / name), "ANMI_STORE": str(place / "store"),
            "PYTHONPATH": str(source / "src"), "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1",
        }  # fmt: skip
        kedro = str(Path(sys.executable).with_name("kedro"))
        command = [kedro, "run", "--env", "test", "--pipelines", "mining", "--params", settings]
        started = time.monotonic()
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} could not be mined in {source}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        seconds[name] = round(time.monotonic() - started, 1)
        print(f"{source.name}: {name} in {seconds[name]} s", flush=True)
    return seconds


def newest(place: Path, artifact: str) -> Path | None:
    """Return the newest version of an artifact in a data root; None where there is none."""
    return max(place.glob(f"*/{artifact}/*/{artifact}"), default=None)


def equal(before: Path, now: Path) -> bool:
    """Say whether selection and training rows hold the same, up to the names that changed."""
    from anmi.candidates import CandidateShards

    found = []
    for place in (before, now):
        folder = newest(place, "selection")
        assert folder is not None
        found.append(CandidateShards.read(sorted(folder.glob("part-*.parquet"))).whole())
    tables = [block.to_table() for block in found]
    names = [RENAMED.get(name.removeprefix("c."), name.removeprefix("c.")) for name in tables[0].column_names]
    if names != [name.removeprefix("c.") for name in tables[1].column_names] or found[0].rules != found[1].rules:
        return False
    columns = zip(tables[0].columns, tables[1].columns, strict=True)
    same = all(_same(one.combine_chunks(), other.combine_chunks()) for one, other in columns)
    rows = [newest(place, "training_rows.parquet") for place in (before, now)]
    return same and rows[0] is not None and rows[1] is not None and rows[0].read_bytes() == rows[1].read_bytes()


def _same(one: Any, other: Any) -> bool:
    """Compare two Arrow columns; NaN equals NaN."""
    if one.type != other.type:
        return False
    if hasattr(one, "flatten") and not one.value_lengths().equals(other.value_lengths()):
        return False
    values = [each.flatten() if hasattr(each, "flatten") else each for each in (one, other)]
    numbers = [value.to_numpy(zero_copy_only=False) for value in values]
    floats = numbers[0].dtype.kind == "f"
    return bool(np.array_equal(*numbers, equal_nan=True) if floats else np.array_equal(*numbers))


def bytes_per_slot(place: Path) -> float:
    """Return the bytes of all artifacts of candidates for each slot of a candidate that retrieval found."""
    from anmi.candidates import CandidateShards

    size = 0
    for artifact in BLOCKS:
        folder = newest(place, artifact)
        size += sum(file.stat().st_size for file in folder.glob("part-*.parquet")) if folder else 0
    folder = newest(place, "candidates")
    assert folder is not None
    blocks = CandidateShards.read(sorted(folder.glob("part-*.parquet"))).only()
    return round(size / sum(int(block.filled.sum()) for block in blocks), 1)


def lines(pattern: str, source: Path) -> int:
    """Count the lines of files below a folder."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in source.glob(pattern))


def main() -> None:
    """Measure, and write the result beside this script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="5e6b744", help="commit of the house as it was")
    parser.add_argument("--tests", action="store_true", help="run `make test` and note its seconds")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def note(case: str, value: Any, unit: str, text: str) -> None:
        rows.append({"case": case, "value": value, "unit": unit, "note": text})
        print(f"{case}: {value} {unit}", flush=True)

    note("src_lines", lines("src/**/*.py", ROOT), "lines", "of Python in src; 47,642 before, 40,000 wanted")
    note("catalog_lines", lines("conf/base/catalog*.yml", ROOT), "lines", "conf/base/catalog*.yml; 811 before")
    if given.tests:
        started = time.monotonic()
        done = subprocess.run(["make", "test"], cwd=ROOT, check=False)
        note("make_test_seconds", round(time.monotonic() - started), "s", f"`make test`, exit code {done.returncode}")
    elif RESULT.exists():
        rows += [row for row in json.loads(RESULT.read_text())["rows"] if row["case"] == "make_test_seconds"]
    earlier = WORK / "earlier"
    if not earlier.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(earlier), given.before], cwd=ROOT, check=True)
    seconds = {name: mine(source, WORK / name) for name, source in (("before", earlier), ("now", ROOT))}
    same = {name: equal(WORK / "before" / name, WORK / "now" / name) for name in COLLECTIONS}
    recipes = ", ".join(f"{name} {'equal' if same[name] else 'DIFFERENT'}" for name in COLLECTIONS)
    text = f"selection by value, training_rows byte for byte, against {given.before}: {recipes}"
    note("reproduced_equal", sum(same.values()), "of 4 collections", text)
    slots = {name: [bytes_per_slot(WORK / when / name) for when in ("before", "now")] for name in COLLECTIONS}
    text = "all artifacts of candidates, mean of four collections; before: "
    note("bytes_per_slot", round(float(np.mean([now for _, now in slots.values()])), 1), "B",
         text + f"{np.mean([before for before, _ in slots.values()]):.1f} B")  # fmt: skip
    for name, (before, now) in slots.items():
        note(f"bytes_per_slot_{name}", now, "B", f"{before} B before; {COLLECTIONS[name].split(',')[1]}")
        note(f"mining_seconds_{name}", seconds["now"][name], "s", f"{seconds['before'][name]} s before")
    packages = ("anmi", "kedro", "numpy", "pyarrow", "torch")
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "system": platform.system()}
    result = {
        "machine": machine,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rows": rows,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
