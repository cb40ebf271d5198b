import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi", reason='the page needs the extra "serve"')

from starlette.testclient import TestClient
from tests.serve.conftest import HOSTILE, SCRIPT

from anmi.candidates import Candidates
from anmi.corpus.marks import Mark, add, current_marks, questions, read_log
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.index import build_index
from anmi.retrieval.kinds import EncoderSettings
from anmi.search import HybridSearch, Part
from anmi.serve.app import create_app
from anmi.serve.guard import CSRF_HEADER, LARGEST_BODY, Guard
from anmi.serve.run import Run, uncertainty

GUARD = Guard(csrf="secret-of-this-start")
OWN = {CSRF_HEADER: GUARD.csrf}


def client(run: Run, marks: Path) -> TestClient:
    app = create_app(run, marks, "tester", GUARD)
    return TestClient(app, base_url="http://127.0.0.1:8765")


@pytest.fixture
def page(run: Run, marks: Path) -> TestClient:
    return client(run, marks)


class Tags(HTMLParser):
    """Which elements and attributes a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


PAGES = [
    "/",
    "/queries",
    "/queries?find=plain",
    "/query?id=q1",
    "/query?id=q1&every=true",
    "/marks",
    f"/query?id={quote(SCRIPT)}",
    "/query?id=q%2F2%3F%26%23",
    *(f"/document?id={quote(n)}" for n in HOSTILE),
]


@pytest.mark.parametrize("path", PAGES)
def test_no_text_becomes_part_of_a_page(page: TestClient, path: str) -> None:
    page.post(
        "/api/mark", json={"query_id": SCRIPT, "document_id": "markup", "relevance": 1}, headers=OWN
    )
    answer = page.get(path)
    assert answer.status_code == 200
    for tag, attributes in Tags(answer.text).tags:
        assert tag != "img"
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        if tag == "script":
            assert attributes["src"] == "/static/marks.js"
        if "href" in attributes:
            assert str(attributes["href"]).startswith(("/", "#"))
    assert "\0" not in answer.text
    assert "\u202e" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(answer.content) < 2_000_000


def test_a_long_text_is_cut_where_it_is_one_of_many_and_all_of_it_is_a_page_away(
    page: TestClient,
) -> None:
    assert len(page.get("/query?id=q1&every=true").content) < 200_000
    text = page.get("/document?id=long").text
    assert "1,000,003 characters, cut after 200,000" in text


def test_the_most_uncertain_query_and_candidate_come_first(page: TestClient, run: Run) -> None:
    assert run.overview.query_id.tolist() == ["q1", "q/2?&#", SCRIPT]
    first = page.get("/query?id=q1").text.partition("Candidates")[2]
    # A negative that is relevant with 88 %; behind it the one that was rejected at about one half.
    assert first.index("<code><bdi>direction") < first.index("<code><bdi>attribute")


def test_uncertainty_is_of_what_a_mark_would_change() -> None:
    documents = np.array([[1, 2, 3, 4, -1]], np.int32)
    chance = np.array([[0.4, 0.5, 0.9, 0.9, 0.9]], np.float32)
    from anmi.candidates import Rule

    block = Candidates(
        np.array(["q"]),
        np.array([[0]], np.int32),
        documents,
        np.ones((1, 5), np.uint8),
        {"p_relevant": chance},
        verdict=np.array([[1, 2, 3, 0, 0]], np.int16),
        legend=("open", "negative", "denoise", "window"),
        rules={"denoise": Rule("", "unsafe"), "window": Rule("", "unwanted")},
    )
    assert (
        uncertainty(block).round(3).tolist()
        == np.array([[0.4, 1.0, 0, 0, 0]], np.float32).round(3).tolist()
    )
    marked = block.with_columns(
        {"marked": np.array([[0, np.nan, np.nan, np.nan, np.nan]], np.float32)}
    )
    assert uncertainty(marked)[0, 0] == 0
    assert not uncertainty(block.only([])).any()


def test_a_mark_is_kept_shown_and_taken_back(page: TestClient, marks: Path) -> None:
    pair = {"query_id": "q/2?&#", "document_id": "a/../b?c=d&e=f#g"}
    for relevance in (1, 0):
        answer = page.post("/api/mark", json=pair | {"relevance": relevance}, headers=OWN)
        assert answer.status_code == 200
        assert answer.json()["by"] == "tester"
    table = current_marks(read_log(marks))
    assert table[["query_id", "document_id", "relevance"]].to_dict("records") == [
        pair | {"relevance": 0}
    ]
    assert (
        'data-mark="0" aria-pressed="true"'
        in page.get(f"/query?id={quote(pair['query_id'], safe='')}").text
    )
    assert "1 marked" in page.get("/queries").text
    assert page.post("/api/mark", json=pair | {"relevance": None}, headers=OWN).status_code == 200
    assert current_marks(read_log(marks)).empty
    assert page.get("/marks").text.count("no longer stands") == 3


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ({"query_id": "t", "document_id": "plain-1"}, "a query of test"),
        ({"query_id": "?", "document_id": "plain-1"}, "no such query"),
        ({"query_id": "q1", "document_id": "?\u202e"}, "no such document"),
    ],
)
def test_what_may_not_be_marked_is_refused_in_a_sentence(page, marks, pair, said):
    answer = page.post("/api/mark", json=pair | {"relevance": 1}, headers=OWN)
    assert answer.status_code == 409
    assert said in answer.json()["error"]
    assert not marks.exists()


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"query_id": "q1", "document_id": "markup", "relevance": 2},
        {"query_id": "q1", "document_id": "markup"},
        {"query_id": "q1", "document_id": "markup", "relevance": True},
        {"query_id": ["q1"], "document_id": "markup", "relevance": 1},
        {"query_id": "half \ud800", "document_id": "markup", "relevance": 1},
        {"query_id": "q" * 2000, "document_id": "markup", "relevance": 1},
    ],
)
def test_what_is_no_mark_is_refused(page: TestClient, marks: Path, body: object) -> None:
    answer = page.post(
        "/api/mark", content=json.dumps(body), headers=OWN | {"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert not marks.exists()


BODY = {"query_id": "q1", "document_id": "markup", "relevance": 1}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({CSRF_HEADER: "of another start"}, 403),
        (OWN | {"origin": "https://evil.example"}, 403),
        (OWN | {"origin": "null"}, 403),
        (OWN | {"sec-fetch-site": "cross-site"}, 403),
        (OWN | {"content-type": "text/plain"}, 415),
        (OWN | {"host": "evil.example"}, 421),
        (OWN | {"host": "127.0.0.1.evil.example:8765"}, 421),
        (OWN | {"host": "", "origin": "http://"}, 421),
        (OWN | {"origin": "http://127.0.0.1:8765"}, 200),
        (OWN | {"host": "LOCALHOST:8765"}, 200),
        (OWN | {"host": "[::1]:8765"}, 200),
    ],
)
def test_only_the_page_itself_can_mark(
    page: TestClient, marks: Path, headers: dict[str, str], status: int
) -> None:
    assert page.post("/api/mark", json=BODY, headers=headers).status_code == status
    assert marks.exists() == (status == 200)


def test_a_request_that_is_long_or_of_unknown_length_is_refused(
    page: TestClient, marks: Path
) -> None:
    long = page.post("/api/mark", json=BODY | {"query_id": "x" * LARGEST_BODY}, headers=OWN)
    assert long.status_code == 413
    pieces = page.post(
        "/api/mark", content=iter([b"{}"]), headers=OWN | {"content-type": "application/json"}
    )
    assert pieces.status_code == 411
    assert page.put("/api/mark", json=BODY, headers=OWN).status_code == 405
    assert page.options("/api/mark", headers={"origin": "https://evil.example"}).status_code == 405
    assert not marks.exists()


@pytest.mark.parametrize(
    "path",
    [
        "/query?id=t",
        "/query?id=?",
        "/document?id=?",
        "/nothing",
        "/docs",
        "/openapi.json",
        "/?q=x",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
    ],
)
def test_what_is_not_there_is_said_on_a_page(page: TestClient, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code == 404
    assert "Macro" not in answer.text and re.search(
        r"<h1>That is not here</h1>\n<p>\w", answer.text
    )
    assert "Traceback" not in answer.text
    assert "create_app" not in answer.text


@pytest.fixture(scope="module")
def searching(run: Run) -> Run:
    """The run with a search by BM25 alone, of whose parts no model has to be loaded."""
    texts = [text[:2000] for text in run.corpus.text]
    index = BM25Index.build(texts, "en")
    corpus = run.corpus.assign(text=texts)
    settings = {"method": "convex", "weights": {"bm25": 1.0}, "depth": 10}
    parts = [Part("bm25", index)]
    return replace(run, search=HybridSearch(parts, pd.DataFrame(corpus), settings))


def test_what_the_encoder_found_before_training_stands_beside(
    searching: Run, marks: Path, static_models: Path
) -> None:
    from anmi.retrieval.encoders import Encoder
    from anmi.retrieval.index import DenseIndex
    from anmi.serve.run import ZeroShot

    table = Encoder(EncoderSettings(encoder="static"), static_models)
    assert table is not None
    texts = searching.corpus.text.str[:2000].tolist()
    vectors = table.encode(texts)
    index = DenseIndex.build(vectors, searching.corpus.document_id.tolist(), "flat", "")
    page = client(replace(searching, zero_shot=ZeroShot(index, table)), marks)
    found = page.get("/api/search?q=plain+number7&k=3").json()
    assert list(found) == ["zero_shot", "bm25", "hybrid"]
    scores = vectors @ table.encode(["plain number7"])[0]
    assert [hit["score"] for hit in found["zero_shot"]] == pytest.approx(
        sorted(scores, reverse=True)[:3]
    )
    best = found["zero_shot"][0]
    assert best["document_id"] == searching.corpus.document_id[int(scores.argmax())]
    assert (best["rank"], best["ranks"]) == (1, {"bm25": 1, "zero_shot": 1})
    assert "Encoder before training" in page.get("/?q=plain").text


def test_systems_stand_side_by_side_and_a_known_query_can_be_marked(
    searching: Run, marks: Path
) -> None:
    page = client(searching, marks)
    found = page.get("/api/search?q=plain+number7&k=3").json()
    assert set(found) == {"bm25", "hybrid"}
    assert found["bm25"][0]["document_id"] == "plain-7"
    text = page.get("/?q=Plain++dev").text
    assert text.count("<section") == 2
    assert 'data-query="q/2?&amp;#"' in text
    # A test query of the collection stands in nobody's list.
    held = page.get("/?q=held").text
    assert "data-query" not in held and "labels stay as they are" in held


def test_questions_that_somebody_types_measure_first_and_then_teach(
    searching: Run, marks: Path
) -> None:
    told = (
        "The plain thing {0} has a first sentence of its own. A second sentence tells of {0} still"
        " much more than that."
    )
    corpus = searching.corpus.assign(text=searching.corpus.document_id.map(told.format))
    qrels = pd.DataFrame({"query_id": ["q/2?&#"], "document_id": ["plain-2"]})
    page = client(replace(searching, corpus=corpus, qrels=qrels), marks)
    assert "labelled relevant" in page.get("/?q=plain+dev").text
    offered = re.findall(r'<li class="item"[^>]*><a href="/\?q=([^"]+)"', page.get("/").text)
    assert len(offered) == len(set(offered)) == 20
    for number in range(19):
        add(
            marks,
            Mark(f"asked-{number}", "plain-2", 1, question=f"what of {number}?", split="test"),
        )
    # Twenty questions measure, and of those that follow every fifth does.
    for question, split in zip(
        [offered[0], "Is plain text\0 plain?\u202e"], ["test", "train"], strict=True
    ):
        text = page.get("/", params={"q": unquote(question)}).text
        assert f'value="{split}" checked' in text
        (name,) = re.findall(r'data-query="(asked-[^"]+)">', text)
        body = {"query_id": name, "document_id": "plain-1", "relevance": 1}
        body |= {"question": unquote(question), "split": split}
        assert page.post("/api/mark", json=body, headers=OWN).status_code == 200
    asked = questions(read_log(marks))
    assert asked.split.tolist() == ["test"] * 20 + ["train"]
    assert asked.text.iloc[-1] == "Is plain text plain?"
    text = page.get("/").text
    assert "20 of test, 1 of train" in text and offered[0] not in text
    # In other letters it is the same, of the split that was chosen, with what was said of it.
    again = page.get("/?q=IS+PLAIN+TEXT+plain").text
    assert (
        f'data-query="{name}"' in again
        and 'value="train" checked' in again
        and 'aria-pressed="true"' in again
    )
    assert "Is plain text plain?" in page.get("/marks").text
    for wrong in ({"question": "another"}, {"question": "\0"}, {"split": ""}, {"question": "held"}):
        assert page.post("/api/mark", json=body | wrong, headers=OWN).status_code == 409
    long = page.post("/api/mark", json=body | {"question": "x" * 10_000}, headers=OWN)
    assert long.json()["error"] == "the question has 10,000 characters: ask with 2,000 at most"
    assert page.post("/api/mark", json=body | {"split": "dev"}, headers=OWN).status_code == 422
    # A question of one's own is taken back like any other mark.
    undo = {"query_id": name, "document_id": "plain-1", "relevance": None}
    assert page.post("/api/mark", json=undo, headers=OWN).status_code == 200


def test_questions_are_offered_on_which_the_heaviest_parts_disagree_most_and_each_part_is_shown(
    searching: Run, marks: Path, static_models: Path
) -> None:
    from anmi.retrieval.encoders import Encoder

    corpus = searching.corpus.assign(text=searching.corpus.text.str[:2000])
    assert searching.search is not None
    table = Encoder(EncoderSettings(encoder="static"), static_models)
    index = build_index(table.encode(corpus.text.tolist()), corpus.document_id.tolist())
    network = Part("network", index, table)
    parts = [searching.search.parts["bm25"], network]
    search = HybridSearch.build(parts, corpus, weights={"bm25": 0.25, "network": 0.75})
    texts = [
        "Plain text number7.",
        "Zebra.",
        "| number7 | ===== | zebra?",
        "A › What is plain?",
        "A",
    ]
    kinds = ["cloze", "cloze", "cloze", "title", "title"]
    made = pd.DataFrame(
        {"text": texts, "document_id": [f"plain-{place}" for place in range(5)], "kind": kinds}
    )
    run = replace(searching, search=search, pseudo_queries=made)
    assert run.offered == ["What is plain?", "Zebra.", "Plain text number7."]
    page = client(run, marks)
    (best, *_) = page.get("/api/search?q=plain+number7").json()["hybrid"]
    assert best["ranks"].keys() == {"bm25", "network"}
    shown = " ".join(page.get("/?q=plain+number7").text.split())
    for heading in ("Network, untrained <small>weight 0.75<", "BM25 <small>weight 0.25<"):
        assert heading in shown
    rank = best["ranks"]["network"]
    assert f"network #{rank}" in shown and "BM25 #1" in shown
