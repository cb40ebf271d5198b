"""The scripts of README and of the page on scripts run as they stand there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_audit import OF


@pytest.mark.parametrize("page", ["README.md", "docs/script.md"])
def test_the_script_mines_and_audits(
    project: Path, page: str, tmp_path: Path, word_encoder: Any, new_store: Any
) -> None:
    text = (project / page).read_text(encoding="utf-8")
    scripts = [code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "anmi" in code]
    assert scripts
    words = sorted({word for row in OF for word in row["positive"].split()})
    word_encoder(words, dimension=32).save(str(tmp_path / "all-MiniLM-L6-v2"))
    rows = [{name: row[name] for name in ("query", "positive")} for row in OF]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "script.py").write_text("\n".join(scripts), encoding="utf-8")
    environment = {
        "ANMI_STORE": str(new_store(tmp_path / "store")),
        "HF_HUB_OFFLINE": "1",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "script.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "expected false negatives" in done.stdout and "expected to be relevant" in done.stdout
    mined = (tmp_path / "mined.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(mined) == 3 * len(OF) and {*json.loads(mined[0])} == {
        "query",
        "positive",
        "negative",
    }
    if page.endswith("script.md"):
        assert "weights" in (tmp_path / "weighted.jsonl").read_text(encoding="utf-8")


def test_the_command_writes_the_file_without_doubtful_negatives(
    project: Path, tmp_path: Path, kedro: Any, new_store: Any
) -> None:
    page = (project / "docs/script.md").read_text(encoding="utf-8")
    command = re.search(r"^kedro (anmi audit --file .*)$", page, re.M)
    assert command
    rows = [
        {"query": row["query"], "pos": [row["positive"]], "neg": [row["positive"]]} for row in OF
    ]
    lines = [json.dumps(row | {"neg": [*row["neg"], "Mines are deep."]}) for row in rows]
    (tmp_path / "mined.jsonl").write_text("\n".join(lines), encoding="utf-8")
    words = [str(tmp_path / word) if word.endswith("l") else word for word in command[1].split()]
    place: dict[str, Any] = {"data_root": tmp_path / "data", "store": new_store(tmp_path / "store")}
    done = kedro(*words, **place, env=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(OF)} are known positives" in done.stdout
    cleaned = (tmp_path / "cleaned.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["neg"] for line in cleaned] == [["Mines are deep."]] * len(OF)
    done = kedro(*words, **place, env=None)
    assert done.returncode == 1 and "is there already: name a new file" in done.stderr
