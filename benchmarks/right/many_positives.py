"""The default recipe on made collections with 1, 5 and 40 graded positives a query, where the whole truth is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOPICS, ASPECTS, WORDS = 60, 4, 12
HELD_OUT = 20
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "al", "en", "or", "is")]


def words(count: int, draw: np.random.Generator) -> list[str]:
    """Make distinct words of two to four syllables."""
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(draw.choice(SYLLABLES, draw.integers(2, 5)))] = None
    return list(made)


@dataclass(frozen=True)
class Made:
    """Texts, and how relevant every document is to every query: 0, 1 or 2, int8 [Q, N]."""

    documents: list[str]
    queries: list[str]
    relevance: NDArray[np.int8]

    def write(self, folder: Path, known: NDArray[np.bool_]) -> None:
        """Write it as a BEIR folder whose labels are those under ``known`` [Q, N]; the last queries are held out."""
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        _lines(
            folder / "corpus.jsonl", [{"_id": f"d{n}", "title": "", "text": t} for n, t in enumerate(self.documents)]
        )
        _lines(folder / "queries.jsonl", [{"_id": f"q{n}", "text": t} for n, t in enumerate(self.queries)])
        count = len(self.queries)
        cuts = (0, count - 2 * HELD_OUT, count - HELD_OUT, count)
        for split, first, last in zip(("train", "dev", "test"), cuts, cuts[1:], strict=False):
            rows = [
                f"q{q}\td{d}\t{self.relevance[q, d]}"
                for q in range(first, last)
                for d in np.flatnonzero(known[q]).tolist()
            ]
            (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")


def _lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def made(relevant: int, documents: int = 3600, queries: int = 290, seed: int = 1) -> Made:
    """Make a collection about topics.

    A document is about one topic, and a little about another; a topic has aspects with words of their own, and a query
    asks for one of them in a few words, so that some relevant documents hold none of its words and many others do.
    """
    draw = np.random.default_rng(seed)
    lexicon = words(4000 + TOPICS * ASPECTS * WORDS, draw)
    common, topical = lexicon[:4000], np.array(lexicon[4000:]).reshape(TOPICS, ASPECTS, WORDS)
    zipf = 1 / np.arange(1, 4001) ** 0.9
    zipf /= zipf.sum()
    shares = np.zeros((documents, TOPICS * ASPECTS))
    texts = []
    for number in range(documents):
        main, other = number % TOPICS, int(draw.integers(TOPICS))
        for topic, weight in ((main, 0.8), (other, 0.2)):
            shares[number, topic * ASPECTS : (topic + 1) * ASPECTS] += weight * draw.dirichlet([0.5] * ASPECTS)
        length = int(draw.integers(50, 130))
        about = draw.choice(TOPICS * ASPECTS, int(0.5 * length), p=shares[number])
        picked = [topical[a // ASPECTS, a % ASPECTS, min(int(draw.geometric(0.2)) - 1, WORDS - 1)] for a in about]
        tokens = [*picked, *draw.choice(common, length - len(picked), p=zipf)]
        texts.append(" ".join(np.array(tokens)[draw.permutation(len(tokens))].tolist()))
    asked, wanted = [], np.zeros((queries, TOPICS * ASPECTS))
    for number in range(queries):
        topic, aspect = int(draw.integers(TOPICS)), int(draw.integers(ASPECTS))
        wanted[number, topic * ASPECTS : (topic + 1) * ASPECTS] = 0.35
        wanted[number, topic * ASPECTS + aspect] = 1.0
        tokens = [*draw.choice(topical[topic, aspect], 3, replace=False), *draw.choice(topical[topic].ravel(), 2)]
        tokens += draw.choice(common, int(draw.integers(0, 3)), p=zipf).tolist()
        asked.append(" ".join(tokens))
    affinity = wanted @ shares.T + 0.15 * draw.normal(size=(queries, documents))
    place = np.argsort(np.argsort(-affinity, axis=1), axis=1)
    relevance = (place < relevant).astype(np.int8) + (place < relevant / 4).astype(np.int8)
    return Made(texts, asked, relevance)


def some_known(truth: NDArray[np.int8], count: int, seed: int = 2) -> NDArray[np.bool_]:
    """Keep ``count`` labels of each query, drawn at random."""
    draws = np.where(truth > 0, np.random.default_rng(seed).random(truth.shape), 2.0)
    return (np.argsort(np.argsort(draws, axis=1), axis=1) < count) & (truth > 0)
