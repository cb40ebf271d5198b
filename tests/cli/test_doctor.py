"""``kedro anmi doctor``, on the project's own configuration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kedro.framework.project import settings
from tests.cli.conftest import anmi
from tests.e2e.conftest import write_beir

from anmi.cli.doctor import OK, PROBLEM, WARNING

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def conf(project: Path, tmp_path: Path) -> Iterator[Path]:
    """A configuration that may be written to."""
    shutil.copytree(ROOT / "conf" / "base", tmp_path / "conf" / "base")
    (tmp_path / "conf" / "local").mkdir()
    before = settings.CONF_SOURCE
    settings.set("CONF_SOURCE", str(tmp_path / "conf"))
    yield tmp_path / "conf"
    settings.set("CONF_SOURCE", before)


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Twelve documents, eight training queries, no dev split."""
    documents, queries = (
        [
            {"_id": f"{name[0]}{i}", "title": "", "text": f"{name} number {i} of the harbour"}
            for i in range(12)
        ]
        for name in ("corpus", "queries")
    )
    head, rows = "query-id\tcorpus-id\tscore", [f"q{i}\tc{i}\t1" for i in range(12)]
    return write_beir(
        tmp_path / "mine",
        documents,
        queries,
        {"train": [head, *rows[:8]], "test": [head, *rows[8:]]},
    )


def findings(code: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return by name what the doctor finds."""
    done = anmi("doctor", "--json")
    assert done.exit_code == code, done.output + str(done.exception)
    told = json.loads(done.stdout)
    assert told["ok"] is (code == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for each in told["findings"]:
        found.setdefault(each["name"], []).append(each)
    return found


def write(conf: Path, **parameters: Any) -> None:
    (conf / "local" / "parameters.yml").write_text(yaml.safe_dump(parameters))


def test_the_doctor_of_a_good_place_finds_no_problem_and_writes_nothing(
    conf: Path, collection: Path, tmp_path: Path
) -> None:
    write(conf, collection=f"beir:{collection}")
    done = anmi("doctor")
    assert done.exit_code == 0 and "problem" not in done.stdout
    assert "12 documents" in done.stdout
    assert not (tmp_path / "data").exists() and not (tmp_path / "store").exists()
    assert done.stdout.splitlines()[-1] == "next: kedro run"


def test_the_doctor_names_a_collection_that_cannot_be_read_and_warns_of_few_queries(
    conf: Path, tmp_path: Path
) -> None:
    write(conf, collection="beir:/nowhere")
    found = findings(code=1)
    assert (
        found["data"][0]["level"] == PROBLEM
        and "/nowhere is not a folder" in found["data"][0]["text"]
    )
    assert found["MiniLM"][0]["level"] == OK, "the others go on"
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("The harbour was built of stone.")
    write(conf, collection=f"docs:{tmp_path}/notes/*.txt")
    _, *warned = findings()["collection"]
    assert [each["level"] for each in warned] == [WARNING] * 2
    assert "no training query has a label" in warned[0]["text"]
    assert "dev has 0 and test has 0 queries" in warned[1]["text"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://me:secret@127.0.0.1:9", "http://***@127.0.0.1:9 cannot be reached"),
        ("sqlite:///{folder}/half.db", "half.db cannot be reached"),
    ],
)
def test_the_doctor_asks_the_tracking_server(
    conf: Path,
    collection: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    address: str,
    words: str,
) -> None:
    write(conf, collection=f"beir:{collection}")
    (tmp_path / "half.db").write_text("no database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(folder=tmp_path))
    (finding,) = findings(code=1)["MLflow"]
    assert words in finding["text"]
    assert "MLFLOW_TRACKING_URI" in finding["todo"]
