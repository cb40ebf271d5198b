"""An edit changes what a text says, keeps how it says it, and happens upon no other truth."""

from __future__ import annotations

import datetime
import re
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.retrieval.variants.context import Context
from anmi.retrieval.variants.dates import changed_date, date_places, dates_in
from anmi.retrieval.variants.edits import RULES, edited, make_edits
from anmi.retrieval.variants.known import Known, Truths
from anmi.retrieval.variants.lexicon import ANTONYMS
from anmi.retrieval.variants.mentions import Span
from anmi.retrieval.variants.negation import negations
from anmi.retrieval.variants.numbers import changed_number, number_places, numbers_in


def edit(
    kind: str, text: str, seed: int = 0, names: list[Span] | None = None, known: Known | None = None
) -> str | None:
    made = edited(RULES[kind], text, names or [], lambda: known or Known(), partial(np.random.default_rng, seed))
    return None if made is None else made[0]


def edits(kind: str, text: str, **rest: Any) -> set[str | None]:
    return {edit(kind, text, seed, **rest) for seed in range(60)}


def shown(text: str) -> list[str]:
    return [text[start:end] for start, end in number_places(text, [])]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("from 1,200.50 m to 25.0 kg", ["1,200.50", "25.0"]),
        ("5mm, 10% and 3 kg", ["5", "10", "3"]),
        ("1.234.567,8 sind 1\u202f234", ["1.234.567,8", "1\u202f234"]),
        ("0.05 or 007", ["0.05", "007"]),
        ("CD4, 10L/28R, 0-374-26131-8, v1.2.3, IL-6, 3rd, x_2, 12:30, 4'-6, mcm(5), [1]", []),
        ("1. First\n2. Second", []),
        ("It ended in 1990, on 3 May 2001 and 2001-02-03", []),
        ("Some 1500 men (1990)", ["1500"]),
        ("between 10-20 and −5", []),
    ],
)
def test_numbers_are_those_that_measure_something(text: str, numbers: list[str]) -> None:
    assert shown(text) == numbers


def test_a_number_in_a_name_stays() -> None:
    assert number_places("Apollo 11 flew 8 days", [(0, 9)]) == [(15, 16)]
    assert edits("number", "Apollo 11", names=[(0, 9)]) == {None}


NUMBERS = st.one_of(
    st.integers(0, 10**12).map(str),
    st.integers(1000, 10**12).map(lambda value: f"{value:,}"),
    st.tuples(st.integers(0, 10**9), st.integers(1, 6)).map(lambda pair: f"{pair[0] / 10 ** pair[1]:.{pair[1]}f}"),
    st.tuples(st.integers(1000, 10**8), st.integers(1, 4)).map(lambda pair: f"{pair[0]:,}.{'5' * pair[1]}"),
)


@given(NUMBERS, st.integers(0, 10**6), st.sampled_from(["", "%", " kg"]))
def test_another_number_has_another_value_in_the_same_form(number: str, seed: int, unit: str) -> None:
    new = changed_number(f"{number}{unit}", (0, len(number)), frozenset(), np.random.default_rng(seed))
    old = float(number.replace(",", ""))
    if new is None:
        pytest.fail(f"nothing in the place of {number}")
    value = float(new.replace(",", ""))
    assert value != old and value >= 0
    assert [len(part) for part in new.split(".")[1:]] == [len(part) for part in number.split(".")[1:]]
    assert ("," in number) <= bool(re.fullmatch(r"\d{1,3}(,\d{3})*(\.\d+)?", new))
    if unit == "%" and old <= 100:
        assert value <= 100
    if old >= 10:
        assert 0.3 * old <= value <= 1.7 * old
    if re.fullmatch(r"\d+\.0+", number):
        assert re.fullmatch(r"\d+\.0+", new)


@pytest.mark.parametrize(
    ("number", "form"),
    [("1.234.567,8", r"\d(\.\d{3}){2},\d|\d{3}(\.\d{3}),\d"), ("1\u202f234", r"\d?\u202f?\d{3}"), ("007", r"0\d\d")],
)
def test_other_separators_are_kept(number: str, form: str) -> None:
    for seed in range(30):
        new = changed_number(number, (0, len(number)), frozenset(), np.random.default_rng(seed))
        assert new != number and re.fullmatch(form, new or "")


def test_a_number_that_would_be_true_is_not_taken() -> None:
    assert edits("number", "It has 2 doors") == {"It has 1 doors", "It has 3 doors"}
    assert edits("number", "It has 2 doors", known=Known(numbers=frozenset({3.0}))) == {"It has 1 doors"}
    assert edits("number", "It has 2 doors", known=Known(numbers=frozenset({1.0, 3.0}))) == {None}


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("2001-02-03 and 2001-02-03T10:00", ["2001-02-03", "2001-02-03"]),
        ("on 3 May 2001, May 3rd, 2001 or May 2001", ["3 May 2001", "May 3rd, 2001", "May 2001"]),
        ("May I? March on. In Sept. 1999", ["Sept. 1999"]),
        ("since 1066, in 2014–15, call(1990), 2500", ["1066"]),
        ("birth year | 1923 ; size | 1923 (metres)", ["1923"]),
        ("10-2001-02-03-1 1990.5", []),
    ],
)
def test_dates_are_found(text: str, dates: list[str]) -> None:
    assert [text[date.start : date.end] for date in date_places(text)] == dates


DATES = st.dates(datetime.date(1000, 1, 1), datetime.date(2099, 12, 31))
FORMS = ("{0:%Y}-{0:%m}-{0:%d}", "{0.day} {0:%B} {0:%Y}", "{0:%B} {0.day}, {0:%Y}", "in {0:%Y}", "{0:%b} {0:%Y}")


@given(DATES, st.sampled_from(FORMS), st.integers(0, 10**6))
def test_another_date_exists_is_another_and_looks_alike(date: datetime.date, form: str, seed: int) -> None:
    text = form.format(date).replace(f"{date:%Y}", f"{date.year:04d}")
    (place,) = date_places(text)
    change = changed_date(text, place, frozenset(), np.random.default_rng(seed))
    assert change is not None
    (start, end), written = change
    new = text[:start] + written + text[end:]
    (value,), (old,) = dates_in(new), dates_in(text)
    assert value != old and sum(one != other for one, other in zip(value, old, strict=True)) == 1
    assert [one is None for one in value] == [one is None for one in old]
    if None not in value:
        datetime.date(*value)  # type: ignore[arg-type]
    assert re.sub(r"\d+|[A-Z][a-z]+", "", new) == re.sub(r"\d+|[A-Z][a-z]+", "", text)
    if form.startswith("{0:%Y}-"):
        assert len(new) == len(text)


def test_a_date_that_would_be_true_is_not_taken() -> None:
    known = frozenset((year, None, None) for year in range(1900, 2090) if year != 1951)
    found = edits("date", "born in 1950", known=Known(dates=known))
    assert found <= {None, "born in 1951"} and "born in 1951" in found
    # A year says what a whole date of that year says.
    assert edits("date", "in 1950", known=Known(dates=frozenset((y, 5, 1) for y in range(1900, 2000)))) == {None}


def test_the_first_of_january_is_a_year() -> None:
    assert all(re.fullmatch(r"\d{4}-01-01", new or "") for new in edits("date", "1950-01-01"))
    assert {(new or "")[4:] for new in edits("date", "1950-06-07")} > {"-06-07"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is red.", {"It is not red."}),
        ("It is not red.", {"It is red."}),
        ("They cannot fly", {"They can fly"}),
        ("They can fly", {"They cannot fly"}),
        ("It doesn’t grow", {"It does grow"}),
        ("It won't grow", {"It will grow"}),
        ("It has grown", {"It has not grown"}),
        ("It has a tail", {"It does not have a tail"}),
        ("They had been seen", {"They had not been seen"}),
        ("They had one", {"They did not have one"}),
        ("A | is part of | B", {"A | is not part of | B"}),
        ("It is not only red", {None}),
        ("It could have been", {"It could not have been"}),
        ("Is it? Will May go? `is` is_valid this.is", {None}),
        ("no verb here", {None}),
    ],
)
def test_negations_go_in_and_out(text: str, expected: set[str | None]) -> None:
    assert edits("negation", text) == expected


WORDS = ["it", "is", "was", "can", "cannot", "has", "not", "a", "done", "red", ".", "will", "do"]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_a_negation_changes_one_verb(text: str) -> None:
    for (start, end), new in negations(text):
        assert text[start:end] != new
        one, other = (" not" in stretch or stretch == "cannot" for stretch in (text[start:end], new))
        assert one != other


def test_antonyms_keep_case_and_article_and_spare_names_and_code() -> None:
    assert edits("antonym", "The Largest. Before it, an upper one") == {
        "The Largest. After it, an upper one",
        "The Largest. Before it, a lower one",
    }
    assert edits("antonym", "in North Street", names=[]) == {None}
    assert edits("antonym", "the north end", names=[(0, 9)]) == {"the north start"}
    assert edits("antonym", "np.maximum max_first import/x\n>>> import old") == {None}
    assert edits("antonym", "the default is True") == {"the default is False"}


def test_opposites_are_other_words_each_with_an_opposite_of_its_own() -> None:
    assert len(ANTONYMS) > 160
    assert all(word != other and word == word.lower() for word, other in ANTONYMS.items())
    assert set(ANTONYMS.values()) <= set(ANTONYMS)


def test_an_opposite_that_would_be_true_is_not_taken(make_world: Any) -> None:
    facts = [("x", "birthPlace", "rome")]
    entities = {"x": ("X", []), "rome": ("Rome", [])}
    text = "X | birth place | Rome"
    lives = make_world(entities, {"d": (text, facts)})
    dies = make_world(entities, {"d": (text, facts)}, [("x", "deathPlace", "rome")])
    made = [
        make_edits(Context.of(world.graph, np.array([0], np.int32), world.ids, world.texts), ["antonym"], 1)
        for world in (lives, dies)
    ]
    assert made[0].text.tolist() == ["X | death place | Rome"] and made[1].empty


def test_no_number_or_date_of_a_fact_becomes_that_of_another(make_world: Any) -> None:
    facts = [("x", "runs", '"2"'), ("x", "born", "1950-01-01"), ("x", "size", '"3 (metres)"')]
    known = [("x", "runs", "1"), ("x", "size", "2.0"), *(("x", "born", f"{y}-05-06") for y in range(1935, 1960))]
    world = make_world({"x": ("X", [])}, {"d": ("X runs 2 | born 1950-01-01", facts)}, known)
    context = Context.of(world.graph, np.array([0], np.int32), world.ids, world.texts)
    of = Truths(context).of(0)
    assert of.numbers >= {1.0, 2.0, 3.0} and (1940, 5, 6) in of.dates
    made = pd.concat([make_edits(context, ["number", "date"], seed) for seed in range(40)])
    assert set(made.kind) == {"date"}, "runs 1, 2 and 3 are all true of it"
    assert set(made.new) == {str(year) for year in range(1960, 1966)}


PIECES = ["2", "10%", "1,200.5", "in 1990", "2001-02-03", "May 5", "is", "cannot", "has", "not", "an", "Upper", "with"]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=12), st.integers(0, 99))
def test_any_text_is_edited_into_another_or_not_at_all(pieces: list[str], seed: int) -> None:
    text = " ".join(pieces)
    for kind, rule in RULES.items():
        made = edited(rule, text, [], Known, partial(np.random.default_rng, seed))
        if made is not None:
            new, old_words, new_words = made
            assert new != text and old_words in text and new_words in new, kind
            # One stretch is another, and all around it is as it was.
            assert len(new) - len(text) == len(new_words) - len(old_words)
            assert any(
                text[:start] + new_words + text[start + len(old_words) :] == new for start in range(len(text) + 1)
            )


def test_all_numbers_of_a_tail_are_known() -> None:
    assert numbers_in("160.0 (kelvins) of 1,200") == {160.0, 1200.0} and numbers_in("1985") == {1985.0}
