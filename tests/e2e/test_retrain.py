"""Nights of retraining, as a scheduler starts them: promoted, killed, refused, kept; and the way back."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import Result
from tests.commands import environment
from tests.e2e.conftest import write_chronicle

from anmi.evaluation.promotion import PromotionRule
from anmi.files import is_held
from anmi.hooks.run import EXIT_CODES

pytestmark = pytest.mark.rare
ROOT: Final = Path(__file__).parents[2]
# As little as a night can do with; the rule is asked about few queries, and the negatives of this
# recipe leak.
SMALL: Final = (
    "recipe=bm25_random,audit.queries=16,ingestion.dev_share=0.1,retrain.rule.min_queries=2,retrain.rule.system=dense,"
    "retrain.rule.max_false_negative_rate=0.9"
)
RUIN: Final = "training.options.learning_rate=50,training.options.alpha=1"
# 32 training and 16 test queries with three answers each.
SPLITS: Final = ("train",) * 4 + ("test",) * 2


@dataclass(frozen=True)
class Nights:
    """What the nights left, and how each ended."""

    place: Any
    promoted: subprocess.CompletedProcess[str]
    refused: subprocess.CompletedProcess[str]
    kept: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory, new_place: Any, kedro: Any) -> Nights:
    folder = tmp_path_factory.mktemp("nights")
    place = new_place(folder)
    parameters = f"collection=beir:{write_chronicle(folder / 'chronicle', SPLITS)},{SMALL}"

    def night(extra: str = "") -> subprocess.CompletedProcess[str]:
        words = ("run", "--pipelines", "retrain", "--params", parameters + extra)
        done: subprocess.CompletedProcess[str] = kedro(
            *words, data_root=place.data, store=place.store
        )
        return done

    promoted = night()
    assert promoted.returncode == EXIT_CODES["promoted"], promoted.stdout + promoted.stderr
    lock = place.store / "retrain.lock"
    kedro_words = [str(Path(sys.executable).with_name("kedro")), "run", "--env", "test"]
    with (folder / "log").open("w") as log:
        holder = subprocess.Popen(
            [*kedro_words, "--pipelines", "retrain", "--params", parameters],
            cwd=ROOT,
            env=environment(ANMI_DATA_ROOT=str(place.data), ANMI_STORE=str(place.store)),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + 120
            # Both are taken when the first node runs.
            while "1/" not in (folder / "log").read_text() and time.monotonic() < until:
                assert holder.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            assert is_held(lock)
            os.kill(holder.pid, signal.SIGSTOP)
            refused = night()
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait(timeout=30)
    return Nights(place, promoted, refused, kept=night(f",{RUIN}"))


@pytest.fixture
def command(nights: Nights, in_process: Callable[..., Result]) -> Callable[..., Result]:
    """Invoke a command about the model of the nights."""

    def invoke(*arguments: str) -> Result:
        return in_process(nights.place, *arguments, "--model", "anmi-beir-chronicle")

    return invoke


def shown(command: Callable[..., Result]) -> dict[str, Any]:
    done = command("anmi", "champion", "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_two_at_once_are_refused(nights: Nights) -> None:
    assert nights.refused.returncode == EXIT_CODES["refused"]
    told = " ".join(nights.refused.stderr.split())
    assert "another retraining is under way: " in told and "retrain.lock is locked" in told
    assert "Traceback" not in nights.refused.stderr


def test_what_was_killed_lets_the_next_one_in_which_keeps_the_champion(nights: Nights) -> None:
    assert nights.kept.returncode == EXIT_CODES["kept"], nights.kept.stdout + nights.kept.stderr
    promotion = nights.place.json("retrain", "promotion.json")
    figures = promotion["promotion"]
    assert promotion["decision"] == "kept"
    assert figures["queries"] == 16
    rule = PromotionRule()
    assert figures["margin"] == rule.luck > rule.margin, "a seed makes more than the margin"
    assert figures["bound"] < -figures["margin"]
    assert figures["difference"] == pytest.approx(figures["challenger"] - figures["champion"])
    assert "not shown to be non-inferior" in promotion["reasons"][0]
    registration = nights.place.json("retrain", "registration.json")
    assert (registration["version"], registration["champion"]) == (2, 1)


def test_every_run_is_closed_in_the_books(nights: Nights) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{nights.place.data}/tracking/mlflow.db")
    experiment = client.get_experiment_by_name("anmi-test").experiment_id
    runs = client.search_runs([experiment], order_by=["start_time ASC"])
    # One was refused before it was tracked.
    assert [run.info.status for run in runs] == ["FINISHED", "RUNNING", "FINISHED"]
    assert [runs[night].data.metrics["promotion/promoted"] for night in (0, 2)] == [1, 0]
    records = sorted(nights.place.data.glob("runs/*/run.json"))
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in records]
    assert [m["status"] for m in manifests] == ["finished", "running", "failed", "finished"]
    assert manifests[0]["tracking_run"] == runs[0].info.run_id


def test_there_and_back(command: Callable[..., Result]) -> None:
    before = shown(command)
    assert before["aliases"] == {"champion": 1, "challenger": 2}
    assert [entry["decision"] for entry in before["versions"]] == ["kept", "promoted"]
    done = command("anmi", "champion", "--rollback")
    assert done.exit_code == 1
    assert "has no champion before this one" in done.output
    assert "from version 1 to version 2" in command("anmi", "champion", "--to", "2").output
    told = json.loads(command("anmi", "champion", "--rollback", "--json").stdout)
    assert (told["before"], told["champion"]) == (2, 1)
    assert shown(command)["aliases"]["champion"] == 1
    printed = command("anmi", "champion").output
    assert "rolled back" in printed
    assert 'load_model("models:/anmi-beir-chronicle@champion")' in printed


def test_another_model_is_asked_for_by_its_name(
    nights: Nights, in_process: Callable[..., Result]
) -> None:
    done = in_process(nights.place, "anmi", "champion")
    assert done.exit_code == 1
    assert 'no model "anmi-api_docs" is registered' in done.output
    assert "anmi-beir-chronicle" in done.output


def test_the_commands_of_the_page(command: Callable[..., Result]) -> None:
    page = (ROOT / "docs" / "retraining.md").read_text(encoding="utf-8")
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)).splitlines()
    # The nights above are runs of it.
    assert [line for line in lines if "kedro run" in line] == ["kedro run --pipelines retrain"]
    assert len(lines) >= 4
    for line in lines[1:]:
        done = command(*shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, done.output
    for name, code in EXIT_CODES.items():
        assert re.search(rf"\| {code} +\| {name}", page), name
