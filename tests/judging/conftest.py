"""Small models on disk, of the real kinds, and a chat endpoint on this machine that does what it is told."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anmi.candidates import Candidates
from anmi.store import Store

Make = Callable[..., Path]


def save_classifier(
    folder: Path,
    labels: int = 1,
    seed: int = 0,
    broken: bool = False,
    longest: int = 512,
    bias: float = 0,
) -> Path:
    """Save a BERT of one narrow layer with random weights that classifies pairs of texts, as its authors would."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    from anmi.retrieval.kinds import quiet
    from anmi.retrieval.model_folder import minilm_folder

    torch.manual_seed(seed)
    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=labels,
        max_position_embeddings=longest,
        initializer_range=0.7,
    )
    model = BertForSequenceClassification(config)
    model.classifier.bias.data.add_(bias)
    if broken:
        model.classifier.weight.data.fill_(float("nan"))
    with quiet():
        model.save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(minilm_folder(), model_max_length=longest)
        tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def text_pair_classifier(tmp_path: Path) -> Make:
    """Save a classifier under a name."""
    return lambda name, **settings: save_classifier(tmp_path / name, **settings)


SHOWN = re.compile(
    r"<query>\n(.*)\n</query>\n<document_A>\n(.*)\n</document_A>\n<document_B>\n(.*)\n</document_B>"
)


def block_of(
    documents: Any,
    positives: Any,
    columns: Mapping[str, Any] | None = None,
    own: Mapping[str, Any] | None = None,
) -> Candidates:
    """Queries q0, q1, … with these documents, known positives and scores of both."""
    names = np.array([f"q{row}" for row in range(len(documents))])
    shown, known = np.asarray(documents, np.int32), np.asarray(positives, np.int32)
    block = Candidates(names, known, shown, np.ones(shown.shape, np.uint8))
    return block.with_columns(columns or {}, own or {})


def completion(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


def honest(body: dict[str, Any]) -> str:
    """The document with the larger number wins."""
    shown = SHOWN.search(body["messages"][-1]["content"])
    assert shown is not None
    first, second = (int(text.split()[-1]) for text in shown.groups()[1:])
    return "TIE" if first == second else "A" if first > second else "B"


class Server(ThreadingHTTPServer):
    """Answers by ``behave(number of the request, body)``: status, headers and content, or None to hang up."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behave: Callable[[int, dict[str, Any]], tuple[int, dict[str, str], bytes] | None] = (
            self.well
        )
        self.lock = threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.under_way = self.most_under_way = 0
        self.closing = threading.Event()

    @staticmethod
    def well(number: int, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, completion(honest(body))

    def says(self, text: str) -> None:
        self.behave = lambda number, body: (200, {}, completion(text))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            number = len(server.bodies)
            server.bodies.append(body | {"path": self.path})
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
        try:
            reply = server.behave(number, body)
        finally:
            with server.lock:
                server.under_way -= 1
        self.close_connection = True
        if reply is None:
            return
        status, headers, content = reply
        self.send_response(status)
        standard = {"Content-Length": str(len(content)), "Content-Type": "application/json"}
        for name, value in (standard | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as running:
        threading.Thread(
            target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        yield running
        running.closing.set()
        running.shutdown()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened
