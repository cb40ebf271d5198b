from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.adaptation.make import KEPT, FilterOptions, _holds, _repeats, reasons
from anmi.corpus.duplicates import normalised

REST = "what is left of it"


def why(*rows: tuple[str, str, str, str], copies: frozenset[str] = frozenset(), **options: float) -> list[str]:
    """Reasons of rows of document, kind, query and positive."""
    made = pd.DataFrame(rows, columns=["document_id", "kind", "text", "positive_text"])
    return reasons(made, copies, FilterOptions(**options)).tolist()


def test_nothing_asks_what_a_test_query_asks() -> None:
    made = pd.DataFrame({
        "text": ["What is rain like?", "What is snow like?"], "document_id": ["a", "b"],
        "positive_text": "Water that falls.", "kind": "question",
    })  # fmt: skip
    assert reasons(made, frozenset(), FilterOptions(), frozenset(["what is rain like"])).tolist() == ["test_query", ""]


@pytest.mark.parametrize(
    ("kind", "query", "positive", "reason"),
    [
        ("cloze", "it rains all day", REST, KEPT),
        ("cloze", "it rains", REST, "too_short"),
        ("title", "Rain", REST, KEPT),
        ("keyphrase", "rain", REST, KEPT),
        ("title", "", REST, "too_short"),
        ("cloze", "今天下雨了我们没有带伞", "明天会是晴天", KEPT),
        ("cloze", "下雨了", "明天会是晴天", "too_short"),
        ("crop", "word " * 151, REST, "too_long"),
        ("crop", "词" * 301, REST, "too_long"),
        ("cloze", "it rains all day", "left over", "little_left"),
        ("cloze", "it rains all day", "", "little_left"),
        ("cloze", "x = { 1 , 2 , 3 , 4 } ;", REST, "code_or_table"),
        ("cloze", "12 13 | 14 15 | 16 17", REST, "code_or_table"),
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


def test_no_pseudo_queries_have_no_reasons() -> None:
    assert why() == []


WORDS = st.lists(st.sampled_from(["Rain", "rains", "a", "x-ray", "..", "(all)", "5 %", "été", "雨"]), max_size=6)


@given(text=WORDS, form=WORDS, blank=st.sampled_from([" ", ", ", "\n\n"]))
def test_a_missing_word_is_seen_without_normalising(text: list[str], form: list[str], blank: str) -> None:
    written, run = blank.join([*text, *form[:2]]), normalised(" ".join(form))
    assert _repeats(written, run) == _holds(normalised(written), run)
