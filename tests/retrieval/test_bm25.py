"""BM25 and the tokens it searches by, per language."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.sentences import LANGUAGES
from anmi.corpus.texts import one_form
from anmi.errors import AnmiError
from anmi.retrieval import tokenize as tokenize_module
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.terms import Terms, counted_texts
from anmi.retrieval.tokenize import resolve, tokenizer

K1, B = 1.2, 0.75


@pytest.fixture(scope="module")
def texts():
    """400 documents of words drawn by Zipf's law, so that frequent and rare terms occur."""
    rng = np.random.default_rng(5)
    share = 1 / np.arange(1, 301)
    words = np.array([f"w{number}" for number in range(300)])
    sizes = rng.integers(5, 60, 400)
    return [" ".join(rng.choice(words, size, p=share / share.sum())) for size in sizes]


@pytest.fixture(scope="module")
def queries(texts):
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


def test_scores_follow_the_formula_of_lucene(texts, queries):
    everything = np.append(np.arange(len(texts), dtype=np.int32), np.int32(-1))[None, :]
    index = build(texts, "bm25s")
    for query in queries[::12]:
        *found, padding = index.search_and_look([query], 1, everything)[2][0]
        assert np.isnan(padding)
        np.testing.assert_allclose(found, slow_scores(texts, query), rtol=1e-4, atol=1e-5)


def test_vectors_of_rank_bm25_weigh_as_it_scores(texts, queries):
    """The weights that exports and explanations read must add up to its scores."""
    index = BM25Index.build(
        texts, "en", kind="whitespace", engine="rank_bm25", k1=K1, b=B, epsilon=0.25
    )
    weights, terms = index.vectors()
    place = {term: number for number, term in enumerate(terms)}
    for query, (_, scores) in zip(queries, index.scored(queries, 0), strict=True):
        known = [place[word] for word in query.split() if word in place]
        expected = np.asarray(weights[:, known].sum(axis=1)).ravel()
        np.testing.assert_allclose(scores[0], expected, rtol=1e-5, atol=1e-5)


def test_the_words_of_nltk_are_its_own_or_refused_in_a_sentence(tmp_path, monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    tokenize_module._cut.cache_clear()
    with pytest.raises(AnmiError, match="by the data punkt_tab, which no package brings: run"):
        tokenizer("nltk", "en")
    data = tmp_path / "tokenizers" / "punkt_tab" / "english"
    data.mkdir(parents=True)
    # Of no abbreviation, so that every full stop before a capital ends a sentence.
    for name in ("abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab"):
        (data / name).touch()
    text = "Don't stop. It is 1.5 km (or so)."
    terms = Terms.cut([text, text], "en", "nltk")
    assert tokenizer("nltk", "en")([text]) == [nltk.word_tokenize(text.lower())]
    assert sorted(terms.vocabulary) == sorted(set(nltk.word_tokenize(text.lower())))
    assert {"n't", "1.5", "("} <= terms.vocabulary.keys()


@pytest.mark.parametrize("engine", ["bm25s", "rank_bm25"])
@pytest.mark.parametrize(
    "queries", [["", "w90"], ["w90", ""], ["unknown", "w90"], ["", ""], ["  "], []]
)
def test_queries_without_a_hit_give_padding_wherever_they_stand(texts, engine, queries):
    index = build(texts, engine)
    documents, scores = index.search(queries, 3)
    assert documents.shape == scores.shape == (len(queries), 3)
    for query, row, value in zip(queries, documents, scores, strict=True):
        assert (row >= 0).all() == (query == "w90") and (value > 0).all() == (query == "w90")
    given = np.zeros((len(queries), 2), np.int32)
    assert index.search_and_look(queries, 1, given)[2].shape == given.shape


@pytest.mark.parametrize("engine", ["bm25s", "rank_bm25"])
def test_a_saved_index_answers_alike(texts, queries, tmp_path, engine):
    index = build(texts, engine)
    index.save(tmp_path)
    loaded = BM25Index.load(tmp_path)
    assert loaded.settings == index.settings
    for before, after in zip(index.search(queries, 20), loaded.search(queries, 20), strict=True):
        assert (before == after).all()
    settings = tmp_path / "settings.json"
    settings.write_text(settings.read_text().replace('"rules"', '"older"'))
    with pytest.raises(AnmiError, match="run the pipeline bm25 again"):
        BM25Index.load(tmp_path)


# Letters, marks and joiners of many scripts, so that marks stand in all places, as they do in
# damaged texts, too.
TEXTS = st.text(
    st.one_of(
        st.sampled_from(
            "कीन्दிமழைกำลังរៀនéßİıñ한국東京タワー_ab 1२²½\u0301\u0308\u094d\u200c\u200d\u00ad-.'"
        ),
        st.characters(categories=("L", "M", "N", "Zs", "Pc", "Po", "Cf")),
    ),
    max_size=30,
)


@given(
    st.lists(
        st.one_of(TEXTS, st.text(st.sampled_from("aAbIiñ_9 \n\t\x1f.'"), max_size=20)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(
        ["snowball en", "snowball tr", "snowball hi", "ngram th", "ngram ja", "whitespace en"]
    ),
)
def test_many_texts_are_cut_as_each_is(texts, how):
    cut = tokenizer(*how.split())
    counts, vocabulary = counted_texts(texts, cut, alone=True)
    slow = Terms.build(texts, cut)
    assert vocabulary.keys() == slow.vocabulary.keys()
    columns = [vocabulary[term] for term in slow.vocabulary]
    assert counts.has_canonical_format
    assert (counts[:, columns] != slow.counts[:, : len(columns)]).nnz == 0


def test_korean_particles_are_split_off():
    tokenize = tokenizer("auto", "ko")
    with_particle, alone = tokenize(["도서관에서 책을 읽었다", "도서관 책"])
    assert set(alone) <= set(with_particle)
    assert "에서" not in with_particle and "을" not in with_particle
    assert tokenize([]) == []


def test_chinese_is_segmented_into_words_without_punctuation():
    (words,) = tokenizer("auto", "zh")(["我来到北京清华大学。"])
    assert "北京" in words and "。" not in words and len(words) > 2


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("hi", "हिन्दी में लिखी किताबें", ["हिन्दी", "में"]),
        ("ta", "தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("ne", "नेपाली भाषा", ["नेपाली", "भाषा"]),
    ],
)
def test_words_keep_their_vowel_signs(language, text, words):
    """A stem may end earlier; what stands before its end is all there."""
    assert resolve("auto", language) == "snowball"
    (terms,) = tokenizer("auto", language)([text])
    assert len(terms) == len(text.split())
    assert all(word.startswith(term) for term, word in zip(terms, text.split(), strict=True))
    (alone,) = tokenizer("auto", language)([" ".join(words)])
    assert set(alone) <= set(terms)


@pytest.mark.parametrize(
    ("language", "sentence", "word", "other"),
    [
        ("th", "ภาษาไทยเป็นภาษาที่มีเสียงวรรณยุกต์", "วรรณยุกต์", "ตัวอักษร"),
        ("km", "ខ្ញុំរៀនភាសាខ្មែរនៅសាលា", "ភាសាខ្មែរ", "ប្រទេសថៃ"),
        ("lo", "ຂ້ອຍຮຽນພາສາລາວຢູ່ໂຮງຮຽນ", "ພາສາລາວ", "ປະເທດໄທ"),
        ("my", "ကျွန်တော်မြန်မာစာသင်နေသည်", "မြန်မာစာ", "ထိုင်းနိုင်ငံ"),
        ("ja", "私は昨日東京タワーに登りました", "東京タワー", "大阪城"),
    ],
)
def test_a_word_is_found_in_a_sentence_without_blanks(language, sentence, word, other):
    assert resolve("auto", language) == "ngram"
    found, asked, foreign = tokenizer("auto", language)([sentence, word, other])
    # A letter that a long one leaves over at the end of a word belongs to the next piece of a
    # sentence.
    assert set(asked) - set(found) <= {word[-1]}
    assert len(set(asked) & set(found)) > 1
    assert not set(foreign) & set(found)


@pytest.mark.parametrize("kind", ["snowball", "jieba", "ngram", "whitespace"])
@given(text=TEXTS)
def test_it_does_not_matter_how_an_accent_is_written(kind, text):
    together, apart = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    tokenize = tokenizer(kind, "es")
    assert tokenize([apart]) == tokenize([together])


@given(text=TEXTS)
def test_pieces_hold_every_letter_and_digit(text):
    (tokens,) = tokenizer("ngram", "xx")([text])
    letters = {letter for letter in one_form(text).lower() if letter.isalnum()}
    assert letters <= set("".join(tokens))


def test_joiners_choose_a_shape_in_indic_scripts_and_part_words_elsewhere():
    (sinhala,), (plain,) = tokenizer("ngram", "si")(["ශ්\u200dරී", "ශ්රී"])
    assert sinhala == plain
    with_joiner, with_blank = tokenizer("ngram", "fa")(["می\u200cخواهم", "می خواهم"])
    assert with_joiner == with_blank


@pytest.mark.parametrize(
    ("language", "query", "wrong", "right"),
    [
        ("en", "type 2 diabetes", "Type 1 diabetes is treated", "Type 2 diabetes is treated"),
        ("en", "what does vitamin c do", "Vitamin K does much", "Vitamin C does much"),
        ("en", "a dose of 1.5 mg", "A dose of 2.5 mg", "A dose of 1.5 mg"),
        ("en", "since v1.3", "Since v1.2", "Since v1.3"),
        ("de", "Vitamin C", "Vitamin K hilft", "Vitamin C hilft"),
        ("fr", "vitamine C", "L'eau d'or est une vitamine", "La vitamine C n'a rien de cela"),
        ("tr", "saat 5", "Saat 7'de gel", "Saat 5'te gel"),
        ("en", "reverse an array in C#", "Reverse an array in C", "Reverse an array in C#"),
        ("en", "store at −5 degrees", "Store at 5 degrees", "Store at -5 degrees"),
        ("en", "the .net framework", "The net framework", "The .NET framework"),
        ("en", "a load of 1.5%", "A load of 1.5", "A load of 1.5%"),
        ("de", "C++ lernen", "C lernen", "C++ lernen"),
        ("ko", "C#은 무엇", "C는 무엇", "C#은 무엇"),
        ("zh", "用C#写", "用C++写", "用C#写"),
        ("fr", "garconniere a l'hopital", "La forêt", "La garçonnière de l'hôpital"),
        ("es", "el AÑO", "El ano", "El año"),
        ("en", "Çeşme", "Izmir", "The town Cesme"),
        ("vi", "tieng Viet", "Tây Ban Nha", "tiếng Việt"),
        ("ru", "елка", "йолка", "ёлка"),
        ("he", "שלום", "ספר", "שָׁלוֹם"),
        ("fa", "كتاب", "فارسی", "کتاب"),
        ("ar", "محمد ٢", "كتاب 3", "مُحَمَّـــد 2"),
        ("ja", "ABC012 ﾌﾟﾘﾝﾀｰ", "ＸＹＺ スキャナー", "ＡＢＣ０１２ プリンター"),
        ("en", "get user by id", "The user was changed", "getUserById returns it"),
        ("en", "init a list", "__iter__ of a user_set", "__init__ of a user_list"),
        ("en", "10² cells", "102 cells", "10² cells"),
        ("ja", "1.5 度", "5.1 度", "1.5 度"),
    ],
)
def test_one_character_or_form_makes_a_difference(language, query, wrong, right):
    documents, scores = BM25Index.build([wrong, right], language).search([query], 2)
    assert documents[0, 0] == 1 and scores[0, 0] > scores[0, 1]


def test_english_identifiers_numbers_and_short_words_are_cut_as_ever():
    texts = ["call np.linspace(0, 1.5) don't read_csv e-mail x² Ångström naïve 10m² 1990s"]
    texts.append("Don't I say it's rock 'n' roll, O'Brien?")
    words = "call np linspac 0 don read_csv e mail x² ångström naïv 10m² 1990s"
    further = "1.5 read csv angstrom naiv"
    rows = [" ".join(row) for row in tokenizer("snowball", "en")(texts)]
    assert rows == [f"{words} {further}", "don say rock n roll brien"]


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - {"ko", "zh"}))
def test_every_language_has_a_tokeniser(language):
    assert tokenizer("auto", language)(["Reis 12345 日本 हिन्दी"])[0]
