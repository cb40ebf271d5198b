"""A language model as a generator, asked through the real endpoint of a local server."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from anmi.errors import AnmiError
from anmi.judging.endpoint import Endpoint, EndpointOptions
from anmi.retrieval.variants.build import ChatGenerator, edit_in


class Handler(BaseHTTPRequestHandler):
    """Says what the server was told to say to a text."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        text = question.removeprefix("<text>\n").removesuffix("\n</text>")
        self.server.asked.append(text)  # type: ignore[attr-defined]
        answer = self.server.answers.get(text)  # type: ignore[attr-defined]
        content = json.dumps({"choices": [{"message": {"content": answer}}]}).encode()
        self.send_response(200 if answer is not None else 400)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked, running.answers = [], {}  # type: ignore[attr-defined]
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield running
        running.shutdown()


def generator(server: Any, **options: Any) -> ChatGenerator:
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    settings = EndpointOptions(base_url=address, model="writer", retries=0, max_tokens=256)
    return ChatGenerator(Endpoint(settings).ask, **options)


def test_edits_come_back_to_the_texts_they_are_of(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"The number of ships in port {i} is {i}." for i in range(20)]
    server.answers |= {text: text.replace("ships", "cars") for text in texts[:18]} | {texts[18]: texts[18]}
    with caplog.at_level(logging.WARNING):
        found = generator(server).edit(texts)
    assert found == [[text.replace("ships", "cars")] for text in texts[:18]] + [[], []]
    assert sorted(server.asked) == sorted(texts)
    assert "2 of 20 texts were not edited (1 × " in caplog.text


def test_what_is_too_long_or_empty_is_not_asked(server: Any) -> None:
    server.answers["brief text"] = "short text"
    assert generator(server, max_characters=20).edit(["brief text", "a" * 21, " "]) == [["short text"], [], []]
    assert server.asked == ["brief text"]
    assert generator(server).edit([]) == []


def test_a_wrong_address_is_said_at_once(server: Any) -> None:
    settings = EndpointOptions(base_url="http://127.0.0.1:9/v1", model="writer", retries=0)
    assert ChatGenerator(Endpoint(settings).ask).edit(["text"]) == [[]]
    with pytest.raises(AnmiError, match="ANMI_NO_SUCH_KEY"):
        Endpoint(EndpointOptions(base_url="http://127.0.0.1:9/v1", model="w", key_variable="ANMI_NO_SUCH_KEY"))


@pytest.mark.parametrize(
    ("answer", "edit"),
    [
        ("It is green.", "It is green."),
        ("<think>It is red. Blue?</think>\n<text>\nIt is blue.\n</text>\n", "It is blue."),
        ("  It  is red. ", None),
        ("Sorry, I cannot make this text false, since it is true in all possible worlds.", None),
        ("", None),
        ("No", None),
    ],
)
def test_an_answer_that_is_no_edit_is_none(answer: str, edit: str | None) -> None:
    assert edit_in(answer, "It is red.") == edit
