"""Two runs at once in one data root: whether each mines what it would have mined alone, byte for byte.

Mining of SciFact with the static encoder is started with `nv_retriever`, and a second later with `naive_top` and other
depths, in one fresh data root with one store; then each alone. Run from the repository's root:

    python benchmarks/right/two_runs.py
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECIPES = {"nv_retriever": "", "naive_top": ",bm25.depth=60,dense.depth=30"}
READ_BY_TRAINING = {"selection": "selection", "training_rows": "training_rows.parquet"}
LATER = 1.0


def two_runs_equal_alone(collection: Path = ROOT.parent / "shared" / "data" / "scifact") -> list[dict[str, Any]]:
    """Return whether all is equal, then of each recipe and artifact, and how many seconds both ran at once.

    Parameters
    ----------
    collection
        Folder in the format of BEIR.

    Returns
    -------
    list of dict
        ``case, value, unit, note``.
    """
    with tempfile.TemporaryDirectory(prefix="anmi-two-runs-") as folder:
        both, alone = Path(folder, "both"), {recipe: Path(folder, recipe) for recipe in RECIPES}
        for place in (both, *alone.values()):
            for model in (ROOT / "data" / "store" / "models").glob("static-*"):
                shutil.copytree(model, place / "store" / "models" / model.name)
        going = []
        for recipe in RECIPES:
            going.append(_start(both, recipe, collection))
            time.sleep(LATER)
        codes = [process.wait() for process in going]
        for recipe, place in alone.items():
            codes.append(_start(place, recipe, collection).wait())
        if any(codes):
            note = f"exit codes {codes}: both at once, then each alone"
            return [{"case": "two_runs_equal_alone", "value": False, "unit": "", "note": note}]
        rows = []
        for recipe, place in alone.items():
            (single,) = _runs(place)
            (shared,) = [run for run in _runs(both) if run["parameters"]["recipe"] == recipe]
            for name, file in READ_BY_TRAINING.items():
                equal = _digest(both, file, shared) == _digest(place, file, single)
                note = f"{name}: the bytes of a run among two are those of the run alone"
                rows.append({"case": f"{recipe}_{name}_equal_alone", "value": equal, "unit": "", "note": note})
            own = not shared["loaded"]
            note = "all that it read it had saved"
            rows.append({"case": f"{recipe}_loaded_its_own", "value": own, "unit": "", "note": note})
        note = f"SciFact, static encoder, {' and '.join(RECIPES)} started {LATER:g} s apart in one fresh data root"
        whole = {"case": "two_runs_equal_alone", "value": all(row["value"] for row in rows), "unit": "", "note": note}
        return [whole, *rows]


def _start(place: Path, recipe: str, collection: Path) -> subprocess.Popen[bytes]:
    parameters = f"collection=beir:{collection},encoder=static,recipe={recipe}{RECIPES[recipe]}"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW", "ANMI", "KEDRO"))}
    return subprocess.Popen(
        [Path(sys.executable).with_name("kedro"), "run", "--pipelines", "mining", "--params", parameters],
        cwd=ROOT,
        env={**inherited, "ANMI_DATA_ROOT": str(place / "data"), "ANMI_STORE": str(place / "store")},
        stdout=subprocess.DEVNULL,
    )


def _runs(place: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in place.glob("data/runs/*/run.json")]


def _digest(place: Path, file: str, run: dict[str, Any]) -> str:
    """Return a hash of all files of an artifact, with their names."""
    folder = place / "data" / "selection" / file / run["run_id"]
    state = hashlib.blake2b()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        state.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode() + content)
    return state.hexdigest()


if __name__ == "__main__":
    print(json.dumps(two_runs_equal_alone(), indent=2))
