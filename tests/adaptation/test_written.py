"""A language model that writes queries, asked through the real client of a local server that misbehaves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.judging.conftest import Server, completion

from anmi.adaptation.kinds import KINDS, Document, Material
from anmi.adaptation.written import Writer, queries_in
from anmi.errors import AnmiError
from anmi.judging.endpoint import Endpoint, EndpointOptions
from anmi.store import Store

DOCUMENTS = [Document(f"d{n}", f"Title {n}", f"Text number {n}.", "en") for n in range(30)]


def answer(number: int, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """Two queries that name the document."""
    text = body["messages"][1]["content"].splitlines()[1]
    return 200, {}, completion(f"1. who wrote {text}\n2. {text} meaning")


def expected(document: Document) -> list[str]:
    text = f"{document.title} {document.text}"
    return [f"who wrote {text}", f"{text} meaning"]


@pytest.fixture
def server(server: Server) -> Server:
    server.behave = answer
    return server


def writer(server: Server, store: Store, budget: int = 100, queries: int = 2) -> Writer:
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    ask = Endpoint(EndpointOptions(base_url=address, model="writer", timeout=5.0, retries=1, max_tokens=256)).ask
    return Writer(ask, store, ("writer", address), budget=budget, max_characters=100, queries=queries)


def test_each_document_is_asked_about_once_and_the_answers_are_kept(server: Server, store: Store) -> None:
    found = writer(server, store).write(DOCUMENTS, 1)
    assert found == {document.document_id: expected(document) for document in DOCUMENTS}
    assert len(server.bodies) == 30 and "write 2 different queries" in server.bodies[0]["messages"][0]["content"]
    assert writer(server, store).write(DOCUMENTS[::-1], 1) == found and len(server.bodies) == 30
    writer(server, store, queries=3).write(DOCUMENTS[:1], 1)
    assert len(server.bodies) == 31, "another prompt has other answers"
    make = KINDS["llm"](Material(DOCUMENTS, "en", write=lambda documents: writer(server, store).write(documents, 1)))
    assert make(DOCUMENTS[4], 1, 0) == [(expected(DOCUMENTS[4])[0], "Title 4 Text number 4.")]
    with pytest.raises(AnmiError, match=r"set adaptation\.llm\.base_url"):
        KINDS["llm"](Material(DOCUMENTS, "en"))


def test_the_budget_bounds_the_calls_and_a_larger_one_holds_the_smaller(server: Server, store: Store) -> None:
    few = writer(server, store, budget=7).write(DOCUMENTS, 1)
    assert len(few) == len(server.bodies) == 7
    assert writer(server, store, budget=7).write(DOCUMENTS, 1) == few and len(server.bodies) == 7
    more = writer(server, store, budget=12).write(DOCUMENTS, 1)
    assert few.items() <= more.items() and len(more) == len(server.bodies) == 12
    assert writer(server, store, budget=0).write(DOCUMENTS, 1) == {}


def test_answers_of_any_length_and_language_are_kept_in_whole_lines(server: Server, store: Store) -> None:
    lines = [f"{n} 今天下雨了吗 {'雨' * 50}" for n in range(40)]
    server.says("\n".join(lines) + "\n" + "x" * 5000)
    for _ in range(2):
        (found,) = writer(server, store).write(DOCUMENTS[:1], 1).values()
        assert 5 < len(found) < 40 and found == lines[: len(found)]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("- what is gout\n* gout diet\n", ["what is gout", "gout diet"]),
        ("1) 'gout'\n\n2) “gout pain”", ["gout", "gout pain"]),
        ("3 ways to treat gout\n2024 gout guideline", ["3 ways to treat gout", "2024 gout guideline"]),
        ("Here are some queries:\ngout", ["gout"]),
        ("", []),
        ("Sure, I can do that", []),
    ],
)
def test_lines_are_queries(text: str, queries: list[str]) -> None:
    assert queries_in(text) == queries
