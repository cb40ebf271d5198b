"""What a fingerprint of the ablation knows of the code: all that is reached, and nothing that changes no result."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import anmi
from anmi.pipelines.ablation import cells, mining
from anmi.pipelines.ablation import code as coded
from anmi.pipelines.ablation.code import code, reached

ROOT = Path(__file__).parents[2]
SOURCE = Path(anmi.__file__).parent
TRAINING = (cells.run_cell, cells.measure, cells.buckets)
SELECTION = (cells.select, cells._false_negatives)


def names(*roots: coded.Root) -> set[str]:
    return {path.relative_to(SOURCE).as_posix() for path in reached(*roots)}


def test_what_lists_by_hand_missed_is_there() -> None:
    training, selection, mined = names(*TRAINING), names(*SELECTION), names(*mining._ROOTS)
    assert {"ragged.py", "candidates/block.py", "seeds.py", "training/loop.py", "retrieval/encoders.py"} <= training
    assert "evaluation/static_tokens.py" in training | selection
    assert {"ragged.py", "selection/steps/filters.py"} <= selection
    assert {"ragged.py", "corpus/related.py", "judging/elo.py", "retrieval/bm25.py"} <= mined


def test_readers_that_are_named_by_texts_and_shipped_coefficients_are_there() -> None:
    mined = names(*mining._ROOTS)
    assert {"corpus/beir.py", "corpus/pairs.py", "corpus/kg.py", "corpus/api_docs.py"} <= mined
    assert "judging/fused_transfer.json" in mined


def test_what_only_shows_results_is_not() -> None:
    everything = names(*TRAINING, *SELECTION, *mining._ROOTS)
    rooms = {name.split("/")[0] for name in everything}
    assert not rooms & {"report", "hooks", "lineage", "datasets", "cli"}
    assert "pipelines/ablation/schedule.py" not in everything
    assert not any(name.startswith("training/") for name in names(*mining._ROOTS)), "a loss mines nothing"


@pytest.fixture
def copy_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """A copy that the fingerprint is taken of, and a way to change a file of it."""
    place = tmp_path / "anmi"
    shutil.copytree(SOURCE, place, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(coded, "_package", lambda: place)

    def change(name: str, old: str, new: str) -> None:
        text = (place / name).read_text(encoding="utf-8")
        assert old in text
        (place / name).write_text(text.replace(old, new, 1), encoding="utf-8")
        forget()

    def forget() -> None:
        coded._read.cache_clear()
        code.cache_clear()

    forget()
    yield change
    forget()


def test_code_that_is_reached_changes_the_fingerprint_and_comments_do_not(
    copy_of_the_package: Callable[[str, str, str], None],
) -> None:
    root = "anmi.pipelines.training"
    before = code(root)
    copy_of_the_package("ragged.py", '"""', '"""Said otherwise. ')
    copy_of_the_package("ragged.py", "import numpy as np\n", "import numpy as np  # a comment\n\n\n")
    assert code(root) == before
    copy_of_the_package("ragged.py", "import numpy as np", "import numpy as np\n_NEW = 1")
    changed = code(root)
    assert changed != before
    copy_of_the_package("report/console.py", '"""', 'X = 1\n"""')
    assert code(root) == changed


def test_a_new_import_brings_its_module_in(copy_of_the_package: Callable[[str, str, str], None]) -> None:
    root = "anmi.seeds"
    assert not any(path.name == "splits.py" for path in reached(root))
    copy_of_the_package("seeds.py", "import hashlib", "import hashlib\n\nfrom anmi.corpus import splits\n")
    assert any(path.name == "splits.py" for path in reached(root))


SCRIPT = """
import json, os, sys
from pathlib import Path
project, place, collection = map(Path, sys.argv[1:])
os.chdir(project)
from anmi.pipelines.ablation import cells, mining
from anmi.pipelines.ablation.params import AblationParams
from anmi.pipelines.ablation.schedule import Plan
from anmi.pipelines.adaptation.params import AdaptationParams
from anmi.pipelines.audit.params import AuditParams
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.consistency.params import ConsistencyParams
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.elo.params import EloParams
from anmi.pipelines.ingestion.params import IngestionParams
from anmi.pipelines.training.params import TrainingParams
from anmi.selection.recipe import recipe_book
route = {"column": "p_evidence", "negative": 0.9, "barred": 0.95}
steps = ["duplicate_guard", {"route": route}, {"top": {"by": "dense"}}]
book = recipe_book({"mine": {"description": "Mine.", "negatives": 2, "steps": steps}})
params = AblationParams(
    set="one", collections={"small": {"collection": f"beir:{collection}", "ingestion": {"language": "en"}}},
    sets={"one": {"description": "One.", "recipes": ["mine"], "seeds": [1], "collections": ["small"],
                  "baseline": "mine", "training": {"epochs": 1, "batch_size": 8}}},
)
branches = {"ingestion": IngestionParams(), "bm25": BM25Params(depth=20), "consistency": ConsistencyParams(),
            "dense": DenseParams(depth=20), "denoising": DenoisingParams(), "elo": EloParams(), "audit": AuditParams(),
            "training": TrainingParams(), "adaptation": AdaptationParams()}
plan = Plan(params, book, branches, 1, place / "work", place / "store", project)
job, where = plan.mining("small", *plan.groups)
mining.mine(job)
(cell,) = plan.cells(where, *plan.groups)
cells.select(cell.selection)
cells.run_cell(cell)
assert cells.read(cell.target)["queries"]
files = [module.__file__ for name, module in list(sys.modules.items()) if name.split(".")[0] == "anmi"]
print("LOADED", json.dumps([file for file in files if file]))
"""


@pytest.mark.rare
@pytest.mark.slow
def test_every_module_that_a_cell_really_loads_is_in_its_fingerprint(
    tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    """A cell's fingerprint holds those of its selection and of what was mined."""
    from tests.e2e.bad_inputs import Collection

    collection = Collection(tmp_path / "mine").path
    new_store(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOT), str(tmp_path), str(collection)],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    loaded = {Path(file).relative_to(SOURCE).as_posix() for file in json.loads(line.removeprefix("LOADED"))}
    below = {
        name
        for name in loaded
        if not name.split("/")[0].removesuffix(".py").startswith(coded._EDGE) and not name.startswith("pipelines/")
    }
    assert len(below) > 100
    missing = below - names(*TRAINING, *SELECTION, *mining._ROOTS)
    assert not missing


def test_roots_are_modules_that_exist() -> None:
    for root in mining._ROOTS:
        assert importlib.import_module(root)
