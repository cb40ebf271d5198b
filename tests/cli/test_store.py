"""``kedro anmi store stats`` and ``prune``, on the store that the project's own catalog names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
from click.testing import CliRunner, Result
from kedro.framework.startup import bootstrap_project

from anmi.cli import cli
from anmi.store import Store

ROOT = Path(__file__).parents[2]
MODEL = "feed0123456789abcdef"
JUDGE = "cafe0123456789abcdef"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("ANMI_DATA_ROOT", str(tmp_path / "data"))
    monkeypatch.setenv("ANMI_STORE", str(tmp_path / "store"))
    bootstrap_project(ROOT)
    return tmp_path / "store"


@pytest.fixture
def filled(folder: Path) -> Path:
    texts = [str(i) for i in range(2000)]
    with Store(folder) as store:
        store.vectors(MODEL, texts, lambda part: np.ones((len(part), 96)), name="my [small] encoder")
        store.vectors(JUDGE, texts, lambda part: np.ones((len(part), 1)))
    old = folder / "models" / ".teacher-killed"
    old.mkdir(parents=True)
    os.utime(old, (1, 1))
    return folder


def left(folder: Path) -> dict[str, int]:
    with Store(folder) as store:
        return {record.fingerprint: record.entries for record in store.records()}


def invoke(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(cli, ["anmi", "store", *arguments], input=answer)


def cells(output: str, start: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if start in line]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_stats_as_a_table(filled: Path) -> None:
    done = invoke("stats")
    assert done.exit_code == 0, done.output
    row = cells(done.stdout, MODEL[:12])
    assert row[:6] == [MODEL[:12], "my [small] encoder", "embedding", "96", "2,000", "816.0 kB"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for day in row[6:])
    assert cells(done.stdout, JUDGE[:12])[1:6] == ["", "judgment", "1", "2,000", "56.0 kB"]
    assert cells(done.stdout, ".teacher-killed")[1:] == ["leftover", "0 B", "1970-01-01"]
    assert re.search(rf"{filled}: 1\.\d MB, of which", done.stdout)


def test_stats_as_json(filled: Path) -> None:
    found = json.loads(invoke("stats", "--json").stdout)
    assert found["path"] == str(filled)
    assert found["file_size"] == (filled / "data.mdb").stat().st_size
    shown = {entry["fingerprint"]: entry for entry in found["fingerprints"]}
    assert shown.keys() == {MODEL, JUDGE}
    assert shown[MODEL].keys() == {
        "fingerprint", "name", "kind", "dimension", "number", "entries", "size", "created", "last_used",
    }  # fmt: skip
    assert (shown[MODEL]["kind"], shown[MODEL]["entries"], shown[JUDGE]["kind"]) == ("embedding", 2000, "judgment")
    assert [Path(model["path"]).name for model in found["models"]] == [".teacher-killed"]


def test_without_a_store_none_is_made(folder: Path) -> None:
    for command in ("stats", "prune"):
        done = invoke(command)
        assert done.exit_code == 1
        assert done.stderr == f"Error: there is no store in {folder} yet: `kedro run` makes it, or set ANMI_STORE\n"
    assert not folder.exists()


def test_a_store_of_another_version_is_one_sentence(folder: Path) -> None:
    folder.mkdir()
    with lmdb.open(str(folder)) as database, database.begin(write=True) as transaction:
        transaction.put(b"format", b"anmi-store-1")
    done = invoke("stats")
    assert done.exit_code == 1
    assert re.fullmatch(r"Error: .*'anmi-store-1'.*'anmi-store-2': delete .*data\.mdb, .*\n", done.stderr)


def test_a_dry_run_only_tells(filled: Path) -> None:
    done = invoke("prune", "--older-than", "0", "--keep", JUDGE[:4], "--dry-run")
    assert done.exit_code == 0, done.output
    assert "would be removed: 2,000 values under 1 fingerprints (816.0 kB), 1 folders of models (0 B)" in done.stdout
    assert MODEL[:12] in done.stdout
    assert JUDGE[:12] not in done.stdout
    assert left(filled) == {MODEL: 2000, JUDGE: 2000}
    assert (filled / "models" / ".teacher-killed").exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_nothing_goes_without_consent(filled: Path, answer: str) -> None:
    done = invoke("prune", "--fingerprint", MODEL[:4], answer=answer)
    assert done.exit_code == 1
    assert "Remove these?" in done.stdout
    assert left(filled) == {MODEL: 2000, JUDGE: 2000}


@pytest.mark.parametrize(("option", "answer"), [(["--yes"], ""), ([], "y\n")])
def test_what_was_chosen_goes(filled: Path, option: list[str], answer: str) -> None:
    before = (filled / "data.mdb").stat().st_size
    done = invoke("prune", "--fingerprint", MODEL[:4], *option, answer=answer)
    assert done.exit_code == 0, done.output
    assert "removed: 2,000 values under 1 fingerprints (816.0 kB), 1 folders of models (0 B)" in done.stdout
    assert re.search(r"the file had 1\.\d MB and has \d+\.\d kB", done.stdout)
    assert left(filled) == {JUDGE: 2000}
    assert (filled / "data.mdb").stat().st_size < before / 2
    assert not (filled / "models" / ".teacher-killed").exists()


def test_where_there_is_nothing_to_remove_nothing_is_asked(filled: Path) -> None:
    invoke("prune", "--yes")
    done = invoke("prune")
    assert done.exit_code == 0
    assert "removed: 0 values under 0 fingerprints (0 B), 0 folders of models (0 B)" in done.stdout
    assert left(filled) == {MODEL: 2000, JUDGE: 2000}


def test_while_a_run_has_the_store_open_models_stay(filled: Path) -> None:
    script = "import sys; from pathlib import Path; from anmi.store import Store; store = Store(Path(sys.argv[1])); "
    command = [sys.executable, "-c", f"{script}print('open', flush=True); sys.stdin.read()", str(filled)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        for option in ("--dry-run", "--yes"):
            done = invoke("prune", "--fingerprint", MODEL, option)
            assert done.exit_code == 0, done.output
            assert "2,000 values under 1 fingerprints (816.0 kB), 0 folders" in done.stdout
            assert "another process has the store open" in done.stdout
            assert "the file had" not in done.stdout
        other.communicate(timeout=30)
    assert (filled / "models" / ".teacher-killed").exists()
    assert left(filled) == {JUDGE: 2000}


def test_an_unknown_fingerprint_is_one_sentence(filled: Path) -> None:
    done = invoke("prune", "--fingerprint", "feed0123456789abcdee", "--yes")
    assert done.exit_code == 1
    assert done.stderr.startswith(f'Error: the store has no fingerprint "feed0123456789abcdee"; did you mean "{MODEL}"')
    assert left(filled) == {MODEL: 2000, JUDGE: 2000}


def test_what_is_removed_is_told_as_json_and_never_asked_for(filled: Path) -> None:
    planned = json.loads(invoke("prune", "--fingerprint", MODEL[:4], "--dry-run", "--json").stdout)
    assert planned["removed"] is False
    assert [each["fingerprint"] for each in planned["fingerprints"]] == [MODEL]
    refused = invoke("prune", "--fingerprint", MODEL[:4], "--json")
    assert refused.exit_code == 2
    assert "--json asks nothing" in refused.stderr
    assert set(left(filled)) == {MODEL, JUDGE}
    done = json.loads(invoke("prune", "--fingerprint", MODEL[:4], "--json", "--yes").stdout)
    assert done["removed"] is True
    assert set(left(filled)) == {JUDGE}
