"""Pseudo-queries of every kind, and which are dropped."""

from __future__ import annotations

import json
from collections import Counter

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.adaptation import kinds
from anmi.adaptation.kinds import KINDS, Document, Material, QuestionOptions, View, heading, title
from anmi.adaptation.make import KEPT, FilterOptions, reasons

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
    return KINDS[kind](Material([document], document.language))(document, most, seed)


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
        assert kind != "crop" or len(query.split()) <= 5 + len(text.split()) / 2


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


@pytest.mark.parametrize(("language", "text"), [("zh", CHINESE), ("ja", JAPANESE), ("th", THAI)])
@pytest.mark.parametrize("kind", CUTS)
def test_languages_without_blanks_have_sentences_and_crops(kind: str, language: str, text: str) -> None:
    views = made_by(kind, Document("d", "", text, language), 5, seed=1)
    assert views and all(4 < len(view.query) < len(text) for view in views)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Rain", "Rain. It falls.", [View("Rain", "It falls.")]),
        ("Rain", "RAIN: rain - it falls.", [View("Rain", "it falls.")]),
        ("Rain", "Rainbows are round.", [View("Rain", "Rainbows are round.")]),
        ("कि", "किताब", [View("कि", "किताब")]),
        ("Rain", "Rain", []),
        ("Rain", " rain. ", []),
        ("", "It falls.", []),
    ],
)  # fmt: skip
def test_a_title_is_taken_out_of_where_the_text_begins(name: str, text: str, expected: list[View]) -> None:
    assert title(Document("d", name, text, "en"), 5, seed=1) == expected


def test_a_heading_asks_for_its_section_alone() -> None:
    text = "Before.\n# One #\nFirst.\n## Two\n\nThree\n=====\nThird\nends.\nFour\n----\n"
    found = heading(Document("d", "T", text, "en"), 9, seed=1)
    assert sorted(found) == [View("One", "T First."), View("Three", "T Third\nends.")]


def asked(metadata: dict[str, object], language: str = "en", most: int = 5, **keys: str) -> list[View]:
    document = Document("d", "Title", "Text.", language, json.dumps(metadata))
    return kinds.question(Material([document], language, QuestionOptions(**keys)))(document, most, 1)


def test_the_type_chooses_the_questions_and_the_focus_is_asked_for() -> None:
    found = asked({"focus": "Gout", "qtype": "Treatment"})
    assert {view.query for view in found} == {"How is Gout treated?", "What are the treatments for Gout?"}
    assert {view.positive for view in found} == {"Title Text."}
    assert asked({"focus": "Gout", "qtype": "treatment"}, most=1) == found[:1]

    # What is not known is not asked.
    for metadata in ({}, {"focus": "Gout"}, {"focus": "", "qtype": "stages"}, {"focus": "Gout", "qtype": "poems"}):
        assert asked(metadata) == []


REST = "what is left of it"


NONE: frozenset[str] = frozenset()


def why(
    *rows: tuple[str, str, str, str], copies: frozenset[str] = NONE, tests: frozenset[str] = NONE, **options: float
) -> list[str]:
    """Reasons of rows of document, kind, query and positive."""
    made = pd.DataFrame(rows, columns=["document_id", "kind", "text", "positive_text"])
    return reasons(made, copies, FilterOptions(**options), tests).tolist()


def test_nothing_asks_what_a_test_query_asks() -> None:
    rows = [("a", "question", "What is rain like?", REST), ("b", "question", "What is snow like?", REST)]
    assert why(*rows, tests=frozenset(["what is rain like"])) == ["test_query", ""]


@pytest.mark.parametrize(
    ("kind", "query", "positive", "reason"),
    [
        ("cloze", "it rains all day", REST, KEPT),
        ("cloze", "it rains", REST, "too_short"),
        ("title", "", REST, "too_short"),
        ("cloze", "今天下雨了我们没有带伞", "明天会是晴天", KEPT),
        ("cloze", "下雨了", "明天会是晴天", "too_short"),
        ("crop", "word " * 151, REST, "too_long"),
        ("crop", "词" * 301, REST, "too_long"),
        ("cloze", "it rains all day", "left over", "little_left"),
        ("cloze", "x = { 1 , 2 , 3 , 4 } ;", REST, "code_or_table"),
        ("cloze", "It rains all day.", "They say: it rains, all day long.", "repeats"),
        ("cloze", "it rains all day", "it rains all days of it", KEPT),
        ("cloze", "我们没有带伞今天下雨", "所以我们没有带伞今天下雨了", "repeats"),
        ("keyphrase", "rain", "the rain in Spain", KEPT),
    ],
)
def test_the_reason_of_a_pseudo_query(kind: str, query: str, positive: str, reason: str) -> None:
    assert why(("d", kind, query, positive)) == [reason]


def test_what_several_documents_ask_is_boilerplate_however_it_is_written() -> None:
    rows = [
        (f"d{n}", "cloze", text, REST) for n, text in enumerate(["See the web site.", "see  THE web site", "other"])
    ]
    asked = [(*row[:2], "all rights are reserved", row[3]) for row in rows]
    assert why(*rows[:2], *asked) == [KEPT, KEPT, *["boilerplate"] * 3]
    assert why(*rows[:2], *asked, most_documents=1)[:2] == ["boilerplate"] * 2
    assert why(*rows[:1] * 5) == [KEPT] * 5, "one document may say it often"


def test_copies_ask_nothing_and_are_no_boilerplate() -> None:
    rows = [(name, "cloze", "it rains all day", REST) for name in ("a", "b", "c", "d")]
    assert why(*rows, copies=frozenset("bcd")) == [KEPT, "copy", "copy", "copy"]
