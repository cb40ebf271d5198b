"""A chat endpoint as judge, asked of a local server that misbehaves."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from tests.judging.conftest import SHOWN, Server, block_of, completion

from anmi.candidates import CandidateShards, ColumnShards
from anmi.errors import AnmiError
from anmi.judging.pairwise import ChatJudge, ChatOptions, verdict
from anmi.pipelines.elo.nodes import rate_candidates
from anmi.pipelines.params import EloParams
from anmi.selection.recipe import recipe_book
from anmi.store import Store


def judge(server: Server, store: Store, **changes: Any) -> ChatJudge:
    known = {"model": "judge-1", "timeout": 5.0, "concurrency": 4}
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    return ChatJudge(ChatOptions(base_url=address, **(known | changes)), store)


def pairs(count: int) -> tuple[list[str], list[str], list[str], np.ndarray]:
    """Comparisons and the honest answers to them."""
    numbers = np.random.default_rng(1).integers(0, 1000, (count, 2))
    first, second = ([f"document number {n}" for n in column] for column in numbers.T)
    truth = np.where(numbers[:, 0] == numbers[:, 1], 0.5, numbers[:, 0] > numbers[:, 1])
    return [f"query {i}" for i in range(count)], first, second, truth


def test_the_model_is_asked_once_in_the_form_that_endpoints_know(server: Server, store: Store) -> None:
    queries, first, second, truth = pairs(40)
    found = judge(server, store).prefer(queries, first, second)
    assert found.dtype == np.float64 and (found == truth).all()
    body = server.bodies[0]
    assert body["path"] == "/v1/chat/completions" and body["model"] == "judge-1" and body["temperature"] == 0
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert {SHOWN.search(b["messages"][1]["content"])[1] for b in server.bodies} == set(queries)  # type: ignore[index]
    assert len(server.bodies) == 40 and server.most_under_way <= 4
    again = judge(server, store).prefer(queries, first, second)
    assert (again == truth).all() and len(server.bodies) == 40, "the answers are in the store"
    judge(server, store, model="judge-2").prefer(queries[:1], first[:1], second[:1])
    assert len(server.bodies) == 41


BROKEN = {
    "hangs up": lambda number, body: None,
    "status 500": lambda number, body: (500, {}, b"Internal Server Error"),
    "status 400": lambda number, body: (400, {}, b'{"error": "context too long"}'),
    "not JSON": lambda number, body: (200, {}, b"<html>busy</html>"),
    "not UTF-8": lambda number, body: (200, {}, b"\xff\xfe"),
    "a list": lambda number, body: (200, {}, b"[]"),
    "no choices": lambda number, body: (200, {}, b'{"id": 1}'),
    "empty choices": lambda number, body: (200, {}, b'{"choices": []}'),
    "no text": lambda number, body: (200, {}, b'{"choices": [{"message": {"content": null}}]}'),
    "neither A nor B": lambda number, body: (200, {}, completion("C")),
    "bad gzip": lambda number, body: (200, {"Content-Encoding": "gzip"}, b"plain"),
    "cut short": lambda number, body: (200, {"Content-Length": "500"}, b'{"choices"'),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_fails_stays_missing_is_said_once_and_asked_again(
    how: str, server: Server, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    queries, first, second, truth = pairs(5)
    failing = f"<query>\n{queries[2]}\n"

    def behave(number: int, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes] | None:
        return (BROKEN[how] if failing in body["messages"][1]["content"] else Server.well)(number, body)

    server.behave = behave
    asked = judge(server, store, retries=1)
    with caplog.at_level(logging.WARNING, logger="anmi"):
        found = asked.prefer(queries, first, second)
    assert np.isnan(found).tolist() == [False, False, True, False, False]
    assert (np.delete(found, 2) == np.delete(truth, 2)).all()
    assert len(caplog.records) == 1 and "1 of 5 comparisons by judge-1 failed (1 × " in caplog.text
    before = len(server.bodies)
    assert before == (6 if how in ("hangs up", "status 500", "cut short", "bad gzip") else 5), (
        "retried where it may help"
    )
    server.behave = Server.well
    assert (asked.prefer(queries, first, second) == truth).all()
    assert len(server.bodies) == before + 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_address_or_key_is_an_error_at_once(status: int, server: Server, store: Store) -> None:
    queries, first, second, _ = pairs(100)
    server.behave = lambda number, body: (status, {"Location": "http://127.0.0.1:9/"}, b"{}")
    with pytest.raises(AnmiError, match=f"answered with status {status} .*check base_url, model and the key"):
        judge(server, store).prefer(queries, first, second)
    assert len(server.bodies) < 20


def test_the_key_is_sent_and_nowhere_else(
    server: Server, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
    server.behave = lambda number, body: Server.well(number, body) if number else (500, {}, b"no")
    asked = judge(server, store, key_variable="JUDGE_KEY", retries=0)
    with caplog.at_level(logging.DEBUG, logger="anmi"):
        asked.prefer(["q", "r"], ["d 1", "d 2"], ["d 3", "d 4"])
    assert {headers["authorization"] for headers in server.headers} == {"Bearer sk-very-secret"}
    shown = [caplog.text, repr(asked), repr(asked.options)]
    assert not [text for text in shown if "secret" in text]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"very-secret" in path.read_bytes()]
    monkeypatch.delenv("JUDGE_KEY")
    assert asked.fingerprint == judge(server, store).fingerprint
    with pytest.raises(AnmiError, match="JUDGE_KEY is not set"):
        judge(server, store, key_variable="JUDGE_KEY")


@pytest.mark.parametrize("url", ["host/v1", "ftp://host", "https://"])
def test_an_address_must_be_one(url: str) -> None:
    with pytest.raises(ValidationError, match="http or https address"):
        ChatOptions(base_url=url, model="m")


def test_long_texts_are_cut_and_thoughts_are_not_read(server: Server, store: Store) -> None:
    server.says("<think>B? No.</think>\nA")
    assert judge(server, store, max_characters=100).prefer(["q"], ["x" * 5000], ["y" * 5000]).tolist() == [1]
    shown = server.bodies[0]["messages"][1]["content"]
    assert shown.count("x") == 100 and shown.count("y") < 110


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A", 1), (" b\n", 0), ("TIE", 0.5), ("**A**", 1), ('"B".', 0), ("Document A", 1), ("document_B", 0),
        ("Answer: B", 0), ("(A)", 1),
        ("AB", None), ("A B", None), ("Apple", None), ("neither", None), ("A, because B is worse", None),
        ("<think>A", None), ("", None),
    ],
)  # fmt: skip
def test_only_a_clear_answer_counts(text: str, value: float | None) -> None:
    assert verdict(text) == pytest.approx(np.nan if value is None else value, nan_ok=True)


def test_the_pipeline_gives_it_the_texts_and_its_answers_are_the_ratings(server: Server, store: Store) -> None:
    numbers = np.random.default_rng(0).permutation(1000)[:45].reshape(5, 9)
    documents = np.arange(45, dtype=np.int32).reshape(5, 9)
    block = block_of(documents[:, 1:], documents[:, :1])
    ids = block.query_ids
    settings = {"base_url": f"http://127.0.0.1:{server.server_address[1]}/v1", "model": "m"}
    recipe = {"description": "By Elo.", "negatives": 2, "steps": {"elo_gap": {"danger": 100}, "random": {}}}
    shards = CandidateShards.of([block])
    added, summary = rate_candidates(
        candidates=shards, evidence=ColumnShards(), judgments=ColumnShards(),
        corpus=pd.DataFrame({"title": "", "text": [f"number {number}" for number in numbers.ravel()]}),
        queries=pd.DataFrame({"query_id": ids, "text": ids}), store=store, recipe="by_elo",
        recipes=recipe_book({"by_elo": recipe}), seed=3,
        params=EloParams.model_validate({"judges": {}, "pairwise": {"m": settings}, "pairwise_judges": {"m": 1.0}}),
    )  # fmt: skip
    rated = shards.joined(added).whole()
    elo = np.concatenate([rated.positive_columns["elo"], rated.columns["elo"]], axis=1)
    # Nine documents at degree eight: everybody has met everybody.
    assert (elo.argsort(axis=1) == numbers.argsort(axis=1)).all() and np.isfinite(rated.columns["gap_se"]).all()
    assert set(summary) == {"temperatures", "slope", "votes", "options"}
