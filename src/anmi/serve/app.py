"""The page shows search, queries, candidates and marks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import jinja2
import pandas as pd
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from anmi.corpus.marks import Mark, Relevance, add, current_marks, question_of, questions, read_log
from anmi.corpus.sentences import excerpt
from anmi.errors import AnmiError, visible
from anmi.evaluation.generalisation import FEW
from anmi.report.sentences import training_notice
from anmi.serve.guard import Guard, Guarded
from anmi.serve.run import Run

_HERE: Final = Path(__file__).parent
_PAGE: Final = 50
_CANDIDATES: Final = 30
_LONGEST_QUESTION: Final = 2_000
_LONGEST_ID: Final = 1_000
_OFFERED: Final = 20
_EVERY: Final = 5


class NewMark(BaseModel):
    """A mark as the browser sends it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query_id: str = Field(max_length=_LONGEST_ID)
    document_id: str = Field(max_length=_LONGEST_ID)
    # Not Literal[0, 1], which takes true for 1.
    relevance: int | None = Field(ge=0, le=1)
    # Of what somebody typed and is no query of the collection.
    question: str = ""
    split: Literal["", "train", "test"] = ""


def create_app(run: Run, marks: Path, by: str, guard: Guard) -> Guarded:
    """Return the application.

    Parameters
    ----------
    run
        What is shown.
    marks
        The file that marks are added to.
    by
        Who marks.
    guard
        What is asked of requests.
    """
    # No page of FastAPI's own: its scripts come from elsewhere.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.mount("/static", StaticFiles(directory=_HERE / "static"))
    show = _renderer(run, guard)
    _errors(app, show)
    _pages(app, run, marks, show)

    @app.post("/api/mark")
    def mark(asked: NewMark) -> dict[str, Any]:
        known = set(questions(read_log(marks))["query_id"])
        text = ""
        if asked.question:
            name, text = question_of(_question(asked.question))
            if not (text and asked.split and run.query_of(text)[0] == asked.query_id == name):
                raise AnmiError(
                    "the question is another one, or has no text or split: search for it again"
                )
            known.add(name)
        run.check_pair(asked.query_id, asked.document_id, known)
        said: Relevance | None = None if asked.relevance is None else 1 if asked.relevance else 0
        made = add(
            marks,
            Mark(asked.query_id, asked.document_id, said, by, question=text, split=asked.split),
        )
        return {"relevance": made.relevance, "at": made.at, "by": made.by}

    @app.get("/api/search")
    def search(q: str, k: Annotated[int, Query(ge=1, le=100)] = 10) -> Response:
        found = run.found(_question(q), k)
        return _json({system: [hit.as_dict() for hit in hits] for system, hits in found.items()})

    return Guarded(app, guard)


def _pages(app: FastAPI, run: Run, marks: Path, show: Callable[..., Response]) -> None:
    @app.get("/")
    def search(q: str = "", k: Annotated[int, Query(ge=1, le=50)] = 10) -> Response:
        log = read_log(marks)
        asked = questions(log).set_index("query_id")["split"]
        found = {}
        name = None
        split = None
        own = False
        if q.strip():
            found = run.found(_question(q), k)
            (name, split) = run.query_of(q)
            own = bool(question_of(q)[1]) and (split is None or name in asked.index)
            split = asked.get(name, _next_split(log, asked)) if own else split
        offered = [] if q.strip() or run.search is None else run.offered
        offered = [text for text in offered if question_of(text)[0] not in asked.index][:_OFFERED]
        return show(
            "search",
            question=q,
            k=k,
            found=found,
            said=_said(log, name),
            there=run.search is not None,
            unchanged=run.search and training_notice(run.search.settings.get("unchanged")),
            query_id=name,
            split=split,
            own=own,
            labels=run.labels_of(name),
            offered=offered,
            asked=asked.value_counts().to_dict(),
        )

    @app.get("/queries")
    def queries(find: str = "", page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> Response:
        named = (run.overview["query_id"] + "\n" + run.overview["text"]).str.lower()
        table = run.overview[named.str.contains(find.strip().lower(), regex=False).astype(bool)]
        standing_marks = current_marks(read_log(marks))["query_id"].value_counts()
        rows = table.iloc[(page - 1) * _PAGE : page * _PAGE].to_dict("records")
        for row in rows:
            row["marks"] = int(standing_marks.get(row["query_id"], 0))
        pages = max(1, -(-len(table) // _PAGE))
        judged = bool(len(run.overview)) and bool(run.overview["uncertainty"].max() > 0)
        return show(
            "queries",
            rows=rows,
            find=find,
            page=page,
            pages=pages,
            total=len(table),
            judged=judged,
            first=(page - 1) * _PAGE,
        )

    @app.get("/query")
    def query(id: str, every: bool = False) -> Response:
        told = run.explained(id)
        ordered = sorted(
            told["candidates"],
            key=lambda candidate: (-candidate["uncertainty"], candidate["place"]),
        )
        names = run.overview["query_id"].tolist()
        here = names.index(id)
        return show(
            "query",
            query=told,
            said=_said(read_log(marks), id),
            every=every,
            candidates=ordered if every else ordered[:_CANDIDATES],
            before=names[here - 1] if here else None,
            after=names[here + 1] if here + 1 < len(names) else None,
        )

    @app.get("/document")
    def document(id: str) -> Response:
        return show("document", document=run.document(id))

    @app.get("/marks")
    def made(page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> Response:
        log = read_log(marks)
        asked = questions(log).set_index("query_id")["text"].to_dict()
        stands = {(mark.query_id, mark.document_id): number for number, mark in enumerate(log)}
        newest = list(enumerate(log))[::-1][(page - 1) * _PAGE : page * _PAGE]
        rows = [
            {
                "mark": mark,
                "stands": (
                    stands[mark.query_id, mark.document_id] == number and mark.relevance is not None
                ),
            }
            for number, mark in newest
        ]
        pages = max(1, -(-len(log) // _PAGE))
        return show(
            "marks", rows=rows, asked=asked, total=len(log), file=str(marks), page=page, pages=pages
        )


def _next_split(log: list[Mark], asked: pd.Series) -> str:
    """Return the split of a new question: test until 20 can measure, then every fifth of those with an answer."""
    table = current_marks(log)
    answered = asked[asked.index.isin(table["query_id"][table["relevance"] == 1])]
    few = (answered == "test").sum() < FEW
    return "test" if few or len(answered) % _EVERY == _EVERY - 1 else "train"


def _said(log: list[Mark], query_id: str | None) -> dict[str, int]:
    """Return the current marks of a query, by document."""
    table = current_marks(mark for mark in log if mark.query_id == query_id)
    return dict(zip(table["document_id"], table["relevance"].astype(int), strict=True))


def _question(text: str) -> str:
    if not text.strip():
        raise AnmiError("the question is empty: ask something")
    if len(text) > _LONGEST_QUESTION:
        raise AnmiError(
            f"the question has {len(text):,} characters: ask with {_LONGEST_QUESTION:,} at most"
        )
    return text.encode("utf-8", "replace").decode()


def _renderer(run: Run, guard: Guard) -> Callable[..., Response]:
    """Return what renders a template; all values are escaped, and no character of them commands the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters["number"] = lambda value: "–" if value is None else f"{value:.3g}"
    environment.filters["excerpt"] = excerpt
    # Long ids break between their words.
    environment.filters["words"] = lambda text: Markup("<wbr>").join(
        re.split(r"(?<=[-._/:#])(?=\w)", visible(text))
    )
    shared = {"run": run, "csrf": guard.csrf}

    def show(template: str, status: int = 200, **values: Any) -> Response:
        text = environment.get_template(f"{template}.html.jinja").render(
            shared | values, here=template
        )
        return HTMLResponse(text.encode("utf-8", "replace"), status)

    return show


def _errors(app: FastAPI, show: Callable[..., Response]) -> None:
    """Answer what is wrong in one sentence, to a browser on a page of its own."""

    def answer(request: Request, status: int, text: str) -> Response:
        if request.url.path.startswith("/api/"):
            return _json({"error": text}, status)
        return show("error", status, reason=text)

    def plain(request: Request, error: Exception) -> Response:
        return answer(request, 404 if request.method == "GET" else 409, str(error))

    def other(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return answer(
            request,
            status,
            "there is no such page" if status == 404 else "that cannot be done here",
        )

    def invalid(request: Request, error: Exception) -> Response:
        first = (
            error.errors()[0]
            if isinstance(error, RequestValidationError)
            else {"loc": (), "msg": "is wrong"}
        )
        return answer(request, 422, f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}")

    app.add_exception_handler(AnmiError, plain)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, other)


def _json(value: Any, status: int = 200) -> Response:
    """Answer in ASCII, since JSON allows lone surrogates and UTF-8 does not."""
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")
