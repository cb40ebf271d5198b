# mypy: allow-untyped-decorators
"""``kedro anmi mcp``: the last run, or a search folder, as tools for agents."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from kedro.framework.cli.utils import env_option
from pydantic import Field

from anmi import __version__
from anmi.cli.common import (
    SEARCHES,
    Saved,
    document_of,
    example,
    opened_project,
    plain_errors,
    user_error,
)
from anmi.cli.explain import explain
from anmi.cli.results import results
from anmi.cli.serve import run_to_mark, user
from anmi.errors import AnmiError, installed

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from anmi.search import HybridSearch

_MOST_HITS: Final = 50
_MOST_CANDIDATES: Final = 100
_LONGEST_QUERY: Final = 2_000
_LONGEST_ID: Final = 1_000
# Characters of a hit: a passage is shorter, a document that was not cut may be a book.
_LONGEST_TEXT: Final = 2_000
# Seconds after which a newer run is looked for: it takes longer than a search.
_LOOKS_AGAIN = 60.0
_SHOWN_OF_CANDIDATE: Final = ("place", "document_id", "start", "verdict", "why", "weight")
_INSTRUCTIONS: Final = (
    "Search a collection of documents, and read how well the search does. Start with search; its"
    " hits hold the passages that answer."
)

Query = Annotated[str, Field(min_length=1, max_length=_LONGEST_QUERY)]
DocumentId = Annotated[str, Field(max_length=_LONGEST_ID)]
HitCount = Annotated[int, Field(ge=1, le=_MOST_HITS)]
CandidateCount = Annotated[int, Field(ge=0, le=_MOST_CANDIDATES)]


@click.command(
    short_help="Give agents tools to search and to read results (MCP).",
    epilog=example("kedro anmi mcp"),
)
@click.option(
    "--search",
    "folder",
    type=click.Path(path_type=Path, resolve_path=True),
    metavar="FOLDER",
    help="Offer the search of this folder instead of the last run.",
)
@click.option("--write", is_flag=True, help="Offer label as well, which adds marks.")
@env_option
def mcp(folder: Path | None, write: bool, env: str | None) -> None:
    """Offer search, explain and results of the last run to an agent, which starts this command.

    The tools speak the Model Context Protocol on the standard input and output. They write
    nothing; with --write there is also label, whose marks become labels of the next run.
    """
    with plain_errors():
        # The standard output belongs to the protocol; while the server runs, it sees to that.
        with redirect_stdout(sys.stderr):
            server = make_server(folder, write, env)
        click.echo("an agent talks to this command; Ctrl-C ends it", err=True)
        # What waits for a message would wait after Ctrl-C as well.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.run()


def make_server(folder: Path | None, write: bool, env: str | None) -> MCPServer:
    """Return the server that the command runs.

    Raises
    ------
    AnmiError
        The package mcp is not installed, or the folder holds no search or is to be written to.
    """
    installed("mcp.server", "a server of tools for agents", "mcp")
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    if folder is not None and write:
        raise AnmiError("a search folder has no marks: leave out --write, or --search")
    tools = [_FolderTools(folder).search] if folder else _LastRunTools(env).offered(write)
    server = MCPServer("anmi", instructions=_INSTRUCTIONS, version=__version__)
    calling = Lock()
    for tool in tools:
        hints = ToolAnnotations(
            read_only_hint=tool.__name__ != "label",
            destructive_hint=False,
            open_world_hint=False,
        )
        server.add_tool(_answering(tool, calling), annotations=hints)
    return server


def _answering(tool: Callable[..., Any], calling: Lock) -> Callable[..., Any]:
    """Return a tool that takes one call at a time, and answers an error with its sentence."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def call(**arguments: Any) -> Any:
        # Indexes and models are not all made for several threads.
        with calling:
            try:
                return tool(**arguments)
            except Exception as error:
                if (sentence := user_error(error)) is None:
                    raise
                raise ToolError(sentence) from error

    return call


def _hits(search: HybridSearch, query: str, k: int) -> list[dict[str, Any]]:
    from anmi.corpus.sentences import excerpt

    (hits,) = search.search(query, k)
    documents = []
    for hit in hits:
        document = hit.as_dict()
        del document["scores"]
        documents.append(document | {"text": excerpt(hit.text, query, _LONGEST_TEXT)})
    return documents


class _FolderTools:
    """The tool of a search folder, which is opened at once."""

    def __init__(self, folder: Path) -> None:
        from anmi.search import HybridSearch

        self._opened = HybridSearch.load(folder)

    def search(self, query: Query, k: HitCount = 5) -> dict[str, Any]:
        """Search the documents, and return the best k, each with the passage that answers.

        A hit has document_id, passage_id, title, text, its score, and its rank in each part of
        the search. Ask with a question or with its words.
        """
        return {"hits": _hits(self._opened, query, k)}


@dataclass(frozen=True)
class _Opened:
    """The search of a run, where it lies, of which run it is, and how long it is the newest."""

    place: str
    search: HybridSearch
    whereabouts: dict[str, str]
    until: float


class _LastRunTools:
    """The tools of the last run, which look for a newer one again and again."""

    def __init__(self, env: str | None) -> None:
        self._env = env
        self._opened: _Opened | None = None

    def offered(self, write: bool) -> list[Callable[..., Any]]:
        tools: list[Callable[..., Any]] = [self.search, self.explain, self.results]
        return [*tools, self.label] if write else tools

    def search(self, query: Query, k: HitCount = 5) -> dict[str, Any]:
        """Search the last run's collection, and return the best k documents.

        A hit has document_id, passage_id, title, the text of the passage that answers, its score,
        and its rank in each part of the search. Ask with a question or with its words.
        """
        if self._opened is None or monotonic() > self._opened.until:
            self._opened = self._newest()
        return self._opened.whereabouts | {"hits": _hits(self._opened.search, query, k)}

    def _newest(self) -> _Opened:
        with opened_project(self._env) as context:
            saved = Saved(context, *SEARCHES)
            name = saved.first(*SEARCHES)
            place = saved.places(name).get(name, "")
            if self._opened is not None and self._opened.place == place:
                search = self._opened.search
            else:
                search = saved.load(name, "evaluation")
            until = monotonic() + _LOOKS_AGAIN
            return _Opened(place, search, saved.whereabouts(name), until)

    def explain(
        self, query: Query, top: CandidateCount = 10, document_id: DocumentId | None = None
    ) -> dict[str, Any]:
        """Say which candidates of a mined query became negatives, and which rule decided.

        query is the id of a query or its text. The first top candidates are returned, and all
        negatives; with document_id everything that is known of that document.
        """
        with opened_project(self._env) as context:
            arguments = {"query": query, "top": top, "document_id": document_id, "run_id": None}
            document = document_of(explain, context, **arguments)
        if document_id is not None:
            return dict(document)
        candidates = [
            {name: candidate[name] for name in _SHOWN_OF_CANDIDATE}
            for candidate in document["candidates"]
            if candidate["place"] <= top or candidate["verdict"] == "negative"
        ]
        return document | {"candidates": candidates}

    def results(self) -> dict[str, Any]:
        """Say how well the last run's search does, against BM25 and against no training.

        Read sentences first: they hold the verdict, with intervals and p-values, and what weakens
        it. rows holds nDCG@10 by system and bucket: of documents with training labels, of those
        without, and of new ones.
        """
        from anmi.report.sentences import METRIC

        with opened_project(self._env) as context:
            document = document_of(results, context, run_id=None)
        names = ("collection", "recipe", "run", "sentences")
        columns = ("recipe", "bucket", "queries", "value", "low", "high")
        rows = [
            {column: row[column] for column in columns if column in row}
            for row in (document["rows"] if "comparisons" in document else ())
            if row["metric"] == METRIC
        ]
        return {name: document[name] for name in names if name in document} | {"rows": rows}

    def label(self, query: Query, document_id: DocumentId, relevant: bool | None) -> dict[str, Any]:
        """Mark a document as relevant (true) or not (false) for a query; null takes that back.

        query is the text that was searched for. Marks become labels of the next run; queries of
        the test split cannot be marked.
        """
        from anmi.corpus.marks import Relevance, add, read_log
        from anmi.serve.marking import mark_of

        with opened_project(self._env) as context:
            file, run = run_to_mark(context)
        relevance: Relevance | None = None
        if relevant is not None:
            relevance = 1 if relevant else 0
        mark = mark_of(run, read_log(file), query, document_id, relevance, f"agent of {user()}")
        stored = add(file, mark)
        return {name: getattr(stored, name) for name in ("query_id", "split", "at")}
