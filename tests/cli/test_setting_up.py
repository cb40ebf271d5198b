"""``kedro anmi doctor``, ``init``, ``recipes`` and ``collections``, on the project's own configuration."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from kedro.framework.project import settings
from kedro.framework.startup import bootstrap_project

from anmi.cli import checkup, cli
from anmi.cli.checkup import EXTRAS, OK, PROBLEM, WARNING
from anmi.corpus.kinds import READERS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A configuration that may be written to."""
    monkeypatch.chdir(ROOT)
    for name in ("MLFLOW_TRACKING_URI", "ANMI_ONLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANMI_DATA_ROOT", str(tmp_path / "data"))
    monkeypatch.setenv("ANMI_STORE", str(tmp_path / "store"))
    bootstrap_project(ROOT)
    shutil.copytree(ROOT / "conf" / "base", tmp_path / "conf" / "base")
    (tmp_path / "conf" / "local").mkdir()
    before = settings.CONF_SOURCE
    settings.set("CONF_SOURCE", str(tmp_path / "conf"))
    yield tmp_path / "conf"
    settings.set("CONF_SOURCE", before)


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Twelve documents, eight training queries, no dev split."""
    folder = tmp_path / "mine"
    (folder / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        rows = [{"_id": f"{name[0]}{i}", "title": "", "text": f"{name} number {i} of the harbour"} for i in range(12)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    head = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(head + "".join(f"q{i}\tc{i}\t1\n" for i in range(8)))
    (folder / "qrels" / "test.tsv").write_text(head + "".join(f"q{i}\tc{i}\t1\n" for i in range(8, 12)))
    return folder


def invoke(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["anmi", *arguments])
    assert done.exit_code == code, done.output + str(done.exception)
    return done


def findings(code: int = 0) -> dict[str, dict[str, Any]]:
    """Return by section and name what the doctor finds; of several of a name the last."""
    found = json.loads(invoke("doctor", "--json", code=code).stdout)
    assert found["ok"] is (code == 0)
    return {f"{each['section']}: {each['name']}": each for each in found["findings"]}


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
    sections = [line for line in done.splitlines() if line and not line.startswith(" ")]
    assert sections[:-1] == [
        "environment", "extras", "configuration", "models", "data", "what is slow here", "tracking", "store and disk",
    ]  # fmt: skip
    assert "next: kedro run" in sections[-1]


def test_the_doctor_names_a_collection_that_cannot_be_read(conf: Path) -> None:
    write(conf, collection="beir:/nowhere")
    found = findings(code=1)
    assert found["data: data"]["level"] == PROBLEM
    assert "/nowhere is not a folder" in found["data: data"]["text"]
    assert found["models: MiniLM"]["level"] == OK, "the others go on"


def test_the_doctor_goes_on_without_a_configuration(conf: Path) -> None:
    write(conf, bm52={"k1": 1})
    found = findings(code=1)
    assert 'the parameter "bm52"' in found["configuration: parameters"]["text"]
    assert found["environment: Python"]["level"] == OK
    assert "data: collection" not in found


def test_the_doctor_warns_of_few_and_missing_queries(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("The harbour was built of stone.")
    write(conf, collection=f"docs:{tmp_path}/notes/*.txt")
    found = findings()
    assert found["data: collection"]["level"] == WARNING
    assert "nobody labelled a query" in found["data: collection"]["text"]


def test_the_doctor_says_what_takes_long_by_measured_rates(
    conf: Path, monkeypatch: pytest.MonkeyPatch, collection: Path
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(checkup, "cores", lambda: 2)
    write(conf, collection=f"beir:{collection}", encoder="minilm", recipe="anmi_2_1")
    before = findings()
    assert before["what is slow here: encoding"]["level"] == OK
    assert "under a minute" in before["what is slow here: encoding"]["text"]
    assert "what is slow here: cross-encoder" in before
    # 24 texts at a hundredth of a text in a second of two cores: twenty minutes.
    monkeypatch.setattr(checkup, "_ENCODED", 0.01)
    after = findings()["what is slow here: encoding"]
    assert after["level"] == WARNING
    assert "about 20 minutes on 2 cores" in after["text"]
    assert after["todo"] == "encoder=static"


def test_the_doctor_asks_for_a_model_that_is_not_here(conf: Path, collection: Path) -> None:
    write(conf, collection=f"beir:{collection}", encoder="nobody/has-this-model")
    found = findings(code=1)["models: encoder"]
    assert found["level"] == PROBLEM
    assert "ANMI_ONLINE=1" in found["todo"]


def test_the_doctor_asks_the_tracking_server(
    conf: Path, collection: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(conf, collection=f"beir:{collection}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    found = findings(code=1)["tracking: MLflow"]
    assert "http://***@127.0.0.1:9 cannot be reached" in found["text"]
    assert "MLFLOW_TRACKING_URI" in found["todo"]
    half = tmp_path / "half.db"
    half.write_text("no database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{half}")
    found = findings(code=1)["tracking: MLflow"]
    assert "move the file aside" in found["todo"]


def test_the_doctor_finds_what_dead_processes_left_and_a_run_that_was_killed(
    conf: Path, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(conf, collection=f"beir:{collection}")
    left = tmp_path / "data" / "bm25" / ".terms.x1.tmp"
    left.mkdir(parents=True)
    (left / "half").write_text("x")
    for path in (left / "half", left):
        os.utime(path, (1, 1))
    run = tmp_path / "data" / "runs" / "2026-01-01T00.00.00.000Z"
    run.mkdir(parents=True)
    manifest = {"run_id": run.name, "status": "failed", "start": "2026-01-01T00:00:00+00:00"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    found = findings()
    assert found["store and disk: leftovers"]["level"] == WARNING
    assert "1 unfinished" in found["store and disk: leftovers"]["text"]
    assert f"{run.name}, was failed" in found["store and disk: runs"]["text"]
    assert "kedro anmi resume" in found["store and disk: runs"]["todo"]


def test_the_doctor_says_when_the_disk_is_full(conf: Path, collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(conf, collection=f"beir:{collection}")
    usage = type("Usage", (), {"free": 1_000_000_000})
    monkeypatch.setattr(checkup.shutil, "disk_usage", lambda _: usage)
    found = findings()["store and disk: room for the store"]
    assert found["level"] == WARNING
    assert found["text"].startswith("1.0 GB free")
    usage.free = 1_000
    assert findings(code=1)["store and disk: room for the store"]["level"] == PROBLEM


def test_packages_are_compared_with_the_lock(tmp_path: Path) -> None:
    from importlib import metadata

    version = metadata.version("numpy")
    lock = tmp_path / "requirements.lock"
    for line, level, said in (
        (f"numpy=={version.split('+')[0]}", OK, "all 1 are those"),
        ("numpy==0.1", WARNING, f"numpy {version}"),
        ("no-such-package==1.0", PROBLEM, "not installed: no-such-package"),
    ):
        lock.write_text(f"# locked\n{line}\n")
        found = checkup._packages(lock)
        assert found.level == level
        assert said in found.text


def test_every_extra_is_known_with_its_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(project) - {"test"}
    for name, (package, _) in EXTRAS.items():
        assert project[name][0].startswith(package)


def test_init_writes_what_a_run_accepts(conf: Path, collection: Path) -> None:
    words = ["--collection", f"beir:{collection}", "--language", "en", "--recipe", "naive_top", "--max-queries", "5"]
    done = invoke("init", *words)
    assert "12 documents" in done.stdout
    assert "next: kedro run" in done.stdout
    path = conf / "local" / "parameters.yml"
    assert yaml.safe_load(path.read_text()) == {
        "collection": f"beir:{collection}", "recipe": "naive_top", "ingestion": {"language": "en", "max_queries": 5},
    }  # fmt: skip
    # The configuration that a run would check.
    assert findings()["configuration: parameters"]["level"] == OK
    refused = invoke("init", *words, code=1)
    assert "is there already" in refused.stderr
    path.write_text("bm52: {}\n")
    invoke("init", *words, "--force")
    assert "bm52" not in path.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no collection is named"),
        (["--collection", "beir:/nowhere"], "/nowhere is not a folder"),
        (["--collection", "bier:x"], 'did you mean "beir"'),
        (["--collection", "docs:docs/*.md", "--recipe", "anmi_21"], 'did you mean "anmi_2_1"'),
        (["--collection", "docs:docs/*.md", "--encoder", "minlm"], 'did you mean "minilm"'),
        (["--collection", "docs:docs/*.md", "--language", "xx"], 'there is no language "xx"'),
        (["--collection", "docs:docs/*.md", "--recipe", "naive_top"], "take --recipe anmi"),
    ],
)
def test_init_refuses_in_one_sentence_and_writes_nothing(conf: Path, words: list[str], said: str) -> None:
    done = invoke("init", *words, code=1)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list((conf / "local").iterdir())


def test_the_example_of_init(conf: Path) -> None:
    from anmi.cli.init import init

    line = (init.epilog or "").splitlines()[-1].strip()
    done = invoke(*shlex.split(line)[2:], "--json")
    assert json.loads(done.stdout)["parameters"] == {"collection": "docs:docs/**/*.md", "encoder": "static"}


def test_init_asks_where_there_is_a_terminal(conf: Path, collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anmi.cli.init._is_asked", lambda: True)
    answers = f"beir:{collection}\nminilm\n\n\n"
    done = CliRunner().invoke(cli, ["anmi", "init"], input=answers)
    assert done.exit_code == 0, done.output
    written = yaml.safe_load((conf / "local" / "parameters.yml").read_text())
    assert written == {"collection": f"beir:{collection}", "encoder": "minilm", "recipe": "anmi"}


def test_recipes_say_what_they_need() -> None:
    found = {each["recipe"]: each for each in json.loads(invoke("recipes", "--json").stdout)}
    listed = yaml.safe_load((ROOT / "conf/base/parameters_recipes.yml").read_text())["recipes"]
    assert set(found) == set(listed)
    assert found["anmi"]["needs"] == []
    assert "cross-encoder" in found["anmi_2_1"]["needs"][0]
    assert found["anmi_2_0_as_published"]["needs"] == [], "it is rated by the encoder alone"
    assert "kg:" in found["dnh_linear"]["needs"][0]
    assert "GPU" in found["sparse_infonce"]["needs"][0]
    assert "two retrievers" in found["anmi_and_sparse"]["cost"]
    assert found["anmi_and_sparse"]["training"]["pseudo_queries"]["batch_size"] == 256, "of what it extends"


def test_one_recipe_is_shown_with_what_it_extends() -> None:
    said = invoke("recipes", "anmi_and_sparse").stdout
    assert "extends    anmi" in said
    assert "route: column=p_evidence" in said, "a step of anmi_labels_only"
    assert "companion.retriever=sparse" in said
    assert 'did you mean "anmi_2_1"' in invoke("recipes", "anmi_21", code=1).stderr
    assert "anmi (chosen)" in invoke("recipes").stdout


def test_every_kind_of_collection_is_listed_with_an_example() -> None:
    found = json.loads(invoke("collections", "--json").stdout)
    assert [each["kind"] for each in found] == list(READERS)
    for each in found:
        assert each["example"].split(":")[0] == each["kind"]
        assert each["reads"].startswith("Read ")
    said = invoke("collections").stdout
    assert all(each["example"] in said for each in found)


def test_a_collection_is_described(collection: Path) -> None:
    told = json.loads(invoke("collections", f"beir:{collection}", "--json").stdout)
    assert told["documents"] == 12
    assert sum(told["queries"].values()) == 12
    assert sum(told["labels"].values()) == 12
    assert told["sample"]["queries"][0]["relevant"] == ["c" + told["sample"]["queries"][0]["query_id"][1:]]
    said = invoke("collections", f"beir:{collection}").stdout
    assert f'next: kedro anmi init --collection "beir:{collection}"' in said
    assert 'did you mean "beir"' in invoke("collections", "bier:x", code=1).stderr
