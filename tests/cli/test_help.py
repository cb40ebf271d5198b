"""What every command has in common: a place, an example, ``--json``; docs/cli.md; completion; exit codes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.commands import environment

from anmi.cli import anmi, cli
from anmi.hooks.run import EXIT_CODES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


pytestmark = pytest.mark.usefixtures("project")


def walk(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from walk(command, f"{before}{name} ")


ALL = dict(walk(anmi))


def examples(command: click.Command) -> list[str]:
    text = (command.epilog or "").partition("Example:\n")[2]
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("name", [*ALL, "run"])
def test_help_ends_with_an_example_that_is_understood(name: str) -> None:
    words = [name] if name == "run" else ["anmi", *name.split()]
    done = CliRunner().invoke(cli, [*words, "--help"])
    shown = examples(ALL.get(name) or cli.commands[name])
    assert shown and done.output.rstrip().endswith("\n    ".join(["Example:", *shown]))
    for line in shown:
        found: click.Command = cli
        arguments = shlex.split(line)[1:]
        while isinstance(found, click.Group):
            found, arguments = found.commands[arguments[0]], arguments[1:]
        # Raises where an option or an argument is unknown.
        found.make_context(line, arguments, resilient_parsing="--list" in arguments)
        assert line.startswith(" ".join(["kedro", *words]))


def test_the_page_has_every_command_with_its_example() -> None:
    leaves = [command for command in ALL.values() if not isinstance(command, click.Group)]
    lines = [
        f"{line}  # {each.get_short_help_str(200)}" for each in leaves for line in examples(each)
    ]
    block = "\n".join(["```sh", *lines, "```"])
    assert f"## Commands\n\n{block}\n" in PAGE, f"docs/cli.md should have:\n{block}"


def test_the_page_has_the_exit_codes_of_retraining() -> None:
    told = {
        int(code): text
        for code, text in re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, flags=re.MULTILINE)
    }
    assert set(told) == {*EXIT_CODES.values(), 2, 130, 143}
    for name, code in EXIT_CODES.items():
        if code > 1:
            assert name in told[code]


def test_who_reads_json_is_not_asked_whether_to_remove(tmp_path: Path) -> None:
    killed = tmp_path / "data" / ".table.x1.tmp"
    killed.mkdir(parents=True)
    os.utime(killed, (1, 1))
    done = CliRunner().invoke(cli, ["anmi", "prune", "--keep", "1", "--json"])
    assert done.exit_code == 2 and "--json asks nothing" in done.stderr
    assert killed.exists()
    assert (
        CliRunner().invoke(cli, ["anmi", "prune", "--keep", "1", "--json", "--yes"]).exit_code == 0
    )
    assert not killed.exists()


def test_a_run_that_is_stopped_by_hand_ends_as_the_shell_says(tmp_path: Path) -> None:
    places = {"ANMI_DATA_ROOT": str(tmp_path / "data"), "ANMI_STORE": str(tmp_path / "store")}
    # A shell lets what it starts in the background ignore Ctrl-C, and that is inherited.
    listening = ["env", "--default-signal=INT"]
    running = subprocess.Popen(
        [*listening, str(BIN / "kedro"), "run", "--pipelines", "ingestion", "--env", "test"],
        cwd=ROOT,
        env=environment(**places),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for _ in range(600):
        if list(tmp_path.glob("data/runs/*/run.json")):
            break
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=150)  # tables of a new tracking database are made first
    assert running.returncode == 130, said
    assert said.rstrip().endswith("Aborted!")
