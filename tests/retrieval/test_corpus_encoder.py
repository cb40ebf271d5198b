"""Terms and encoders of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from anmi.errors import AnmiError
from anmi.retrieval import encoders
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.corpus_encoder import _weight, corpus_encoder, save
from anmi.retrieval.terms import Terms
from anmi.retrieval.token_table import TokenTable

TEXTS = st.lists(st.text(st.sampled_from("abc de"), max_size=12), min_size=1, max_size=8).filter(
    lambda texts: any(text.split() for text in texts)
)


@given(TEXTS)
def test_terms_come_back_from_their_folder_as_they_were_cut(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    terms, folder = Terms.cut(texts, "en", "whitespace"), tmp_path_factory.mktemp("terms")
    terms.save(folder)
    again = Terms.load(folder)
    assert list(again.vocabulary.items()) == list(terms.vocabulary.items()), "numbered alike"
    assert again.settings == terms.settings
    for name in ("counts", "saturated", "unit"):
        one, other = getattr(terms, name), getattr(again, name)
        assert one.dtype == other.dtype == np.float32 and one.shape == other.shape
        np.testing.assert_array_equal(one.toarray(), other.toarray(), err_msg=name)
    for name in ("idf", "lengths", "mass"):
        np.testing.assert_array_equal(getattr(terms, name), getattr(again, name), err_msg=name)
    asked = [*texts, "unknown a"]
    np.testing.assert_array_equal(again.queries(asked).toarray(), terms.queries(asked).toarray())


@given(TEXTS, st.dictionaries(st.integers(0, 7), st.text(st.sampled_from("abf"), max_size=5)))
def test_documents_that_change_alone_are_cut_again(texts: list[str], other: dict[int, str]) -> None:
    rows = np.array([row for row in other if row < len(texts)], int)
    found = Terms.cut(texts, "en", "whitespace").changed(rows, [other[row] for row in rows])
    after = [other.get(row, text) for row, text in enumerate(texts)]
    asked = [" ".join([*texts, *after, "a"])]
    one, same = (BM25Index.of_terms(terms).search(asked, 9) for terms in (found, Terms.build(after, found.tokenize)))
    np.testing.assert_array_equal(one, same)


ENGLISH = [f"the {colour} {animal} sleeps near the river" for colour in ("red", "grey", "white") for animal in
           ("fox", "wolf", "owl", "bear")] * 3  # fmt: skip
KOREAN = ["강가에서 여우가 잠을 잔다", "늑대는 숲에서 달린다", "여우를 본 사람이 있다", "숲으로 늑대가 갔다"] * 5
ODD = ["", " ", "🚀", "ไทย", "É e\u0301", "a\u00a0b", "x" * 300, "the fox-wolf, the OWL"]


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return encoders.load_encoder("minilm", tmp_path_factory.mktemp("models"))


def made(texts: list[str], minilm: Any, folder: Path) -> tuple[TokenTable, NDArray[np.float32]]:
    tokenizer, table = corpus_encoder(
        texts, 1, lambda words: encoders.encode(minilm, words), minilm.tokenizer.backend_tokenizer
    )
    save(tokenizer, table, folder)
    read = encoders.cached_encoder(str(folder), folder.parent)
    assert read is not None
    return read, table


@pytest.mark.parametrize("texts", [ENGLISH, KOREAN])
def test_it_is_a_plain_model_of_sentence_transformers(texts: list[str], minilm: Any, tmp_path: Path) -> None:
    table, _ = made(texts, minilm, tmp_path / "model")
    plain = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    asked = [*texts, *ODD]
    assert table.encode(asked) == pytest.approx(plain.encode(asked, normalize_embeddings=True), abs=1e-5)


@pytest.mark.parametrize(("texts", "weight"), [(ENGLISH, 1.0), (KOREAN, 0.5)])
def test_what_minilm_says_weighs_half_where_it_spells_letters(texts: list[str], weight: float, minilm: Any) -> None:
    names, counts = np.unique(" ".join(texts).split(), return_counts=True)
    tokenizer = minilm.tokenizer.backend_tokenizer
    tokenizer.enable_padding(length=128)
    assert _weight(names.tolist(), counts, tokenizer) == weight, "padding is no piece"


def test_one_half_is_the_decomposition_of_the_corpus(minilm: Any) -> None:
    texts = ["a b c", "a b", "c d d", "d e", "e a"] * 4
    names, table = corpus_encoder(texts, 1, lambda words: np.ones((len(words), 4), np.float32), _Silent())
    vocabulary = sorted(names.get_vocab(), key=names.get_vocab().get)
    counts = np.array([[text.split().count(word) for word in vocabulary] for text in texts], float)
    frequency = (counts > 0).sum(axis=0)
    idf = np.log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    weighted = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf
    right = np.linalg.svd(weighted / np.linalg.norm(weighted, axis=1, keepdims=True))[2].T[:, : len(vocabulary) - 1]
    unit = right[1:] / np.linalg.norm(right[1:], axis=1, keepdims=True)
    found = table[1:, : right.shape[1]] / idf[1:, None]
    assert found @ found.T == pytest.approx(unit @ unit.T, abs=1e-3)


def test_the_same_documents_give_the_same_bytes() -> None:
    texts = [" ".join(f"{'aeiou'[n * k % 5]}{n * k % 97}r{k % 7}" for k in range(1, 40)) for n in range(1, 120)]
    first, again = (
        corpus_encoder(texts, 1, lambda words: np.ones((len(words), 4), np.float32), _Silent()) for _ in "ab"
    )
    assert first[0].to_str() == again[0].to_str() and np.array_equal(first[1], again[1])


class _Silent:
    """A tokenizer that spells nothing, as MiniLM's spells no Tibetan."""

    def encode_batch(self, names: list[str], add_special_tokens: bool) -> list[Any]:
        return [type("Encoding", (), {"tokens": ["[UNK]"], "attention_mask": [1]}) for _ in names]


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (["red fox", "blue whale", "grey owl"], "owl"),
        (["rain"] * 40, "rain"),
        (["red fox red", "blue owl"] * 40, "red"),
        (["🚀 🎈", "🎈", "‼ 🇰🇷"], "🇰🇷"),
        (["🎈 up", "lift🚀off", "up"], "🚀"),
        (["", " ", "fox", "", "owl"], "fox"),
        (["x" * 300_000 + " fox", "owl"], "owl"),
        ([f"{text} {other}" for text, other in zip(ENGLISH, KOREAN * 2, strict=False)] + ["여우"], "wolf"),
        ([*KOREAN, "🚀 늑대🎈"], "🎈"),
    ],
)  # fmt: skip
def test_small_and_odd_corpora_have_one_as_well(texts: list[str], asked: str, minilm: Any, tmp_path: Path) -> None:
    table, weights = made(texts, minilm, tmp_path / "model")
    assert np.isfinite(weights).all() and weights.shape[1] <= min(256, len(set(texts))) + 256
    found = table.encode(texts) @ table.encode([asked])[0]
    assert asked in texts[found.argmax()] and found.max() > 1e-5
    assert not table.encode(["⛵", "ไทย", "⛵️", "👍🏽"]).any(), "what nobody knows"


def test_documents_without_a_word_are_an_error() -> None:
    with pytest.raises(AnmiError, match="the 2 documents hold no word"):
        corpus_encoder([" ", ""], 1, lambda words: np.ones((len(words), 4), np.float32), _Silent())
