"""Terms of a corpus: saved and opened, counted with order lost, and what BM25 makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from anmi.errors import AnmiError
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.terms import Terms
from anmi.retrieval.tokenize import tokenizer

TEXTS = st.lists(st.text(st.sampled_from("abc de"), max_size=12), min_size=1, max_size=8).filter(
    lambda texts: any(text.split() for text in texts)
)
K1, B = 1.2, 0.75


@given(TEXTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_terms_come_back_from_their_folder_as_they_were_cut(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    terms, folder = Terms.cut(texts, "en", "whitespace"), tmp_path_factory.mktemp("terms")
    terms.save(folder)
    again = Terms.load(folder)
    assert list(again.vocabulary.items()) == list(terms.vocabulary.items()), "numbered alike"
    assert (again.settings, again.mean_length) == (terms.settings, terms.mean_length)
    for name in ("counts", "saturated", "unit"):
        one, other = getattr(terms, name), getattr(again, name)
        assert one.dtype == other.dtype == np.float32 and one.shape == other.shape
        np.testing.assert_array_equal(one.toarray(), other.toarray(), err_msg=name)
    for name in ("idf", "lengths", "mass"):
        np.testing.assert_array_equal(getattr(terms, name), getattr(again, name), err_msg=name)
    asked = [*texts, "unknown a"]
    np.testing.assert_array_equal(again.queries(asked).toarray(), terms.queries(asked).toarray())


@given(TEXTS)
@settings(max_examples=40)
def test_rows_are_the_terms_of_each_document_with_only_their_order_lost(texts: list[str]) -> None:
    terms = Terms.cut(texts, "en", "whitespace")
    names = list(terms.vocabulary)
    cut = tokenizer("whitespace", "en")(texts)
    assert [sorted(names[term] for term in row) for row in terms.rows()] == [sorted(row) for row in cut]
    assert terms.lengths.tolist() == [len(row) for row in cut]


def corpus() -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(4)
    words = np.array([f"word{i}" for i in range(80)])
    share = 1 / np.arange(1, 81)
    texts = [" ".join(rng.choice(words, rng.integers(0, 30), p=share / share.sum())) for _ in range(120)]
    return texts, [" ".join(rng.choice(words, 3)) for _ in range(15)]


def test_scores_from_terms_are_those_of_bm25s_on_the_texts(tmp_path: Path) -> None:
    texts, queries = corpus()
    Terms.cut(texts, "en", "whitespace").save(tmp_path)
    index = BM25Index.of_terms(Terms.load(tmp_path), k1=K1, b=B)
    cut = tokenizer("whitespace", "en")
    theirs = bm25s.BM25(method="lucene", k1=K1, b=B)
    theirs.index(cut(texts), show_progress=False)
    everything = np.tile(np.arange(len(texts), dtype=np.int32), (len(queries), 1))
    found = index.scores_and_ranks(queries, everything)[0]
    expected = np.array([theirs.get_scores(row) for row in cut(queries)])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (found > 0).any()


def test_scores_from_terms_are_those_of_rank_bm25_on_the_texts(tmp_path: Path) -> None:
    texts, queries = corpus()
    Terms.cut(texts, "en", "whitespace").save(tmp_path)
    index = BM25Index.of_terms(Terms.load(tmp_path), engine="rank_bm25", k1=K1, b=B)
    cut = tokenizer("whitespace", "en")
    theirs = BM25Okapi(cut(texts), k1=K1, b=B, epsilon=0.0)
    everything = np.tile(np.arange(len(texts), dtype=np.int32), (len(queries), 1))
    found = index.scores_and_ranks(queries, everything)[0]
    np.testing.assert_allclose(found, [theirs.get_scores(row) for row in cut(queries)], rtol=1e-5, atol=1e-6)


def test_an_index_says_of_which_terms_it_is() -> None:
    terms = Terms.cut(["red fox", "blue whale"], "de", "whitespace")
    index = BM25Index.of_terms(terms)
    assert index.settings.items() >= {"language": "de", "tokenizer": "whitespace", "documents": 2}.items()
    assert index.tokenize(["a b"]) == terms.tokenize(["a b"])


def test_documents_without_any_term_are_an_error() -> None:
    with pytest.raises(AnmiError, match="no token in 2 documents"):
        Terms.cut(["", " "], "en", "whitespace")


def test_what_is_saved_is_free_of_pickle(tmp_path: Path) -> None:
    Terms.cut(["red fox", "fox"], "en", "whitespace").save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"counts.npz", "vocabulary.parquet", "settings.json"}
    with np.load(tmp_path / "counts.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.hasobject for name in arrays} == dict.fromkeys(arrays, False)
    assert json.loads((tmp_path / "settings.json").read_text()) == {"language": "en", "tokenizer": "whitespace"}
