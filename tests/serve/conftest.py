"""A small run whose texts try to be more than texts, and the page over it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from anmi.candidates import NEGATIVE, Candidates, CandidateShards, Rule
from anmi.serve.run import Run

SCRIPT = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
HOSTILE = {
    "markup": SCRIPT,
    "attribute": "\" onmouseover=\"document.title='taken'\" x='",
    "direction": "abc \u202egnirts desrever\u202c \u05d0\u05d1\u05d2",
    "control": "a\0b\x1b[2J\x07c",
    "template": "{{ 7 * 7 }}{% raw %}${7*7}",
    "long": "word " * 200_000 + "END",
    "a/../b?c=d&e=f#g": "an id that is an address",
}


@pytest.fixture(scope="session")
def run() -> Run:
    ids = [*HOSTILE, *(f"plain-{number}" for number in range(40))]
    texts = [*HOSTILE.values(), *(f"plain text number{number}" for number in range(40))]
    corpus = pd.DataFrame(
        {"document_id": ids, "title": [text[:50] for text in texts], "text": texts}
    )
    split = ["train", "dev", "train", "test"]
    queries = pd.DataFrame(
        {
            "query_id": ["q1", "q/2?&#", SCRIPT, "t"],
            "text": [SCRIPT, "plain dev", "other", "held"],
            "split": split,
        }
    )
    documents = np.tile(np.arange(1, len(ids), dtype=np.int32), (3, 1))
    chance = np.linspace(0.9, 0.01, documents.shape[1], dtype=np.float32) * np.array(
        [[1.0], [0.5], [0.1]], np.float32
    )
    verdict = np.zeros(documents.shape, np.int16)
    verdict[:, 1::2] = NEGATIVE
    verdict[:, ::4] = 2
    block = Candidates(
        query_ids=np.array(queries.query_id[:3]),
        positives=np.zeros((3, 1), np.int32),
        documents=documents,
        source=np.ones(documents.shape, np.uint8),
        columns={"p_relevant": chance, "bm25": chance * 9},
        positive_columns={"bm25": np.full((3, 1), 9, np.float32)},
        verdict=verdict,
        weight=np.ones(documents.shape, np.float32),
        legend=("open", "negative", "denoise"),
        rules={"denoise": Rule("p_relevant ≥ 0.5", "unsafe")},
    )
    shards = CandidateShards.of([block.take(np.array([0])), block.take(np.array([1, 2]))])
    return Run("docs:<b>x</b> · recipe anmi", "", corpus, queries, shards)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks.jsonl"


@pytest.fixture
def served(run: Run, marks: Path) -> Iterator[str]:
    yield from serving(run, marks)


def serving(run: Run, marks: Path) -> Iterator[str]:
    """The page on a port of its own; its address."""
    uvicorn = pytest.importorskip("uvicorn")
    import socket

    from anmi.serve.app import create_app
    from anmi.serve.guard import Guard

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(run, marks, "tester", Guard()),
            log_level="warning",
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
