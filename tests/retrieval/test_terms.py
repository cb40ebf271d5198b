"""Terms of a corpus: saved and opened, counted with order lost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anmi.errors import AnmiError
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.terms import Terms
from anmi.retrieval.tokenize import tokenizer

TEXTS = st.lists(st.text(st.sampled_from("abc de"), max_size=12), min_size=1, max_size=8).filter(
    lambda texts: any(text.split() for text in texts)
)


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


@given(TEXTS, st.dictionaries(st.integers(0, 7), st.text(st.sampled_from("abf"), max_size=5)))
@settings(max_examples=40)
def test_documents_that_change_alone_are_cut_again(texts: list[str], other: dict[int, str]) -> None:
    rows = np.array([row for row in other if row < len(texts)], int)
    found = Terms.cut(texts, "en", "whitespace").changed(rows, [other[row] for row in rows])
    after = [other.get(row, text) for row, text in enumerate(texts)]
    asked = [" ".join([*texts, *after, "a"])]
    one, same = (BM25Index.of_terms(terms).search(asked, 9) for terms in (found, Terms.build(after, found.tokenize)))
    np.testing.assert_array_equal(one, same)


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
