from __future__ import annotations

from dataclasses import replace

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from anmi.adaptation.kinds import Document, Material, View, keyphrase
from anmi.retrieval.terms import Terms
from anmi.retrieval.tokenize import tokenizer

TEXTS = [
    "Insulin lowers the blood sugar; diabetics inject insulin before meals, and measure their sugar after them.",
    "The moon orbits the earth once a month, and pulls its oceans after it.",
    "Sugar cane grows in the tropics; mills press its juice, and boil it until sugar is left.",
    "The blood carries oxygen from the lungs to the muscles, and carbon dioxide back.",
]


def views(texts: list[str], language: str, place: int = 0, most: int = 5) -> list[View]:
    documents = [Document(f"d{number}", "", text, language) for number, text in enumerate(texts)]
    return keyphrase(Material(documents, language))(documents[place], most, 1)


@pytest.mark.parametrize("place", [0, 2])
def test_the_terms_are_the_best_that_scikit_learn_finds(place: int) -> None:
    stem = tokenizer("snowball", "en")
    vectorizer = TfidfVectorizer(analyzer=lambda text: stem([text])[0], norm=None)
    weights = vectorizer.fit_transform(TEXTS)[place].toarray()[0]
    names = vectorizer.get_feature_names_out()
    found = views(TEXTS, "en", place)
    assert sorted(len(view.query.split()) for view in found) == [2, 3, 4, 5, 6][: len(found)] and len(found) >= 2
    for view in found:
        terms = stem([view.query])[0]
        inside = [weights[names.tolist().index(term)] for term in terms]
        outside = [weight for name, weight in zip(names, weights, strict=True) if name not in terms]
        assert min(inside) >= max(outside) - 1e-9
        assert view.positive == TEXTS[place]


def test_how_rare_a_term_is_is_not_learned_from_new_documents() -> None:
    texts = ["alpha beta gamma delta", "alpha beta one two", *["gamma delta three four"] * 9]
    documents = [Document(f"d{number}", "", text, "en") for number, text in enumerate(texts)]
    new = [document.document_id for document in documents[2:]]
    asked = [keyphrase(Material(documents, "en", new=each))(documents[0], 1, 1)[0].query for each in ([], new)]
    assert asked == ["alpha beta", "gamma delta"]
    assert keyphrase(Material(documents, "en", new=new))(documents[-1], 1, 1), "a new document asks all the same"


@pytest.mark.parametrize(
    ("language", "text", "term"),
    [
        ("ko", "인슐린은 혈당을 낮춘다. 당뇨병 환자는 식사 전에 인슐린을 주사하고 혈당을 잰다.", "인슐린"),
        ("zh", "胰岛素降低血糖。糖尿病患者在饭前注射胰岛素,并在饭后测量血糖。医生建议每天运动。", "血糖"),
        ("pl", "Insulina obniża poziom cukru we krwi; chorzy wstrzykują insulina przed każdym posiłkiem.", "insulina"),
    ],
)
def test_terms_are_words_of_the_language_and_dictionaries_are_asked_once(language: str, text: str, term: str) -> None:
    found = views([text], language)
    assert found and any(term in view.query.casefold().split() for view in found)
    cut = replace(Terms.cut([text], language), tokenize=None)
    assert all(word in text for view in found for word in view.query.split())
    document = Document("d0", "", text, language)
    assert keyphrase(Material([document], language, terms=cut))(document, 5, 1) == found


def test_short_documents_are_not_asked_by_all_that_they_say_and_languages_without_words_by_nothing() -> None:
    assert views(["Insulin lowers sugar."], "en") == []
    assert views(["血糖値を下げる薬です。วันนี้ฝนตกหนักมากในกรุงเทพ"], "ja") == []
    assert [len(view.query.split()) for view in views(["Insulin lowers blood sugar."], "en")] == [2]
