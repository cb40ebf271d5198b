"""Bad input through the project's command: one sentence that names the place, and nothing half-written.

The inputs are the table in bad_inputs.py; what is survivable, and what training refuses, is told
here.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.corpus.conftest import WORDS
from tests.e2e.bad_inputs import CASES, Case, Collection, try_case, verdict
from tests.mined import mined


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return Collection(tmp_path / "mine")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "place" / "data"


@pytest.fixture
def run(
    new_place: Callable[[Path], Any], in_process: Callable[..., Result], data: Path
) -> Callable[..., Result]:
    """Run pipelines on a collection with parameters; ``__`` stands for a dot."""
    place = new_place(data.parent)

    def invoke(where: str, pipelines: str = "ingestion", **parameters: object) -> Result:
        given = {"collection": where} | {
            key.replace("__", "."): value for key, value in parameters.items()
        }
        text = ",".join(f"{key}={value}" for key, value in given.items())
        return in_process(place, "run", "--pipelines", pipelines, "--params", text)

    return invoke


def refused(done: Result, *mentioned: str) -> None:
    """Exit code 1 and one sentence that mentions all of it."""
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit), done.exception
    one_sentence(done.stderr, *mentioned)


def one_sentence(stderr: str, *mentioned: str) -> None:
    (line,) = re.findall(r"^Error: .*$", stderr, flags=re.MULTILINE)
    assert "Traceback" not in stderr
    for text in mentioned:
        assert text in line
    # The longest lists the names of all recipes.
    assert len(line) < 600


def kind(case: Case) -> str:
    """Return what a case is one of: what the command refuses in one way; each that the reader finds is its own."""
    if case.by == "reader":
        return case.name
    plain = Case("", ())
    places = ("conf", "data", "store")
    elsewhere = [place for place in places if getattr(case, place) != getattr(plain, place)]
    setting = re.split(r"[.=\[]", case.parameters)[0]
    return " ".join(elsewhere) or setting or case.name.rpartition(", ")[2]


FIRST = {kind(case): case for case in reversed(CASES)}
TABLE = [
    pytest.param(case, marks=() if FIRST[kind(case)] is case else pytest.mark.rare)
    for case in CASES
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name[:80])
def test_what_is_said_of_it(case: Case, tmp_path: Path, static_models: Path) -> None:
    """One sentence that names the place and the cure, before anything is saved; and nothing of what is fine."""
    assert not verdict(case, try_case(case, tmp_path))


@pytest.fixture
def train(collection: Collection, run: Any, data: Path) -> Callable[..., Result]:
    """Train on rows as the selection writes them for a recipe without judges, without mining them."""
    import pandas as pd

    done = run(f"beir:{collection.path}", "ingestion,bm25,dense,adaptation", recipe="naive_top")
    assert done.exit_code == 0, done.output
    queries, corpus = (
        [json.loads(line)["text"] for line in collection.lines(f"{name}.jsonl")]
        for name in ("queries", "corpus")
    )
    rows = mined(queries[:20], corpus[:21], 1)
    columns = ("variant_id", "document_id", "kind", "text", "old", "new", "relation")
    tables = {"training_rows": rows, "variants": {name: pd.Series(dtype="str") for name in columns}}
    for name, table in tables.items():
        folder = data / "05_model_input" / f"{name}.parquet" / "2026-01-01T00.00.00.000Z"
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True)
        pd.DataFrame(table).to_parquet(path)

    def invoke(recipe: str = "naive_top", **parameters: object) -> Result:
        # A process of its own would have let go of the store of a run that failed.
        gc.collect()
        return run(f"beir:{collection.path}", "training", recipe=recipe, **parameters)

    return invoke


def test_a_loss_whose_judgments_were_not_mined(train: Any, data: Path) -> None:
    refused(train(training__options__loss="hybrid"), "judgments elo", "not mined", "`reads`")
    assert not (data / "06_models").exists()


def test_a_training_that_diverges_says_what_to_change(train: Any, data: Path) -> None:
    """The first step has a learning rate of 0; the second makes the weights infinite."""
    done = train(training__options__learning_rate=1e39, training__options__warmup=0.5)
    refused(done, "became", "lower the learning rate")
    assert not (data / "06_models").exists()


def test_fewer_candidates_than_asked_for(tmp_path: Path, run: Any, data: Path) -> None:
    """Eight documents leave less than seven negatives below a threshold; the whole way must bear that."""
    import pandas as pd

    small = Collection(tmp_path / "small", documents=8)
    everything = "mining,adaptation,training,evaluation,final,reporting"
    done = run(f"beir:{small.path}", everything, recipe="nv_retriever", ingestion__language="en")
    assert done.exit_code == 0, done.output + str(done.exception)
    (path,) = data.glob("05_model_input/training_rows.parquet/*/*.parquet")
    found = pd.read_parquet(path).negative_ids.map(len)
    assert found.sum() > 0
    assert (found < 7).any()
    (summary,) = data.glob("05_model_input/selection_summary.json/*/*.json")
    assert json.loads(summary.read_text(encoding="utf-8"))["coverage"] < 1
    assert list(data.glob("08_reporting/report.html/*/report.html"))


@pytest.mark.rare
def test_a_document_of_five_megabytes(collection: Collection, run: Any, data: Path) -> None:
    long = " ".join(WORDS) * 52_000
    assert len(long) > 5_000_000
    collection.change("corpus.jsonl", 1, json.dumps({"_id": "d0", "text": long}))
    done = run(f"beir:{collection.path}", "mining", recipe="naive_top")
    assert done.exit_code == 0, done.output + str(done.exception)
    assert "1 × cut after 1,000,000 characters" in " ".join(done.output.split())


@pytest.mark.rare
def test_no_network(
    collection: Collection, kedro: Any, data: Path, new_store: Any, tmp_path: Path
) -> None:
    """As a user: a process of its own, and a name that only the hub knows."""
    params = f"collection=beir:{collection.path},encoder=sentence-transformers/all-mpnet-base-v2"
    done = kedro(
        *("run", "--pipelines", "ingestion,bm25,dense", "--params", params),
        data_root=data,
        store=new_store(tmp_path / "store"),
        HF_HUB_CACHE=str(tmp_path / "hub"),
        timeout=120,
    )
    assert done.returncode == 1
    one_sentence(done.stderr, "all-mpnet-base-v2", "ANMI_ONLINE=1")
    assert "Traceback" not in done.stdout
    assert not (data / "03_primary" / "candidates").exists()
    assert (data / "02_intermediate").exists(), "what was finished stays"


def test_a_slip_in_a_process_of_its_own(kedro: Any, data: Path, tmp_path: Path) -> None:
    done = kedro("run", "--params", "recipe=anmi_2_2", data_root=data, store=tmp_path / "store")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    one_sentence(done.stderr, '"anmi_2_2"', "did you mean")
    assert not data.exists()
    assert not (tmp_path / "store").exists()
