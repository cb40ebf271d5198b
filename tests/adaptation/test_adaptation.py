"""Pseudo-queries of every kind: what they are made of, which are dropped, and those that stand in for labels."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from tests.judging.conftest import Server, completion
from tests.training.resuming import static

from anmi.adaptation import kinds
from anmi.adaptation.kinds import (
    KINDS,
    Document,
    Material,
    View,
    heading,
    keyphrase,
    title,
)
from anmi.adaptation.make import (
    COLUMNS,
    DROPPED,
    KEPT,
    FilterOptions,
    PseudoQueries,
    make_pseudo_queries,
    reasons,
)
from anmi.adaptation.pseudo_tests import labels_used, unlabelled_splits, with_pseudo_tests
from anmi.adaptation.round_trip import document_ranks
from anmi.adaptation.written import KINDS_OF_QUERIES, Writer, queries_in
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.judging.endpoint import Endpoint, EndpointOptions
from anmi.pipelines.adaptation.nodes import example_queries
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.terms import Terms
from anmi.retrieval.tokenize import tokenizer
from anmi.store import Store

# Kinds whose query and positive are the document, cut in two.
CUTS = ("cloze", "crop", "first")
# What asks a language model is tested below.
OFFLINE = tuple(kind for kind in KINDS if kind != "llm")
LANGUAGES = ["en", "ko", "zh", "ja", "th"]
CHINESE = "今天下雨了,我们没有带伞。明天会是晴天,大家都去公园散步。后天也许还会下雪,天气很冷。"
JAPANESE = "今日は雨が降っています。明日は晴れるでしょう。公園を散歩しましょう。"
THAI = "วันนี้ฝนตกหนักมากในกรุงเทพมหานคร พรุ่งนี้อากาศจะแจ่มใสตลอดทั้งวัน เราจะไปเดินเล่นในสวนสาธารณะ"
PROSE = st.lists(
    st.lists(st.sampled_from(["rain", "falls", "x", "3"]), min_size=1).map(" ".join)
).map(". ".join)
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
@given(
    name=TEXTS,
    text=TEXTS,
    language=st.sampled_from(LANGUAGES),
    most=st.integers(0, 6),
    seed=st.integers(0, 3),
)
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
def test_languages_without_blanks_have_views(kind: str, language: str, text: str) -> None:
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
)
def test_a_title_is_taken_out_of_where_the_text_begins(
    name: str, text: str, expected: list[View]
) -> None:
    assert title(Document("d", name, text, "en"), 5, seed=1) == expected


def test_a_heading_asks_for_its_section_alone() -> None:
    text = "Before.\n# One #\nFirst.\n## Two\n\nThree\n=====\nThird\nends.\nFour\n----\n"
    found = heading(Document("d", "T", text, "en"), 9, seed=1)
    assert sorted(found) == [View("One", "T First."), View("Three", "T Third\nends.")]


def asked(metadata: dict[str, object], most: int = 5) -> list[View]:
    document = Document("d", "Title", "Text.", "en", json.dumps(metadata))
    return kinds.question(Material([document], "en"))(document, most, 1)


def test_the_type_chooses_the_questions_and_the_focus_is_asked_for() -> None:
    found = asked({"focus": "Gout", "qtype": "Treatment"})
    queries = {"How is Gout treated?", "What are the treatments for Gout?"}
    assert {view.query for view in found} == queries
    assert {view.positive for view in found} == {"Title Text."}
    assert asked({"focus": "Gout", "qtype": "treatment"}, most=1) == found[:1]


@pytest.mark.parametrize("focus", [{}, {"focus": ""}, {"focus": "Gout"}])
def test_what_is_not_known_is_not_asked(focus: dict[str, str]) -> None:
    assert asked(focus) == asked(focus | {"qtype": "poems"}) == []


REST = "what is left of it"
NONE: frozenset[str] = frozenset()


def why(
    *rows: tuple[str, ...],
    copies: frozenset[str] = NONE,
    tests: frozenset[str] = NONE,
    **options: Any,
) -> list[str]:
    """Reasons of rows of document, kind, query and positive."""
    made = pd.DataFrame(rows, columns=["document_id", "kind", "text", "positive_text"])
    return reasons(made, copies, FilterOptions(**options), tests).tolist()


def test_nothing_asks_what_a_test_query_asks() -> None:
    rows = [(thing, "question", f"What is {thing} like?", REST) for thing in ("rain", "snow")]
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
    texts = ["See the web site.", "see  THE web site", "other"]
    rows = [(f"d{n}", "cloze", text, REST) for n, text in enumerate(texts)]
    asked = [(name, kind, "all rights are reserved", REST) for name, kind, *_ in rows]
    assert why(*rows[:2], *asked) == [KEPT, KEPT, *["boilerplate"] * 3]
    assert why(*rows[:2], *asked, most_documents=1)[:2] == ["boilerplate"] * 2
    assert why(*rows[:1] * 5) == [KEPT] * 5, "one document may say it often"


def test_copies_ask_nothing_and_are_no_boilerplate() -> None:
    rows = [(name, "cloze", "it rains all day", REST) for name in ("a", "b", "c", "d")]
    assert why(*rows, copies=frozenset("bcd")) == [KEPT, "copy", "copy", "copy"]


KEYPHRASE_TEXTS = """\
Insulin lowers the blood sugar; diabetics inject insulin before meals, and measure their sugar.
The moon orbits the earth once a month, and pulls its oceans after it.
Sugar cane grows in the tropics; mills press its juice, and boil it until sugar is left.
The blood carries oxygen from the lungs to the muscles, and carbon dioxide back.""".splitlines()


def views(texts: list[str], language: str, place: int = 0, most: int = 5) -> list[View]:
    documents = [Document(f"d{number}", "", text, language) for number, text in enumerate(texts)]
    return keyphrase(Material(documents, language))(documents[place], most, 1)


@pytest.mark.parametrize("place", [0, 2])
def test_the_terms_are_the_best_that_scikit_learn_finds(place: int) -> None:
    stem = tokenizer("snowball", "en")
    vectorizer = TfidfVectorizer(analyzer=lambda text: stem([text])[0], norm=None)
    weights = vectorizer.fit_transform(KEYPHRASE_TEXTS)[place].toarray()[0]
    names = vectorizer.get_feature_names_out()
    found = views(KEYPHRASE_TEXTS, "en", place)
    sizes = sorted(len(view.query.split()) for view in found)
    assert sizes == [2, 3, 4, 5, 6][: len(found)] and len(found) >= 2
    for view in found:
        terms = stem([view.query])[0]
        inside = [weights[names.tolist().index(term)] for term in terms]
        outside = [weight for name, weight in zip(names, weights, strict=True) if name not in terms]
        assert min(inside) >= max(outside) - 1e-9
        assert view.positive == KEYPHRASE_TEXTS[place]


def test_how_rare_a_term_is_is_not_learned_from_new_documents() -> None:
    texts = ["alpha beta gamma delta", "alpha beta one two", *["gamma delta three four"] * 9]
    documents = [Document(f"d{number}", "", text, "en") for number, text in enumerate(texts)]
    new = [document.document_id for document in documents[2:]]
    makers = [keyphrase(Material(documents, "en", new=each)) for each in ([], new)]
    asked = [make(documents[0], 1, 1)[0].query for make in makers]
    assert asked == ["alpha beta", "gamma delta"]
    assert makers[1](documents[-1], 1, 1), "a new document asks all the same"


TERMS = [
    (
        "ko",
        "인슐린은 혈당을 낮춘다. 당뇨병 환자는 식사 전에 인슐린을 주사하고 혈당을 잰다.",
        "인슐린",
    ),
    (
        "zh",
        "胰岛素降低血糖。糖尿病患者在饭前注射胰岛素,并在饭后测量血糖。医生建议每天运动。",
        "血糖",
    ),
    ("pl", "Insulina obniża poziom cukru we krwi; chorzy wstrzykują insulina.", "insulina"),
]


@pytest.mark.parametrize(("language", "text", "term"), TERMS)
def test_terms_are_words_of_the_language_and_dictionaries_are_asked_once(
    language: str, text: str, term: str
) -> None:
    found = views([text], language)
    assert found and any(term in view.query.casefold().split() for view in found)
    cut = replace(Terms.cut([text], language), tokenize=None)
    assert all(word in text for view in found for word in view.query.split())
    document = Document("d0", "", text, language)
    assert keyphrase(Material([document], language, terms=cut))(document, 5, 1) == found


def test_short_documents_are_not_asked_by_all_that_they_say() -> None:
    assert views(["Insulin lowers sugar."], "en") == []
    assert views(["血糖値を下げる薬です。วันนี้ฝนตกหนักมากในกรุงเทพ"], "ja") == []
    assert [len(view.query.split()) for view in views(["Insulin lowers blood sugar."], "en")] == [2]


# What one document gives depends on no other one; keyphrases need the statistics of all.
ALONE = tuple(kind for kind in OFFLINE if kind != "keyphrase")
ANYTHING = FilterOptions(most_documents=1_000)
WORDS = st.lists(
    st.sampled_from(["rain", "falls", "on", "Spain", "today", "3"]), min_size=1, max_size=8
)
PHRASES = st.lists(WORDS.map(" ".join), max_size=5).map(". ".join)


def made_of(
    corpus: pd.DataFrame, kinds: tuple[str, ...] = OFFLINE, **changes: Any
) -> PseudoQueries:
    settings = {"language": "en", "seed": 1, "show_progress": False} | changes
    return make_pseudo_queries(corpus, kinds, **settings)


def corpus(texts: list[str], titles: list[str] | None = None) -> pd.DataFrame:
    ids = [f"d{place}" for place in range(len(texts))]
    columns = {"document_id": ids, "title": titles or [""] * len(texts), "text": texts}
    return pd.DataFrame(columns, dtype=object)


def by_id(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("query_id").reset_index(drop=True)


@given(
    texts=st.lists(st.tuples(PHRASES, PHRASES), min_size=1, max_size=6),
    shuffled=st.randoms(use_true_random=False),
)
def test_a_document_asks_the_same_alone_and_in_any_order(
    texts: list[tuple[str, str]], shuffled: Any
) -> None:
    table = corpus([text for _, text in texts], [title for title, _ in texts])
    order = list(range(len(texts)))
    shuffled.shuffle(order)
    one, other = made_of(table), made_of(table.iloc[order])
    pd.testing.assert_frame_equal(by_id(one.queries), by_id(other.queries))
    pd.testing.assert_frame_equal(by_id(one.dropped), by_id(other.dropped))
    assert one.summary == other.summary
    alone = [made_of(table[n : n + 1], ALONE, filters=ANYTHING).queries for n in range(len(texts))]
    together = made_of(table, ALONE, filters=ANYTHING).queries
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True))


def test_rows_are_numbered_whole_and_of_the_split_of_their_document() -> None:
    table = corpus(
        [". ".join(f"Ship {n} enters port {n * m} today" for m in range(9)) for n in range(1, 201)]
    )
    new = dict(zip(table.document_id[:60], ("dev", "test") * 30, strict=True))
    made = made_of(table, ("cloze", "crop"), views=3, new=new, filters=ANYTHING).queries
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
    assert made.dropped.columns.tolist() == list(DROPPED) and made.queries.empty
    dropped = {"boilerplate": 6, "code_or_table": 3}
    counts = {"made": 9, "kept": 0, "documents": 0, "dropped": dropped}
    assert made.summary == {"documents": 3, "new": 0, "kinds": {"cloze": counts}}


def test_no_more_documents_ask_than_may() -> None:
    table = corpus([f"Ship {n} is here today. It left port {n} late." for n in range(50)])
    made = [made_of(table, ("cloze",), most_documents=n).queries for n in (5, 20)]
    few, many = (set(queries.document_id) for queries in made)
    assert len(few) == 5 and len(many) == 20 and few < many


BAD = {
    "no document": [],
    "empty": ["", "", ""],
    "of one word": ["rain", "snow", "sun"],
    "without letters": ["12 34. 56 78.", "| - | - |", "..."],
    "all alike": ["Ship one is here now. It left the port today."] * 10,
    "without sentences": ["a list of words without any stop " * 9, "- \n- \n"],
    "no text at all": ["\ufffd\x00", "\u200b", "\ue000"],
    "Chinese": ["今天下雨了。我们没有带伞。明天会是晴天。"] * 2,
}


@pytest.mark.parametrize("language", ["en", "th"])
@pytest.mark.parametrize("case", BAD)
def test_bad_input_makes_few_pseudo_queries_and_no_error(case: str, language: str) -> None:
    table = corpus(BAD[case], titles=BAD[case])
    made = made_of(table, language=language)
    assert made.queries.columns.tolist() == list(COLUMNS) and made.queries.weight.dtype == float
    assert set(made.queries.document_id) <= set(table.document_id)
    assert set(made.summary["kinds"]) == set(OFFLINE)


ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_docs_list_every_kind() -> None:
    table = DOCS.partition("<!-- kinds -->")[2].partition("<!-- end of kinds -->")[0]
    assert re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.M) == [*KINDS]


def test_the_docs_list_every_reason() -> None:
    table = DOCS.partition("### Filters")[2].partition("\n### ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.M)
    listed = re.findall(r"`(\w+)`", " ".join(cells))
    described = (reasons.__doc__ or "").partition("Returns")[2]
    assert listed == re.findall(r"``(\w+)``", described)


DOCUMENTS = [Document(f"d{n}", f"Title {n}", f"Text number {n}.", "en") for n in range(30)]


LABEL = re.compile(r"^(\w+): ", re.M)


def answer(number: int, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """A line of each kind that the instructions name, after the name of the document."""
    instructions, text = (message["content"] for message in body["messages"])
    name = text.splitlines()[1]
    lines = [f"{kind}: {name} {kind}" for kind in LABEL.findall(instructions)]
    return 200, {}, completion("\n".join(lines))


def expected(document: Document) -> list[str]:
    return [f"{document.title} {document.text} {kind}" for kind in KINDS_OF_QUERIES]


@pytest.fixture
def server(server: Server) -> Server:
    server.behave = answer
    return server


def writer(
    server: Server, store: Store, budget: int = 100, examples: tuple[str, ...] = ()
) -> Writer:
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    options = EndpointOptions(base_url=address, model="writer", timeout=5.0, retries=1)
    model = ("writer", address)
    ask = Endpoint(options).ask
    return Writer(ask, store, model, budget=budget, max_characters=100, examples=examples)


def test_each_document_is_asked_about_once_and_the_answers_are_kept(
    server: Server, store: Store
) -> None:
    found = writer(server, store).write(DOCUMENTS, 1)
    assert found == {document.document_id: expected(document) for document in DOCUMENTS}
    assert len(server.bodies) == 30 and len(KINDS_OF_QUERIES) == 6
    assert writer(server, store).write(DOCUMENTS[::-1], 1) == found and len(server.bodies) == 30
    writer(server, store, examples=("is gout\nrare",)).write(DOCUMENTS[:1], 1)
    assert len(server.bodies) == 31, "another prompt has other answers"
    shown = server.bodies[-1]["messages"][0]["content"]
    assert "<examples>\nis gout rare\n</examples>" in shown
    assert "<examples>" not in server.bodies[0]["messages"][0]["content"]
    make = KINDS["llm"](Material(DOCUMENTS, "en", write=lambda _: found))
    views = make(DOCUMENTS[4], 9, 0)
    assert sorted(view.query for view in views) == sorted(expected(DOCUMENTS[4]))
    assert {view.positive for view in views} == {"Title 4 Text number 4."}
    firsts = {make(document, 1, 0)[0].query.rpartition(" ")[2] for document in DOCUMENTS}
    assert firsts == set(KINDS_OF_QUERIES), "documents begin with different kinds"
    assert make(DOCUMENTS[4], 2, 0) == views[:2]
    with pytest.raises(AnmiError, match=r"set adaptation\.llm\.base_url"):
        KINDS["llm"](Material(DOCUMENTS, "en"))


def test_the_budget_bounds_the_calls_and_a_larger_one_holds_the_smaller(
    server: Server, store: Store
) -> None:
    few = writer(server, store, budget=7).write(DOCUMENTS, 1)
    assert len(few) == len(server.bodies) == 7
    assert writer(server, store, budget=7).write(DOCUMENTS, 1) == few and len(server.bodies) == 7
    more = writer(server, store, budget=12).write(DOCUMENTS, 1)
    assert few.items() <= more.items() and len(more) == len(server.bodies) == 12
    assert writer(server, store, budget=0).write(DOCUMENTS, 1) == {}


def test_answers_of_any_length_and_language_are_kept_in_whole_lines(
    server: Server, store: Store
) -> None:
    lines = [f"{n} 今天下雨了吗 {'雨' * 50}" for n in range(40)]
    server.says("\n".join(lines) + "\n" + "x" * 5000)
    for _ in range(2):
        (found,) = writer(server, store).write(DOCUMENTS[:1], 1).values()
        assert 5 < len(found) < 40 and found == lines[: len(found)]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("- what is gout\n* gout diet\n", ["what is gout", "gout diet"]),
        ("1) 'gout'\n\n2) “gout pain”", ["gout", "gout pain"]),
        ("3 ways to treat gout\n2024 guide", ["3 ways to treat gout", "2024 guide"]),
        ("Here are some queries:\ngout", ["gout"]),
        ("keywords: gout diet\nClaim： 痛风很常见", ["gout diet", "痛风很常见"]),
        ('1. **Keywords:** gout\n2) __detail__: "what dose: 5 mg"', ["gout", "what dose: 5 mg"]),
        ("question:\nwhat is gout", ["what is gout"]),
        ("titles of kings\nneed help: gout", ["titles of kings", "need help: gout"]),
        ("", []),
        ("Sure, I can do that", []),
    ],
)
def test_lines_are_queries(text: str, queries: list[str]) -> None:
    assert queries_in(text) == queries


@pytest.mark.parametrize(("host", "leaves"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_warning_says_once_what_leaves_this_machine(
    host: str, leaves: bool, server: Server, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "0.0.0.0,127.0.0.1")
    address = f"http://{host}:{server.server_address[1]}/v1"
    endpoint = Endpoint(EndpointOptions(base_url=address, model="writer"))
    for number in (1, 2):
        assert [*endpoint.ask([("title: ", "<document>\nrain")])] and len(server.bodies) == number
    said = [r.getMessage() for r in caplog.records if r.name == "anmi.judging.endpoint"]
    assert len(said) == leaves
    assert all("4000 characters of each document are sent to 0.0.0.0" in text for text in said)


def test_examples_are_training_queries_whose_labels_are_used() -> None:
    names = [f"q{n}" for n in range(90)]
    table = pd.DataFrame({"query_id": names, "text": names, "split": ["train", "dev", "test"] * 30})
    labels = table[:60].assign(relevance=1)
    examples = example_queries(table, labels, 1.0, seed=1)
    trained = table[table.split == "train"][:20].text
    assert len(examples) == 4 and set(examples) <= set(trained)
    assert len({*example_queries(table, labels[:9], 1.0, seed=1)}) == 3
    for share in (0.0, 0.1, 0.5):
        used = labels_used(table[:0], table, share, seed=1)[1].text
        assert {*example_queries(table, labels, share, seed=1)} <= {*trained} & {*used}


QUERY = ["q", "?", "train", "{}", ""]
QUERIES = pd.DataFrame([QUERY], columns=["query_id", "text", "split", "metadata", "same_as"])
QRELS = pd.DataFrame(
    [["q", "c", 1, "train"]], columns=["query_id", "document_id", "relevance", "split"]
)
PARTS = [
    f"{word} is here." for word in ["One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight"]
]
TEXT = " ".join(PARTS)
VIEWS = [
    *[("cloze", part, "A " + TEXT.replace(part, "")) for part in PARTS],
    ("title", "A", TEXT),
    *[("keyphrase", f"here {number}", f"A {TEXT}") for number in range(5)],
]


def asked_and_left(
    count: int, kinds: tuple[str, ...] = ("cloze", "title", "keyphrase")
) -> tuple[list[str], str]:
    """What the first of so many new documents asks, by kind, and what is left of its text."""
    names = [f"d{number}" for number in range(count)]
    whole = pd.DataFrame({"document_id": names, "title": "A", "text": TEXT, "metadata": "{}"})
    rows = [
        (f"{kind}:{place}:{name}", text, name, positive, kind, 1.0, "test")
        for name in names
        for place, (kind, text, positive) in enumerate(VIEWS)
        if kind in kinds
    ]
    made = pd.DataFrame(rows, columns=list(COLUMNS))
    lacking = unlabelled_splits(QUERIES, QRELS)
    corpus, queries, qrels = with_pseudo_tests(whole, QUERIES, QRELS, made, lacking)
    assert queries.columns.equals(QUERIES.columns) and qrels.dtypes.equals(QRELS.dtypes)
    own = queries[queries.query_id.isin(qrels.query_id[qrels.document_id == "d0"])]
    assert set(own.split) == {"test"} and set(corpus.title) == {""}
    # What is asked is taken out.
    assert not any(text in corpus.text[0] for text in own.text if text in PARTS)
    return own.query_id.str.split(":").str[0].tolist(), corpus.text[0]


def test_new_documents_ask_more_where_they_are_few_and_half_of_the_text_is_left() -> None:
    assert [len(asked_and_left(count)[0]) for count in (40, 30, 15, 10, 3, 1)] == [1, 1, 2, 3, 5, 5]
    assert "keyphrase" not in asked_and_left(15)[0] and asked_and_left(3)[0].count("keyphrase") <= 1
    asked, left = asked_and_left(3, ("cloze",))
    assert asked == ["cloze"] * 4 and len(left.split()) == 13


def test_key_phrases_are_asked_once_where_a_document_has_nothing_else() -> None:
    assert asked_and_left(3, ("keyphrase",)) == (["keyphrase"], f"A {TEXT}")


def test_splits_with_labels_stay_as_they_are() -> None:
    nothing = pd.DataFrame({"document_id": ["c"], "split": "test"})
    corpus, queries, qrels = with_pseudo_tests(nothing, QUERIES, QRELS, nothing, [])
    assert corpus is nothing and queries is QUERIES and qrels is QRELS


def test_the_round_trip_finds_the_rest_of_the_document_among_all_others() -> None:
    draws = np.random.default_rng(0)
    words = [[f"w{n}" for n in draws.integers(0, 40, 12)] for _ in range(60)]
    texts = [f"{' '.join(line[:6])}. {' '.join(line[6:])}." for line in words]
    table = corpus(texts, titles=["w1 w2 w3"] * 60)
    table = table.assign(copy_of=["d0", "d1", "d1", *table.document_id[3:]])
    encoder = Encoder.of(static())
    terms = Terms.cut(document_texts(table), "en")
    new = {"d7": "test", "d8": "dev"}
    rank = partial(document_ranks, corpus=table, terms=terms, encoder=encoder, new=new)
    kinds = ("cloze", "keyphrase", "crop")
    options = ANYTHING.model_copy(update={"least_letters": 0.0})
    asks = {"new": new, "terms": terms, "rank": rank, "copies": frozenset(["d2"])}
    made = made_of(table, kinds, filters=options, **asks).queries
    is_trained_on = made.split == "train"
    trained = made[is_trained_on]
    ranks = rank(trained)

    # BM25 and cosines over all documents, one after the other.
    counts = [Counter(words) for words in terms.tokenize(document_texts(table))]
    mean = np.mean([sum(count.values()) for count in counts])
    vectors = encoder.encode(document_texts(table), "document")

    def bm25(query: list[str], count: Counter[str]) -> float:
        holding = {word: sum(word in each for each in counts) for word in query}
        idf = {word: np.log1p((60.5 - df) / (df + 0.5)) for word, df in holding.items()}
        scale = 0.9 * (0.6 + 0.4 * sum(count.values()) / mean)
        return sum(idf[word] * count[word] / (count[word] + scale) for word in set(query))

    for row, rank_of_row in zip(trained.itertuples(), ranks.tolist(), strict=True):
        query, positive = terms.tokenize([row.text, row.positive_text])
        query_vector = encoder.encode([row.text], "query")[0]
        lexical = np.array([bm25(query, count) for count in counts])
        cosines = vectors @ query_vector
        total = lexical / lexical.std() + cosines / cosines.std()
        own = bm25(query, Counter(positive)) / lexical.std()
        own += encoder.encode([row.positive_text], "document")[0] @ query_vector / cosines.std()
        is_rival = ~table.document_id.isin([row.document_id, "d2", *new]).to_numpy()
        expected = 1 + int((total[is_rival] > own + 1e-4).sum())
        at_most = 1 + int((total[is_rival] > own - 1e-4).sum())
        assert expected <= rank_of_row <= at_most

    for k in (1, 5, 30, 100):
        limited = options.model_copy(update={"round_trip": k})
        some = made_of(table, kinds, filters=limited, **asks)
        stays = {*trained.query_id[ranks <= k], *made.query_id[~is_trained_on]}
        assert {*some.queries.query_id} == stays
        counts = some.summary["kinds"].values()
        dropped = sum(kind["dropped"].get("not_found", 0) for kind in counts)
        assert dropped == (some.dropped.reason == "not_found").sum() == (ranks > k).sum()
    assert 5 < ranks.max() <= 60
