"""A claim on a registered model, by which several machines give way to each other."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from anmi.hooks import claim as module
from anmi.hooks.claim import CLAIM, Claim
from anmi.locks import process

ELSEWHERE = "another kernel 7 1"


@pytest.fixture
def new_claim(database: str, open_registry: Callable[[str], Any]) -> Iterator[Callable[..., Claim]]:
    made: list[Claim] = []
    name = f"anmi-{uuid4().hex[:8]}"

    def make(minutes: float = 15) -> Claim:
        made.append(Claim(open_registry(database), name, minutes))
        return made[-1]

    yield make
    for claim in made:
        claim.release()


def holder(claim: Claim, process: str = ELSEWHERE) -> dict[str, Any]:
    return {"host": "night", "pid": 7, "mlflow_run": claim._registry.run, "process": process}


def test_the_second_is_told_who_holds_it(new_claim: Callable[..., Claim]) -> None:
    first, second = new_claim(), new_claim()
    assert first.take(holder(first)) is None
    found = second.take(holder(second))
    assert found is not None
    assert (found["host"], found["pid"]) == ("night", 7)
    assert first.is_held()
    assert not second.is_held()
    second.release()
    assert first.is_held(), "who was refused takes nothing away"
    first.release()
    assert second.take(holder(second)) is None


def test_a_claim_ends_with_its_run(new_claim: Callable[..., Claim]) -> None:
    first, second = new_claim(), new_claim()
    assert first.take(holder(first)) is None
    first._registry.client.set_terminated(first._registry.run, "FAILED")
    assert second.take(holder(second)) is None
    assert not first.is_held()


def test_an_old_claim_of_a_run_that_never_ended_is_abandoned(
    new_claim: Callable[..., Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = new_claim(), new_claim(minutes=1)
    assert first.take(holder(first)) is None
    assert second.take(holder(second)) is not None
    later = time.time() + 61
    monkeypatch.setattr(module.time, "time", lambda: later)
    assert second.take(holder(second)) is None
    assert (first.is_held(), second.is_held()) == (False, True)
    first.release()
    assert second.is_held(), "who lost it takes nothing away"


def test_a_killed_process_of_this_machine_is_known_at_once_and_its_run_closed(new_claim: Callable[..., Claim]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mark = process(child.pid)
        first, second = new_claim(), new_claim()
        assert first.take(holder(first, mark)) is None
        assert second.take(holder(second)) is not None
        child.kill()
    assert second.take(holder(second)) is None
    assert second._registry.client.get_run(first._registry.run).info.status == "KILLED"


def test_tasks_that_share_a_run_share_its_claim(new_claim: Callable[..., Claim]) -> None:
    first, second = new_claim(), new_claim()
    second._registry.run = first._registry.run
    assert first.take(holder(first)) is None
    assert second.take(holder(second)) is None


def test_of_two_in_the_same_moment_one_finds_out_before_it_promotes(
    new_claim: Callable[..., Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = new_claim(), new_claim()
    assert first.take(holder(first)) is None
    # The second had looked before the first wrote.
    monkeypatch.setattr(second, "_found", lambda once=[{}]: once.pop() if once else Claim._found(second))
    assert second.take(holder(second)) is None
    assert (first.is_held(), second.is_held()) == (False, True)


def test_a_tag_that_is_no_claim_is_none(new_claim: Callable[..., Claim]) -> None:
    first = new_claim()
    first._registry.ensure(first._name)
    first._registry.client.set_registered_model_tag(first._name, CLAIM, "{half")
    assert first.take(holder(first)) is None
