"""What judges are called in the store, for whoever looks at what fills it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from anmi.judging.chat import ChatJudge, ChatOptions
from anmi.judging.pointwise import JudgeOptions, join, load_pointwise
from anmi.judging.teacher import TeacherOptions, TrainedCrossEncoder, fold_of, training_pairs
from anmi.store import Store

Make = Callable[..., Path]
PAIRS = [join("why the fox sleeps", "foxes sleep by day"), join("how a river grows", "rivers grow in spring")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


def shown(store: Store) -> dict[str, str]:
    """Names by fingerprint."""
    return {record.fingerprint: record.name for record in store.stats().records}


def test_a_ready_made_cross_encoder_is_called_as_its_folder(
    store: Store, tmp_path: Path, text_pair_classifier: Make
) -> None:
    judge = load_pointwise(JudgeOptions(base=str(text_pair_classifier("my judge"))), tmp_path)
    judge.score(PAIRS, store)
    assert shown(store) == {judge.fingerprint: "my judge"}


def test_a_bi_encoder_is_called_as_in_mining_and_by_its_prompts(store: Store, tmp_path: Path) -> None:
    options = JudgeOptions(base="minilm", kind="bi_encoder", max_length=16, prompt_query="query: ")
    load_pointwise(options, tmp_path).score(PAIRS, store)
    assert sorted(shown(store).values()) == ["minilm", 'minilm "query:"']


def test_teachers_are_called_by_their_folds_and_layers(store: Store, tmp_path: Path) -> None:
    texts = [f"query {number}" for number in range(40)]
    rows = [(text, text, f"{label} {text}", label) for text in texts for label in (0, 1)]
    table = pd.DataFrame(rows, columns=["row", "query", "document", "label"])
    table["fold"] = fold_of(table["query"].tolist(), 2, 0)
    assert set(table.fold) == {0, 1}
    for held_out in (0.0, 0.4):
        options = TeacherOptions(folds=2, layers=1, max_length=16, max_pairs=40, held_out=held_out)
        pairs = [training_pairs(table, fold, options, 0) for fold in range(2)]
        assert [each.held_out is not None for each in pairs] == [held_out > 0] * 2
        teachers = [TrainedCrossEncoder(options, tmp_path, each, 0) for each in pairs]
        assert [teacher.name for teacher in teachers] == [
            f"cross-encoder minilm, layers 1, fold {fold}" for fold in range(2)
        ]
    teachers[1].score(PAIRS, store)
    assert shown(store) == {teachers[1].fingerprint: "cross-encoder minilm, layers 1, fold 1"}


def test_the_fold_of_a_teacher_is_no_part_of_what_it_is(tmp_path: Path) -> None:
    """Teachers that were trained before they had names are found again."""
    rows = [("q", "a", "yes", 1, 2), ("q", "a", "no", 0, 2)]
    table = pd.DataFrame(rows, columns=["row", "query", "document", "label", "fold"])
    options = TeacherOptions()
    same = [TrainedCrossEncoder(options, tmp_path, training_pairs(table, fold, options, 0), 0) for fold in range(2)]
    assert same[0].fingerprint == same[1].fingerprint


class FirstIsBetter(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        content = json.dumps({"choices": [{"message": {"role": "assistant", "content": "A"}}]}).encode()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def test_a_chat_judge_is_called_as_its_model_and_not_by_its_address(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_KEY", "sk-do-not-tell")
    server = HTTPServer(("127.0.0.1", 0), FirstIsBetter)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        options = ChatOptions(base_url=address, model="some-large-model", key_variable="CHAT_KEY", retries=0)
        judge = ChatJudge(options, store, 0)
        judge.prefer(["q"], ["one"], ["two"])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert shown(store) == {judge.fingerprint: "some-large-model"}
