"""``kedro anmi doctor``, on the project's own configuration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
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
        [{"_id": f"{name[0]}{i}", "title": "", "text": f"{name} number {i} of the harbour"} for i in range(12)]
        for name in ("corpus", "queries")
    )
    head, rows = "query-id\tcorpus-id\tscore", [f"q{i}\tc{i}\t1" for i in range(12)]
    return write_beir(tmp_path / "mine", documents, queries, {"train": [head, *rows[:8]], "test": [head, *rows[8:]]})


def invoke(*arguments: str, code: int = 0) -> Result:
    done = anmi(*arguments)
    assert done.exit_code == code, done.output + str(done.exception)
    return done


def findings(code: int = 0) -> dict[str, dict[str, Any]]:
    """Return by name what the doctor finds; of several of a name the last."""
    found = json.loads(invoke("doctor", "--json", code=code).stdout)
    assert found["ok"] is (code == 0)
    return {each["name"]: each for each in found["findings"]}


def write(conf: Path, **parameters: Any) -> Path:
    path = conf / "local" / "parameters.yml"
    path.write_text(yaml.safe_dump(parameters))
    return path


def test_the_doctor_of_a_good_place_finds_no_problem_and_writes_nothing(
    conf: Path, collection: Path, tmp_path: Path
) -> None:
    write(conf, collection=f"beir:{collection}")
    done = invoke("doctor").stdout
    assert "problem" not in done
    assert "12 documents" in done
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "store").exists()
    assert done.splitlines()[-1] == "next: kedro run"


def test_the_doctor_names_a_collection_that_cannot_be_read(conf: Path) -> None:
    write(conf, collection="beir:/nowhere")
    found = findings(code=1)
    assert found["data"]["level"] == PROBLEM
    assert "/nowhere is not a folder" in found["data"]["text"]
    assert found["MiniLM"]["level"] == OK, "the others go on"


def test_the_doctor_warns_of_few_and_missing_queries(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("The harbour was built of stone.")
    write(conf, collection=f"docs:{tmp_path}/notes/*.txt")
    said = json.loads(invoke("doctor", "--json").stdout)["findings"]
    warned = [each["text"] for each in said if each["level"] == WARNING and each["name"] == "collection"]
    assert "no training query has a label" in warned[0]
    assert "dev has 0 and test has 0 queries" in warned[1]


def test_the_doctor_asks_the_tracking_server(
    conf: Path, collection: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(conf, collection=f"beir:{collection}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    found = findings(code=1)["MLflow"]
    assert "http://***@127.0.0.1:9 cannot be reached" in found["text"]
    assert "MLFLOW_TRACKING_URI" in found["todo"]
    half = tmp_path / "half.db"
    half.write_text("no database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{half}")
    found = findings(code=1)["MLflow"]
    assert "MLFLOW_TRACKING_URI" in found["todo"]


def test_the_doctor_says_when_the_disk_is_full(conf: Path, collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, collection=f"beir:{collection}")
    usage = type("Usage", (), {"free": 1_000_000_000})
    monkeypatch.setattr("anmi.cli.doctor.shutil.disk_usage", lambda _: usage)
    found = findings()["room for the store"]
    assert found["level"] == WARNING
    assert found["text"].startswith("1.0 GB free")
    usage.free = 1_000
    assert findings(code=1)["room for the store"]["level"] == PROBLEM
