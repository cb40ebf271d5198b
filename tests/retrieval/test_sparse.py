import math
from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder

from anmi.errors import AnmiError
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.index import term_table
from anmi.retrieval.sparse.document import LexicalExpansion, load_sparse
from anmi.retrieval.sparse.model import inference_free, sparse_vectors

TEXTS = [
    "The red fox jumps over the lazy dog.",
    "A fox den; the fox sleeps in the den of another fox.",
    "Whales are mammals that live in the sea, and sing.",
    "Tides of the sea rise with the moon.",
    "The dog barks at the moon.",
]


@pytest.fixture(scope="module")
def static(static_models):
    return load_encoder("static", static_models)


@pytest.fixture(scope="module")
def model(static):
    return inference_free(static, TEXTS)


def document_module(model: SparseEncoder) -> LexicalExpansion:
    return model[0].sub_modules["document"][0]


def test_without_expansion_it_is_bm25_over_subwords(static):
    model = inference_free(static, TEXTS)
    with torch.no_grad():
        document_module(model).threshold.fill_(2.0)
    queries = ["fox den", "the moon over the sea", "a singing mammal"]
    documents = sparse_vectors(model, TEXTS, "document")
    scores = (sparse_vectors(model, queries, "query") @ documents.T).toarray()
    tokenizer = model[0].sub_modules["query"][0].tokenizer
    ids = tokenizer(TEXTS + queries, add_special_tokens=False)["input_ids"]
    rows = [[*map(str, row)] for row in ids]
    peer = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    peer.index(rows[: len(TEXTS)], show_progress=False)
    frequency = Counter(token for row in rows[: len(TEXTS)] for token in set(row))
    asked = [
        {token for token in row if 2 * frequency[token] <= len(TEXTS)} for row in rows[len(TEXTS) :]
    ]
    expected = [peer.get_scores(sorted(tokens)) for tokens in asked]
    # The library leaves out the factor k1 + 1, which is the same for all.
    np.testing.assert_allclose(scores, 2.2 * np.array(expected), rtol=1e-4)


def test_a_document_weighs_as_the_formula_says(model):
    module = document_module(model)
    found = sparse_vectors(model, TEXTS, "document").toarray()
    ids = module.tokenizer(TEXTS[1], add_special_tokens=False)["input_ids"]
    vectors = module.token.detach().numpy()
    direction = vectors[ids].mean(axis=0)
    direction /= np.linalg.norm(direction)
    for token in {*ids, *range(0, 29_000, 997)}:
        cosine = float(direction @ module.expansion[token].detach().numpy())
        margin = cosine - float(module.threshold[token])
        weight = math.log1p(max(0.0, math.exp(float(module.log_scale)) * margin))
        often = ids.count(token) * (float(module.log_factor[token]) == 0)
        weight += 2.2 * often / (often + 1.2 * (0.25 + 0.75 * len(ids) / module.average))
        assert found[1, token] == pytest.approx(weight, abs=1e-5)


def test_marks_weigh_nothing_and_what_the_corpus_lacks_one(model):
    query_module = model[0].sub_modules["query"][0]
    tokenizer, idf = query_module.tokenizer, query_module.weight
    assert not idf[tokenizer.all_special_ids].any()
    assert float(idf[tokenizer.convert_tokens_to_ids("zebra")]) == 1.0


@pytest.mark.parametrize("by", ["anmi", "sentence-transformers"])
def test_the_saved_folder_gives_the_same(model, by, tmp_path):
    model.save(str(tmp_path / "model"))
    again = (
        load_sparse(tmp_path / "model", "cpu")
        if by == "anmi"
        else SparseEncoder(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    )
    for role, encode in (("query", again.encode_query), ("document", again.encode_document)):
        expected = sparse_vectors(model, TEXTS, role).toarray()
        np.testing.assert_allclose(
            sparse_vectors(again, TEXTS, role).toarray(), expected, rtol=1e-6
        )
        np.testing.assert_allclose(encode(TEXTS).to_dense().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_texts_without_tokens_are_empty(model):
    found = sparse_vectors(model, ["", "fox", " "], "document")
    assert np.diff(found.indptr).tolist()[0] == 0 == np.diff(found.indptr).tolist()[2]
    assert found[1].nnz > 0
    assert sparse_vectors(model, [], "query").shape[0] == 0


def test_what_it_cannot_begin_with_is_refused(static):
    with pytest.raises(AnmiError, match="no document holds a token"):
        inference_free(static, ["", " "])
    with pytest.raises(AnmiError, match="encoder=static"):
        inference_free(load_encoder("minilm", Path("unused")), TEXTS)


def test_gradients_reach_every_table(static):
    model = inference_free(static, TEXTS)
    document, query = (
        model({**model.preprocess(texts, task=role), "task": role})["sentence_embedding"]
        for texts, role in ((TEXTS, "document"), (["fox"], "query"))
    )
    (document.sum() + (query @ document.T).sum()).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_terms_of_another_language_come_from_the_corpus(static):
    seasons = [f"서울의 {season} 날씨는" for season in ("봄", "여름", "가을", "겨울")]
    korean = [f"{season} {state}." for season in seasons for state in ("맑다", "흐리다")]
    model = inference_free(static, korean * 5)
    terms = set(model[0].sub_modules["query"][0].tokenizer.get_vocab())
    assert {"서", "울"} <= terms, "and not the letters that these are made of"
    found = sparse_vectors(model, ["겨울"], "query") @ sparse_vectors(model, korean, "document").T
    assert set(np.argsort(-found.toarray()[0])[:2]) == {6, 7}


def test_queries_are_encoded_alike_without_pytorch(model, tmp_path):
    model.save(str(tmp_path), create_model_card=False)
    table = term_table(tmp_path)
    texts = ["fox den fox", "the moon over the sea", "", "zebra 123 §"]
    np.testing.assert_allclose(
        table(texts).toarray(), sparse_vectors(model, texts, "query").toarray(), rtol=1e-6
    )
    assert term_table(tmp_path / "document_0_LexicalExpansion") is None
