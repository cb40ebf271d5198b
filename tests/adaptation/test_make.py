from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.adaptation.kinds import KINDS
from anmi.adaptation.make import COLUMNS, DROPPED, FilterOptions, PseudoQueries, make_pseudo_queries, reasons

# What asks a language model is tested in test_written.py.
OFFLINE = tuple(kind for kind in KINDS if kind != "llm")
# What one document gives depends on no other one; keyphrases need the statistics of all.
ALONE = tuple(kind for kind in OFFLINE if kind != "keyphrase")
ANYTHING = FilterOptions(most_documents=1_000)
WORDS = st.lists(st.sampled_from(["rain", "falls", "on", "Spain", "today", "3"]), min_size=1, max_size=8)
TEXTS = st.lists(WORDS.map(" ".join), max_size=5).map(". ".join)


def made_of(corpus: pd.DataFrame, kinds: tuple[str, ...] = OFFLINE, **changes: Any) -> PseudoQueries:
    return make_pseudo_queries(corpus, kinds, **({"language": "en", "seed": 1, "show_progress": False} | changes))


def corpus(texts: list[str], titles: list[str] | None = None) -> pd.DataFrame:
    rows = [
        (f"d{place}", title, text) for place, (title, text) in enumerate(zip(titles or [""] * 999, texts, strict=False))
    ]
    return pd.DataFrame(rows, columns=["document_id", "title", "text"], dtype=object)


def by_id(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("query_id").reset_index(drop=True)


@given(texts=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), shuffled=st.randoms(use_true_random=False))
def test_a_document_asks_the_same_alone_and_in_any_order(texts: list[tuple[str, str]], shuffled: Any) -> None:
    table = corpus([text for _, text in texts], [title for title, _ in texts])
    order = list(range(len(texts)))
    shuffled.shuffle(order)
    one, other = made_of(table), made_of(table.iloc[order])
    pd.testing.assert_frame_equal(by_id(one.kept), by_id(other.kept))
    pd.testing.assert_frame_equal(by_id(one.dropped), by_id(other.dropped))
    assert one.summary == other.summary
    alone = [made_of(table[n : n + 1], ALONE, filters=ANYTHING).kept for n in range(len(texts))]
    together = made_of(table, ALONE, filters=ANYTHING).kept
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True))


def test_rows_are_numbered_whole_and_of_the_split_of_their_document() -> None:
    table = corpus([". ".join(f"Ship {n} enters port {n * m} today" for m in range(9)) for n in range(1, 201)])
    new = dict(zip(table.document_id[:60], ("dev", "test") * 30, strict=True))
    made = made_of(table, ("cloze", "crop"), views=3, new=new, filters=ANYTHING).kept
    assert made.columns.tolist() == list(COLUMNS) and not made.isna().any().any()
    assert made.query_id.is_unique
    expected = [f"cloze:{view}:{name}" for name in table.document_id for view in range(3)]
    assert made.query_id[made.kind == "cloze"].tolist() == expected
    assert made.groupby(["kind", "document_id"]).size().max() == 3
    assert made.split.tolist() == [new.get(name, "train") for name in made.document_id]
    assert set(made.split) == {"train", "dev", "test"}


def test_what_is_dropped_is_counted_by_reason() -> None:
    table = corpus(["All rights are reserved. Ship one is here now. 12 13 14 15."] * 3)
    made = made_of(table, ("cloze",))
    assert made.dropped.columns.tolist() == list(DROPPED) and made.kept.empty
    assert made.summary == {
        "documents": 3, "new": 0,
        "kinds": {"cloze": {"made": 9, "kept": 0, "documents": 0, "dropped": {"boilerplate": 6, "code_or_table": 3}}},
    }  # fmt: skip


def test_no_more_documents_ask_than_may() -> None:
    table = corpus([f"Ship {n} is here today. It left port {n} late." for n in range(50)])
    few, many = (set(made_of(table, ("cloze",), most_documents=n).kept.document_id) for n in (5, 20))
    assert len(few) == 5 and len(many) == 20 and few < many


BAD = {
    "no document": [],
    "empty": ["", "", ""],
    "of one word": ["rain", "snow", "sun"],
    "without letters": ["12 34. 56 78.", "| - | - |", "..."],
    "all alike": ["Ship one is here now. It left the port today."] * 10,
    "without sentences": ["a list of words without any stop " * 9, "another list of words " * 9, "- \n- \n"],
    "no text at all": ["\ufffd\x00", "\u200b", "\ue000"],
    "Chinese": ["今天下雨了。我们没有带伞。明天会是晴天。"] * 2,
}


@pytest.mark.parametrize("language", ["en", "th"])
@pytest.mark.parametrize("case", BAD)
def test_bad_input_makes_few_pseudo_queries_and_no_error(case: str, language: str) -> None:
    table = corpus(BAD[case], titles=BAD[case])
    made = made_of(table, language=language)
    assert made.kept.columns.tolist() == list(COLUMNS) and made.kept.weight.dtype == float
    assert set(made.kept.document_id) <= set(table.document_id)
    assert set(made.summary["kinds"]) == set(OFFLINE)


ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_docs_list_every_kind() -> None:
    table = DOCS.partition("<!-- kinds -->")[2].partition("<!-- end of kinds -->")[0]
    assert re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.M) == [*KINDS]


def test_the_docs_list_every_reason() -> None:
    table = DOCS.partition("### Filters")[2].partition("\n### ")[0]
    listed = [name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)]
    described = (reasons.__doc__ or "").partition("Returns")[2]
    assert listed == re.findall(r"``(\w+)``", described)
