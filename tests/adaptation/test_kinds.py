from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.adaptation.kinds import KINDS, Document, Material, View, crop, heading, title

# Kinds whose query and positive are the document, cut in two.
CUTS = ("cloze", "crop", "first")
# What asks a language model is tested in test_written.py.
OFFLINE = tuple(kind for kind in KINDS if kind != "llm")
LANGUAGES = ["en", "ko", "zh", "ja", "th"]
CHINESE = "今天下雨了,我们没有带伞。明天会是晴天,大家都去公园散步。后天也许还会下雪,天气很冷。"
JAPANESE = "今日は雨が降っています。明日は晴れるでしょう。公園を散歩しましょう。"
THAI = "วันนี้ฝนตกหนักมากในกรุงเทพมหานคร พรุ่งนี้อากาศจะแจ่มใสตลอดทั้งวัน เราจะไปเดินเล่นในสวนสาธารณะ"
PROSE = st.lists(st.lists(st.sampled_from(["rain", "falls", "x", "3"]), min_size=1).map(" ".join)).map(". ".join)
TEXTS = st.one_of(st.text(st.characters()), PROSE, st.sampled_from([CHINESE, JAPANESE, THAI]))


def made_by(kind: str, document: Document, most: int, seed: int) -> list[View]:
    return KINDS[kind].fit(Material([document], document.language))(document, most, seed)


def solid(*texts: str) -> Counter[str]:
    return Counter("".join("".join(texts).split()))


@pytest.mark.parametrize("kind", CUTS)
@given(name=TEXTS, text=TEXTS, language=st.sampled_from(LANGUAGES), seed=st.integers(0, 3))
def test_query_and_positive_are_the_document_and_share_nothing(
    kind: str, name: str, text: str, language: str, seed: int
) -> None:
    for query, positive in made_by(kind, Document("d", name, text, language), 5, seed):
        assert solid(query, positive) == solid(name, text)
        assert query == " ".join(query.split()) != ""


@pytest.mark.parametrize("kind", OFFLINE)
@given(name=TEXTS, text=TEXTS, language=st.sampled_from(LANGUAGES), most=st.integers(0, 6), seed=st.integers(0, 3))
@example(name="a", text="", language="en", most=5, seed=0)
@example(name="", text="word", language="en", most=5, seed=0)
@example(name="same", text="same", language="en", most=5, seed=0)
def test_views_are_no_more_than_asked_for_differ_and_come_again(
    kind: str, name: str, text: str, language: str, most: int, seed: int
) -> None:
    document = Document("d", name, text, language)
    views = made_by(kind, document, most, seed)
    assert len(views) <= most and len(set(views)) == len(views)
    assert views == made_by(kind, document, most, seed)


def test_the_draw_is_that_of_seed_and_document() -> None:
    text = ". ".join(f"Sentence {place} says {place * 7}" for place in range(30))
    for kind in ("cloze", "crop"):
        first, again, other = (
            made_by(kind, Document(name, "", text, "en"), 5, seed) for name, seed in (("a", 1), ("b", 1), ("a", 2))
        )
        assert first not in (again, other)


@pytest.mark.parametrize(("language", "text"), [("zh", CHINESE), ("ja", JAPANESE), ("th", THAI)])
def test_languages_without_blanks_have_sentences_and_crops(language: str, text: str) -> None:
    document = Document("d", "", text, language)
    for kind in ("cloze", "crop", "first"):
        views = made_by(kind, document, 5, seed=1)
        assert views, kind
        assert all(4 < len(view.query) < len(text) for view in views)


def test_crops_begin_and_end_at_words() -> None:
    text = " ".join(f"w{place}" for place in range(60))
    for view in crop(Document("d", "", text, "en"), 50, seed=1):
        words = view.query.split()
        assert 5 <= len(words) <= 30 and set(words) <= set(text.split())


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Rain", "Rain. It falls.", [View("Rain", "It falls.")]),
        ("Rain", "RAIN: rain - it falls.", [View("Rain", "it falls.")]),
        ("Rain", "Rainbows are round.", [View("Rain", "Rainbows are round.")]),
        ("雨", "雨是水。", [View("雨", "是水。")]),
        ("कि", "किताब", [View("कि", "किताब")]),
        ("Rain", "Rain", []),
        ("Rain", " rain. ", []),
        ("", "It falls.", []),
        (" ", "It falls.", []),
        ("Rain", "", []),
    ],
)  # fmt: skip
def test_a_title_is_taken_out_of_where_the_text_begins(name: str, text: str, expected: list[View]) -> None:
    assert title(Document("d", name, text, "en"), 5, seed=1) == expected


def test_a_heading_asks_for_its_section_alone() -> None:
    text = "Before.\n# One #\nFirst.\n## Two\n\nThree\n=====\nThird\nends.\nFour\n----\n"
    found = heading(Document("d", "T", text, "en"), 9, seed=1)
    assert sorted(found) == [View("One", "T First."), View("Three", "T Third\nends.")]


def test_a_document_that_offers_nothing_has_no_views() -> None:
    for text in ("", " ", "word", "One sentence alone."):
        for kind in OFFLINE:
            assert made_by(kind, Document("d", "", text, "en"), 5, seed=1) == []
