"""Every command in the README and the docs works."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# Judges and training of a README command do as little as they can; how they do it is tested
# elsewhere.
SMALL = "denoising.depth=8,denoising.cross_encoder.max_pairs=32,training.options.epochs=1"

# What no finished run is enough for, or what would change it; each of these is run by a test of its
# own.
ELSEWHERE = re.compile(
    "kedro run|kedro package|audit|ablate|champion|anmi (compare|mcp|reproduce|resume|serve|task)"
)


def commands() -> list[str]:
    """Return the command lines of the shell blocks, each once."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        block
        for page in pages
        for block in re.findall(
            r"```(?:sh|bash)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL
        )
    ]
    lines = (line.partition("  # ")[0].rstrip() for block in blocks for line in block.splitlines())
    return list(dict.fromkeys(line for line in lines if line))


def test_the_readme_names_commands_of_every_kind() -> None:
    assert {"make run", "make test", "make test-all", "kedro anmi results"} <= set(commands())


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("make")])
def test_make_targets_exist(command: str) -> None:
    # A dry run: `make test` runs this very test, and `make run` is what the end-to-end tests do.
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [line for line in commands() if line.startswith("kedro") and not ELSEWHERE.search(line)],
)
def test_commands_that_look_at_the_last_run(
    command: str, kedro: Any, in_process: Any, whole_run: Any, tmp_path: Path
) -> None:
    words = shlex.split(command, comments=True)[1:]
    if words[:2] == ["anmi", "explain"]:
        queries = whole_run.table("selection", "training_rows.parquet").query_id
        words[2] = words[2] if words[2] in set(queries) else str(queries.iloc[0])
    if words[:2] == ["anmi", "export"] and "--list" not in words:
        words[3] = str(tmp_path / words[3])
    if words[0] == "registry":
        done = kedro(*words, data_root=whole_run.data, store=whole_run.store, env=None, anew=True)
        assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr
        return
    found = in_process(whole_run, *words)
    assert found.exit_code == 0, found.output + str(found.exception)
    assert found.output.strip()


# Those of retraining are run by test_retrain.py.
@pytest.mark.rare
@pytest.mark.data
@pytest.mark.parametrize(
    "command",
    [c for c in commands() if c.startswith("kedro run") and not re.search("audit|retrain", c)],
)
def test_runs_on_own_data(
    command: str,
    kedro: Any,
    new_place: Any,
    network_encoder: Any,
    shared_data: Path,
    tmp_path: Path,
) -> None:
    place = new_place(tmp_path)
    command = command.replace("../shared/data", str(shared_data))
    command = command.replace("beir:FOLDER", f"beir:{shared_data / 'scifact'}")
    if of_hub := re.search(r"encoder=\w+/[\w.-]+", command):
        # A network as small stands for it.
        network_encoder(["cell", "gene", "risk"]).save(str(tmp_path / "network"))
        command = command.replace(of_hub[0], f"encoder={tmp_path / 'network'}")
    words = shlex.split(command, comments=True)[1:]
    words[words.index("--params") + 1] += f",ingestion.max_queries=100,{SMALL}"
    done = kedro(*words, data_root=place.data, store=place.store)
    assert done.returncode == 0, done.stdout + done.stderr
    assert place.versions("selection", "negatives")
