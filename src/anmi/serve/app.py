"""The page shows search, queries, candidates and marks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import jinja2
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
from anmi.report.console import NOTHING_MINED
from anmi.report.sentences import training_notice
from anmi.serve.guard import Guard, Guarded
from anmi.serve.marking import typed_query
from anmi.serve.run import Run

_FOLDER: Final = Path(__file__).parent
_PAGE: Final = 50
_CANDIDATES: Final = 30
_LONGEST_QUESTION: Final = 2_000
_LONGEST_ID: Final = 1_000
_OFFERED: Final = 20


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


def create_app(
    run: Run,
    marks: Path,
    by: str,
    guard: Guard,
) -> Guarded:
    """Return the application.

    Parameters
    ----------
    run
        The run that is shown.
    marks
        The file that marks are added to.
    by
        The name of who marks.
    guard
        The guard of requests.
    """
    # No page of FastAPI's own: its scripts come from elsewhere.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.mount("/static", StaticFiles(directory=_FOLDER / "static"))
    show = _renderer(run, guard)
    _errors(app, show)
    _pages(app, run, marks, show)

    @app.post("/api/mark")
    def mark(new: NewMark) -> dict[str, Any]:
        question_ids = set(questions(read_log(marks))["query_id"])
        text = ""
        if new.question:
            question_id, text = question_of(_question(new.question))
            is_known = run.query_of(text)[0] == new.query_id == question_id
            if not (text and new.split and is_known):
                raise AnmiError(
                    "the question is another one, or has no text or split: search for it again"
                )
            question_ids.add(question_id)
        run.check_pair(new.query_id, new.document_id, question_ids)
        relevance: Relevance | None = None
        if new.relevance is not None:
            relevance = 1 if new.relevance else 0
        entry = Mark(
            new.query_id,
            new.document_id,
            relevance,
            by,
            question=text,
            split=new.split,
        )
        stored = add(marks, entry)
        return {"relevance": stored.relevance, "at": stored.at, "by": stored.by}

    @app.get("/api/search")
    def search(q: str, k: Annotated[int, Query(ge=1, le=100)] = 10) -> Response:
        hits = run.hits(_question(q), k)
        return _json({system: [hit.as_dict() for hit in best] for system, best in hits.items()})

    return Guarded(app, guard)


def _pages(
    app: FastAPI,
    run: Run,
    marks: Path,
    show: Callable[..., Response],
) -> None:
    @app.get("/")
    def search(q: str = "", k: Annotated[int, Query(ge=1, le=50)] = 10) -> Response:
        log = read_log(marks)
        splits = questions(log).set_index("query_id")["split"]
        values: dict[str, Any] = {"found": {}, "query_id": None, "split": None, "own": False}
        if q.strip():
            values = _search_values(run, q, k, log)
        offered = [] if q.strip() or run.search is None else run.offered
        offered = [text for text in offered if question_of(text)[0] not in splits.index]
        return show(
            "search",
            **values,
            question=q,
            k=k,
            said=_relevance(log, values["query_id"]),
            there=run.search is not None,
            unchanged=run.search and training_notice(run.search.settings.get("unchanged")),
            labels=run.labels_of(values["query_id"]),
            offered=offered[:_OFFERED],
            asked=splits.value_counts().to_dict(),
        )

    @app.get("/queries")
    def queries(find: str = "", page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> Response:
        names_and_texts = (run.overview["query_id"] + "\n" + run.overview["text"]).str.lower()
        is_match = names_and_texts.str.contains(find.strip().lower(), regex=False).astype(bool)
        table = run.overview[is_match]
        mark_counts = current_marks(read_log(marks))["query_id"].value_counts()
        start = (page - 1) * _PAGE
        rows = table.iloc[start : start + _PAGE].to_dict("records")
        for row in rows:
            row["marks"] = int(mark_counts.get(row["query_id"], 0))
        return show(
            "queries",
            rows=rows,
            find=find,
            page=page,
            pages=_page_count(table),
            total=len(table),
            nothing_mined=NOTHING_MINED,
            judged=bool(len(run.overview)) and bool(run.overview["uncertainty"].max() > 0),
            first=start,
        )

    @app.get("/query")
    def query(id: str, every: bool = False) -> Response:
        decisions = run.explained(id)
        candidates = sorted(
            decisions["candidates"],
            key=lambda candidate: (-candidate["uncertainty"], candidate["place"]),
        )
        query_ids = run.overview["query_id"].tolist()
        number = query_ids.index(id)
        return show(
            "query",
            query=decisions,
            said=_relevance(read_log(marks), id),
            every=every,
            candidates=candidates if every else candidates[:_CANDIDATES],
            before=query_ids[number - 1] if number else None,
            after=query_ids[number + 1] if number + 1 < len(query_ids) else None,
        )

    @app.get("/document")
    def document(id: str) -> Response:
        return show("document", document=run.document(id))

    @app.get("/marks")
    def log_of_marks(page: Annotated[int, Query(ge=1, le=10**6)] = 1) -> Response:
        log = read_log(marks)
        texts = questions(log).set_index("query_id")["text"].to_dict()
        last = {(mark.query_id, mark.document_id): number for number, mark in enumerate(log)}
        newest = list(enumerate(log))[::-1][(page - 1) * _PAGE : page * _PAGE]
        rows = []
        for number, mark in newest:
            is_last = last[mark.query_id, mark.document_id] == number
            rows.append({"mark": mark, "stands": is_last and mark.relevance is not None})
        return show(
            "marks",
            rows=rows,
            asked=texts,
            total=len(log),
            file=str(marks),
            page=page,
            pages=_page_count(log),
        )


def _search_values(
    run: Run,
    question: str,
    k: int,
    log: list[Mark],
) -> dict[str, Any]:
    """Return what a page shows of a question: hits by system, its query, and its split."""
    hits = run.hits(_question(question), k)
    query = typed_query(run, log, question)
    return {
        "found": hits,
        "query_id": query.query_id,
        "split": query.split,
        "own": query.is_question,
    }


def _page_count(rows: Sized) -> int:
    return max(1, math.ceil(len(rows) / _PAGE))


def _relevance(log: list[Mark], query_id: str | None) -> dict[str, int]:
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
    """Return a function that renders a template; all values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
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

    def user_error(request: Request, error: Exception) -> Response:
        return answer(request, 404 if request.method == "GET" else 409, str(error))

    def http_error(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = "there is no such page" if status == 404 else "that cannot be done here"
        return answer(request, status, text)

    def invalid(request: Request, error: Exception) -> Response:
        problem: dict[str, Any] = {"loc": (), "msg": "is wrong"}
        if isinstance(error, RequestValidationError):
            problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"][1:]))
        return answer(request, 422, f"{name}: {problem['msg']}")

    app.add_exception_handler(AnmiError, user_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)


def _json(value: Any, status: int = 200) -> Response:
    """Answer in ASCII, since JSON allows lone surrogates and UTF-8 does not."""
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")
