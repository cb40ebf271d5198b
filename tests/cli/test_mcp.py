"""``kedro anmi mcp``: what an agent gets of the last run or of a search folder, with the package's own client."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pandas as pd
import pytest
from tests.cli.conftest import ROOT, anmi, save, selection
from tests.commands import environment

from anmi.candidates import CandidateShards
from anmi.cli.mcp import make_server
from anmi.corpus.marks import read_log
from anmi.retrieval.bm25 import BM25Index
from anmi.search import HybridSearch, Part

mcp = pytest.importorskip("mcp", reason='the tools need the extra "mcp"')

CORPUS = pd.DataFrame(
    {
        "document_id": ["fox", "whale", "tree", "moss", "fern", "vine"],
        "title": "",
        "text": [f"a {word} of the north" for word in ("red fox", "whale", "tree", "moss", "", "")],
    }
)
QUERIES = pd.DataFrame(
    {"query_id": ["q-alpha", "q-test"], "text": ["red?", "blue?"], "split": ["train", "test"]}
)
RESULTS = {
    "collection": "api_docs",
    "recipe": "anmi",
    "unchanged": "the start was better on dev queries",
    "rows": [],
    "comparisons": [],
    "funnel": [],
}


@pytest.fixture
def search() -> HybridSearch:
    return HybridSearch.build([Part("bm25", BM25Index.build(CORPUS.text.tolist(), "en"))], CORPUS)


@pytest.fixture
def last_run(project: Path, search: HybridSearch) -> Path:
    save(
        search_index=search,
        corpus=CORPUS,
        queries=QUERIES,
        collection_info={"collection": "api_docs", "language": "en"},
        selection=CandidateShards.of([selection()]),
        results=RESULTS,
    )
    return project


def answer(result: Any) -> Any:
    """What a tool says: its document, or its error."""
    (content,) = result.content
    return content.text if result.is_error else json.loads(content.text)


def talk(server: Any, conversation: Callable[[Any], Any]) -> Any:
    """Do what a conversation with a server does; every line of the server is one of the protocol."""
    stray: list[Exception] = []

    async def listen(message: Any) -> None:
        stray.extend([message] if isinstance(message, Exception) else [])

    async def connect() -> Any:
        async with mcp.Client(server, message_handler=listen) as client:
            return await conversation(client)

    outcome = anyio.run(connect)
    assert not stray
    return outcome


def command(place: Path, words: str) -> Any:
    """The command as the documentation lets a client start it."""
    page = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
    block = re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0]
    block = block.replace("/path/to/anmi", str(ROOT))
    block = block.replace(".venv/bin/kedro", str(Path(sys.executable).with_name("kedro")))
    (settings,) = json.loads(block)["mcpServers"].values()
    settings["args"][-1] += f" {words}"
    places = environment(ANMI_DATA_ROOT=str(place / "data"), ANMI_STORE=str(place / "store"))
    return mcp.StdioServerParameters(**settings, env=places)


def test_an_agent_searches_and_reads_why_and_how_well(last_run: Path) -> None:
    async def conversation(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["search", "explain", "results"]
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        document = answer(await client.call_tool("search", {"query": "red fox", "k": 1}))
        assert document["run"] and document["hits"] == [
            {
                "rank": 1,
                "document_id": "fox",
                "passage_id": "fox",
                "title": "",
                "text": "a red fox of the north",
                "score": document["hits"][0]["score"],
                "ranks": {"bm25": 1},
                "copies": [],
            }
        ]
        explained = answer(await client.call_tool("explain", {"query": "q-alpha", "top": 1}))
        verdicts = {
            candidate["document_id"]: candidate["verdict"] for candidate in explained["candidates"]
        }
        assert verdicts == {"whale": "unsafe", "moss": "negative"}
        alone = {"query": "red", "document_id": "tree"}
        (candidate,) = answer(await client.call_tool("explain", alone))["candidates"]
        assert candidate["scores"]["bm25"] == 8
        verdict = answer(await client.call_tool("results", {}))
        assert verdict["sentences"][0].startswith("Training changed nothing")

    talk(make_server(None, False, None), conversation)


def test_a_newer_run_is_searched_without_starting_again(
    last_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anmi.cli.mcp._LOOKS_AGAIN", -1.0)

    async def conversation(client: Any) -> None:
        newer = CORPUS.assign(text="a wolf")
        part = Part("bm25", BM25Index.build(newer.text.tolist(), "en"))
        assert not answer(await client.call_tool("search", {"query": "wolf"}))["hits"]
        save(search_index=HybridSearch.build([part], newer))
        assert answer(await client.call_tool("search", {"query": "wolf"}))["hits"]

    talk(make_server(None, False, None), conversation)


def test_what_cannot_be_done_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def conversation(client: Any) -> None:
        schema = (await client.list_tools()).tools[0].input_schema
        assert schema["properties"]["k"]["maximum"] == 50
        for arguments, sentence in (
            ({"query": "fox", "k": 10_000}, "Input should be less than or equal to 50"),
            ({"query": ""}, "String should have at least 1 character"),
            ({"query": "fox"}, 'there is no "measured_search" yet: run `kedro run'),
        ):
            result = await client.call_tool("search", arguments)
            assert result.is_error and sentence in answer(result)
        result = await client.call_tool(
            "label", {"query": "a", "document_id": "b", "relevant": True}
        )
        assert answer(result) == "Unknown tool: label"

    talk(make_server(None, False, None), conversation)
    for words, sentence in (
        (("--search", "nowhere"), "nowhere is not there"),
        (("--search", "nowhere", "--write"), "a search folder has no marks"),
    ):
        done = anmi("mcp", *words)
        assert done.exit_code == 1 and sentence in done.stderr and not done.stdout
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert 'pip install "anmi-retrieval[mcp]"' in anmi("mcp").stderr


def test_marks_are_those_of_the_page(last_run: Path) -> None:
    async def conversation(client: Any) -> None:
        async def label(query: str, relevant: bool | None, document_id: str = "fox") -> Any:
            arguments = {"query": query, "document_id": document_id, "relevant": relevant}
            return answer(await client.call_tool("label", arguments))

        assert (await label("Red", True))["query_id"] == "q-alpha"
        assert (await label("which animal is red?", False))["split"] == "test"
        await label("which animal is red?", None)
        assert "it is a query of test" in await label("blue", True)
        assert "no such document" in await label("red", True, "cat")

    talk(make_server(None, True, None), conversation)
    (file,) = (last_run / "data").glob("**/marks/*.jsonl")
    log = read_log(file)
    assert [(mark.question, mark.relevance) for mark in log] == [
        ("", 1),
        ("which animal is red?", 0),
        ("which animal is red?", None),
    ]
    assert log[0].by.startswith("agent of ")


@pytest.mark.rare
def test_two_servers_that_mark_at_once_lose_nothing(last_run: Path) -> None:
    async def conversation(client: Any) -> None:
        for document_id in CORPUS.document_id:
            arguments = {"query": "red", "document_id": document_id, "relevant": True}
            assert not (await client.call_tool("label", arguments)).is_error

    async def together() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(2):
                client = mcp.Client(command(last_run, "--write"))
                group.start_soon(within, client)

    async def within(client: Any) -> None:
        async with client:
            await conversation(client)

    anyio.run(together)
    (file,) = (last_run / "data").glob("**/marks/*.jsonl")
    assert len(read_log(file)) == 2 * len(CORPUS)


@pytest.mark.rare
def test_a_search_folder_is_searched_and_a_warning_is_no_message(
    project: Path, search: HybridSearch
) -> None:
    search.parts["second"] = Part("second", search.parts["bm25"].index)
    search.save(project / "folder")
    next((project / "folder" / "second" / "index").iterdir()).unlink()

    async def conversation(client: Any) -> Any:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search"]
        return answer(await client.call_tool("search", {"query": "fox", "k": 2}))

    document = talk(command(project, f"--search {project}/folder"), conversation)
    assert [hit["document_id"] for hit in document["hits"]] == ["fox"]


@pytest.mark.rare
def test_ctrl_c_ends_it_while_it_waits(project: Path) -> None:
    settings = command(project, "")
    started = [settings.command, "-c", settings.args[-1]]
    running = subprocess.Popen(
        started,
        env=settings.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stderr is not None and b"Ctrl-C" in running.stderr.readline()
    time.sleep(2)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=10) == -signal.SIGINT
