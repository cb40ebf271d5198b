"""BM25: two engines and their formulas; scores and ranks of given documents; saving; queries without a hit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anmi.retrieval.bm25 import BM25Index

K1, B = 1.2, 0.75


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """400 documents of words drawn by Zipf's law, so that frequent and rare terms occur."""
    rng = np.random.default_rng(5)
    share = 1 / np.arange(1, 301)
    return [
        " ".join(f"w{word}" for word in rng.choice(300, size=rng.integers(5, 60), p=share / share.sum()))
        for _ in range(400)
    ]


@pytest.fixture(scope="module")
def queries(texts: list[str]) -> list[str]:
    rng = np.random.default_rng(6)
    drawn = [" ".join(rng.choice(text.split(), 4)) for text in texts[:60]]
    return [*drawn, "w3 w3 w250", "w1 unknown"]


def slow_scores(texts: list[str], query: str) -> list[float]:
    """BM25 from Lucene's formula."""
    documents = [text.split() for text in texts]
    mean = np.mean([len(d) for d in documents])
    scores = [0.0] * len(documents)
    for term in query.split():
        holding = sum(term in d for d in documents)
        idf = float(np.log1p((len(documents) - holding + 0.5) / (holding + 0.5)))
        for i, document in enumerate(documents):
            count = document.count(term)
            scores[i] += idf * count / (count + K1 * (1 - B + B * len(document) / mean))
    return scores


def build(texts: list[str], engine: str) -> BM25Index:
    return BM25Index.build(texts, "en", kind="whitespace", engine=engine, k1=K1, b=B)


def test_scores_follow_the_formula_of_lucene(texts: list[str], queries: list[str]) -> None:
    everything = np.append(np.arange(len(texts), dtype=np.int32), np.int32(-1))[None, :]
    index = build(texts, "bm25s")
    for query in queries[::12]:
        *found, padding = index.search_and_look([query], 1, everything)[2][0]
        assert np.isnan(padding)
        np.testing.assert_allclose(found, slow_scores(texts, query), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.25])
def test_scores_are_those_of_the_package_that_the_published_miner_uses(
    texts: list[str], queries: list[str], epsilon: float
) -> None:
    from rank_bm25 import BM25Okapi

    own = BM25Index.build(texts, "en", kind="whitespace", engine="rank_bm25", k1=K1, b=B, epsilon=epsilon)
    other = BM25Okapi([text.split() for text in texts], k1=K1, b=B, epsilon=epsilon)
    everything = np.tile(np.arange(len(texts), dtype=np.int32), (len(queries), 1))
    expected = [other.get_scores(query.split()) for query in queries]
    np.testing.assert_allclose(own.search_and_look(queries, 1, everything)[2], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ["bm25s", "rank_bm25"])
@pytest.mark.parametrize("queries", [["", "w90"], ["w90", ""], ["unknown", "w90"], ["", ""], ["  "], []])
def test_queries_without_a_hit_give_padding_wherever_they_stand(
    texts: list[str], engine: str, queries: list[str]
) -> None:
    index = build(texts, engine)
    documents, scores = index.search(queries, 3)
    assert documents.shape == scores.shape == (len(queries), 3)
    for query, row, value in zip(queries, documents, scores, strict=True):
        assert (row >= 0).all() == (query == "w90") and (value > 0).all() == (query == "w90")
    given = np.zeros((len(queries), 2), np.int32)
    assert index.search_and_look(queries, 1, given)[2].shape == given.shape


@pytest.mark.parametrize("engine", ["bm25s", "rank_bm25"])
def test_a_saved_index_answers_alike(texts: list[str], queries: list[str], tmp_path: Path, engine: str) -> None:
    index = build(texts, engine)
    index.save(tmp_path)
    loaded = BM25Index.load(tmp_path)
    assert loaded.settings == index.settings
    for before, after in zip(index.search(queries, 20), loaded.search(queries, 20), strict=True):
        assert (before == after).all()
