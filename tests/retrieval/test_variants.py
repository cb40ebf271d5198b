"""Variants of documents: swaps, other documents, edits, and where names stand in texts."""

from __future__ import annotations

import itertools
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anmi.corpus.knowledge import KnowledgeGraph, surface
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.retrieval.variants.build import (
    KINDS,
    VARIANT_COLUMNS,
    Pools,
    VariantParams,
    counts_of,
    edit_in,
    edited,
    make_counterparts,
    make_neighbours,
    make_swaps,
    make_variants,
)
from anmi.retrieval.variants.context import Context, find_mentions

Fact = tuple[str, str, str]


@dataclass(frozen=True)
class World:
    """A graph with documents that state some of it."""

    graph: KnowledgeGraph
    ids: list[str]
    texts: list[str]
    facts: list[list[Fact]]
    labels: dict[str, str]


Make = Callable[..., World]


@pytest.fixture(scope="session")
def make_world():
    """Return a function of entities {uri: (label, types)}, documents {id: (text, facts)}, facts."""

    def make(
        entities: dict[str, tuple[str, Sequence[str]]],
        documents: dict[str, tuple[str | None, Sequence[Fact]]],
        known: Sequence[Fact] = (),
    ) -> World:
        labels = {uri: label for uri, (label, _) in entities.items()}

        def written(facts: Sequence[Fact]) -> str:
            parts = [f"{labels.get(h, h)} | {r} | {labels.get(t, t)}" for h, r, t in facts]
            return " ; ".join(parts)

        table = pd.DataFrame(
            [(uri, label, json.dumps(list(types))) for uri, (label, types) in entities.items()],
            columns=["uri", "label", "types"],
        )
        rows = [(name, *fact) for name, (_, facts) in documents.items() for fact in facts]
        facts = pd.DataFrame(rows, columns=["document_id", "head", "relation", "tail"])
        graph = pd.DataFrame(list(known), columns=["head", "relation", "tail"])
        ids = list(documents)
        texts = [
            text if text is not None else written(stated) for text, stated in documents.values()
        ]
        return World(
            KnowledgeGraph.from_tables(table, graph, facts, ids),
            ids,
            texts,
            [list(stated) for _, stated in documents.values()],
            labels,
        )

    return make


@pytest.fixture(scope="session")
def cities(make_world):
    """Three cities in two countries with their mayors, some of whom may be swapped."""
    names = ["ohio", "texas", "austin", "rome", "ann", "bob", "sky"]
    kinds = dict(zip(names, (["state"], ["state"], ["city"], ["city"]), strict=False))
    entities = {name: (name.title(), kinds.get(name, [])) for name in names}
    entities["akron"] = ("Akron, Ohio", ["city"])
    documents = {
        "d0": (None, [("akron", "in", "ohio"), ("akron", "mayor", "ann")]),
        "d1": (None, [("austin", "in", "texas"), ("austin", "mayor", "bob")]),
        "d2": (None, [("rome", "colour", "sky")]),
        "d3": ("Nothing is said here.", []),
    }
    return make_world(entities, documents, [("rome", "mayor", "bob"), ("akron", "twin", "bob")])


def words(text: str, label: str, *others: str) -> list[int]:
    return [start for start, _ in find_mentions(text, [label, *others])[0]]


@pytest.mark.parametrize(
    ("text", "label", "starts"),
    [
        ("Rome, Romeo and Rome", "Rome", [0, 16]),
        ("Romes aRome _Rome Rome_ Rome2", "Rome", []),
        ("A.S. Roma beat S. Roma.", "A.S. Roma", [0]),
        ("(2) Pallas met (2) Pallas", "(2) Pallas", [0, 15]),
        ("In Washington, D.C.; Washington, D.C.", "Washington, D.C.", [3, 21]),
        ("ASP.NET on .NET", ".NET", [11]),
        ("Jose\u0301 is not Jose", "Jose", [13]),
        ("São Tomé and Sao Tome", "São Tomé", [0]),
        ("rome is not Rome", "Rome", [12]),
        ("서울은 남서울", "서울", [0]),
        ("我在北京大学", "北京", [2]),
        ("anything", "", []),
        ("short", "longer than that", []),
    ],
)
def test_a_name_is_found_as_a_whole_word_in_its_case(text, label, starts):
    assert words(text, label) == starts


def test_a_name_of_two_is_nobodys_and_takes_its_place_all_the_same():
    assert find_mentions("New York, York", ["New York", "New York", "York"]) == [[], [], [(10, 14)]]


LABELS = st.lists(st.text("ab (.", min_size=0, max_size=4), max_size=5)


@example("aa.", [".", "aa"])
@given(st.text("ab (.,", max_size=40), LABELS)
def test_mentions_are_labels_that_do_not_overlap_and_longest_first_leaves_none_out(text, labels):
    found = find_mentions(text, labels)
    spans = sorted(span for one in found for span in one)
    assert all(
        text[start:end] == label
        for label, one in zip(labels, found, strict=True)
        for start, end in one
    )
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans))
    if len(set(labels)) == len(labels):
        # The slow way: a regular expression for one label after the other, on what the longer ones
        # left.
        left = text
        for label in sorted(filter(None, labels), key=lambda one: (-len(one), one)):
            pattern = rf"(?<![ab#]){re.escape(label)}(?![ab#])"
            expected = [match.span() for match in re.finditer(rf"(?=({pattern}))", left)]
            mine = found[labels.index(label)]
            assert set(mine) <= {(start, start + len(label)) for start, _ in expected}
            assert bool(mine) == bool(expected)
            for start, end in mine:
                # What was taken still bounds what stands beside it, as a letter or as none.
                left = (
                    left[:start]
                    + "".join("#" if letter in "ab" else "\0" for letter in label)
                    + left[end:]
                )


def swaps(
    world: Any, documents: Sequence[int] | None = None, count: int = 20, seed: int = 1
) -> pd.DataFrame:
    asked = np.arange(len(world.ids)) if documents is None else np.array(documents)
    context = Context.of(world.graph, asked.astype(np.int32), world.ids, world.texts)
    return make_swaps(context, Pools(world.graph), count, seed)


def pairs(table: pd.DataFrame, place: int) -> set[tuple[str, str]]:
    own = table[table.place == place]
    return set(zip(own.old, own.new, strict=True))


def test_exactly_the_valid_swaps_are_made(cities):
    found = swaps(cities)
    # Ann may not become Bob, to whom Akron is related already; nor may Austin become Rome, whose
    # mayor he is.
    assert pairs(found, 0) == {("akron", "austin"), ("akron", "rome"), ("ohio", "texas")}
    assert pairs(found, 1) == {("texas", "ohio"), ("bob", "ann")}
    assert set(found[found.new == "texas"].relation) == {"in"}
    # Nothing else is a colour.
    assert pairs(found, 2) == {("rome", "akron"), ("rome", "austin")}
    assert pairs(found, 3) == set()


def check_alone(make: Any, world: Any, found: pd.DataFrame, count: int) -> None:
    """A document has the same variants whatever others are looked at."""
    for place in range(len(world.ids)):
        alone = make(world, [place], count=count)
        together = found[found.place == place].assign(place=0)
        assert alone.to_dict("records") == together.to_dict("records")


NODES = [f"n{i}" for i in range(7)]
FACTS = st.tuples(
    st.sampled_from(NODES),
    st.sampled_from(["r", "s"]),
    st.sampled_from([*NODES, '"n1 n2"', "25.0"]),
)


@given(
    types=st.lists(st.sampled_from(["t", "u"]), min_size=7, max_size=7),
    stated=st.lists(st.lists(FACTS, min_size=1, max_size=4), min_size=1, max_size=5),
    known=st.lists(FACTS, max_size=6),
    count=st.integers(1, 4),
)
def test_no_swap_says_a_truth_or_depends_on_other_documents(
    types, stated, known, count, make_world
):
    entities = {
        uri: (f"{uri} {uri}s" if uri == "n3" else uri, [kind])
        for uri, kind in zip(NODES, types, strict=True)
    }
    world = make_world(entities, {f"d{i}": (None, facts) for i, facts in enumerate(stated)}, known)
    found = swaps(world, count=count)
    truth = {fact for facts in stated for fact in facts} | set(known)
    for row in found.itertuples():
        facts = set(world.facts[row.place])
        changed = {(h, r, t) for h, r, t in facts if row.old in (h, t)}
        new = {
            (row.new if h == row.old else h, r, row.new if t == row.old else t)
            for h, r, t in changed
        }
        assert changed and not new & truth
        own = world.texts[row.place]
        assert row.text != own
        # All other names stand in the text as often as before.
        labels = [world.labels.get(node, surface(node)) for h, _, t in facts for node in (h, t)]
        others = sorted(set(labels) - {world.labels[row.old], world.labels[row.new]})
        before, after = (
            find_mentions(text, [*others, world.labels[row.new]]) for text in (own, row.text)
        )
        assert [len(spans) for spans in before[:-1]] == [len(spans) for spans in after[:-1]]
    assert found.groupby("place").size().max() <= count if len(found) else True
    check_alone(swaps, world, found, count)


def counterparts(world: Any, documents: Any = None, count: int = 9, seed: int = 1) -> pd.DataFrame:
    asked = np.arange(len(world.ids)) if documents is None else np.array(documents)
    context = Context.of(world.graph, asked.astype(np.int32), world.ids, world.texts)
    return make_counterparts(context, count, seed)


@pytest.fixture(scope="module")
def people(make_world):
    entities = {name: (name.upper(), ["person"]) for name in "abcd"} | {"ship": ("Ship", ["ship"])}
    documents = {
        "born": (None, [("a", "birth", "1900"), ("a", "death", "1950")]),
        "same": (None, [("b", "birth", "1901"), ("b", "death", "1951")]),
        "ship": (None, [("ship", "birth", "1901"), ("ship", "death", "1951")]),
        "own": (None, [("a", "birth", "1902"), ("a", "death", "1952")]),
        "more": (None, [("c", "birth", "1903"), ("c", "death", "1953"), ("1903", "after", "1902")]),
        "half": (None, [("d", "birth", "1904"), ("d", "height", "2")]),
        "else": (None, [("d", "height", "2")]),
        "mute": ("Silence.", []),
    }
    return make_world(entities, documents)


def test_what_is_most_alike_comes_first(people):
    found = counterparts(people, [0])
    assert found.variant_id.tolist() == ["same", "ship", "more", "half"]
    assert found.text.tolist() == [
        people.texts[people.ids.index(name)] for name in found.variant_id
    ]
    assert found.old.tolist() == ["a"] * 4 and found.new.tolist() == ["b", "ship", "c", "d"]
    assert found.relation.tolist() == ["birth"] * 4
    assert counterparts(people, [0], count=1).variant_id.tolist() == ["same"]


OTHER_NODES = list("abcde")
OTHER_FACTS = st.tuples(
    st.sampled_from(OTHER_NODES),
    st.sampled_from(["r", "s", "t"]),
    st.sampled_from([*OTHER_NODES, "1", "2"]),
)


@given(
    types=st.lists(st.sampled_from(["t", "u"]), min_size=5, max_size=5),
    stated=st.lists(st.lists(OTHER_FACTS, max_size=4, unique=True), min_size=1, max_size=8),
    count=st.integers(1, 3),
)
def test_counterparts_are_about_others_and_entail_nothing(types, stated, count, make_world):
    entities = {uri: (uri.upper(), [kind]) for uri, kind in zip(OTHER_NODES, types, strict=True)}
    world = make_world(entities, {f"d{i}": (None, facts) for i, facts in enumerate(stated)})
    found = counterparts(world, count=count)
    assert not found.duplicated(["place", "variant_id"]).any()
    for row in found.itertuples():
        other = world.facts[world.ids.index(row.variant_id)]
        own = world.facts[row.place]
        assert not set(own) <= set(other)
        assert row.old != row.new
        assert row.relation in {r for h, r, _ in own if h == row.old}
        assert {r for h, r, _ in own if h == row.old} & {r for h, r, _ in other if h == row.new}
    check_alone(counterparts, world, found, count)


def neighbours(world: Any, documents: Any, count: int = 99, seed: int = 1) -> pd.DataFrame:
    context = Context.of(world.graph, np.array(documents, np.int32), world.ids, world.texts)
    return make_neighbours(context, count, seed)


def test_what_shares_most_comes_first_and_what_states_all_is_none(make_world):
    entities = {name: (name.upper(), ["t"]) for name in "abcd"}
    a, b, c, d = facts = [("a", "r", "1"), ("b", "r", "2"), ("c", "r", "3"), ("d", "r", "4")]
    stated = [[a, b], [a], [b, c], [a, c, d], facts, [c, d], []]
    names = ["own", "one", "mixed", "long", "all", "other", "mute"]
    documents = {name: (None, known) for name, known in zip(names, stated, strict=True)}
    world = make_world(entities, documents)
    found = neighbours(world, [0])
    assert found.variant_id.tolist() == ["one", "mixed", "long"]
    assert found.text.tolist() == [world.texts[world.ids.index(name)] for name in found.variant_id]
    assert found.old.tolist() == ["a"] * 3 and found.new.tolist() == ["a", "b", "a"]
    assert neighbours(world, [0], count=1).variant_id.tolist() == ["one"]
    assert neighbours(world, [6]).empty and neighbours(world, [0], count=0).empty
    assert neighbours(world, []).empty


@given(st.lists(st.sets(st.integers(0, 5), max_size=4), min_size=2, max_size=9), st.integers(0, 5))
def test_against_sets(make_world, sets, seed):
    made = {
        f"d{i}": ("Text.", [("a", "r", str(n)) for n in sorted(facts)])
        for i, facts in enumerate(sets)
    }
    world = make_world({"a": ("A", ["t"])}, made)
    found = neighbours(world, range(len(sets)), seed=seed)
    for place, own in enumerate(sets):
        mine = [int(name[1:]) for name in found[found.place == place].variant_id]
        assert sorted(mine) == [
            i for i, other in enumerate(sets) if own & other and not own <= other
        ]
        likeness = [len(own & sets[i]) * (1 / len(own) + 1 / len(sets[i])) for i in mine]
        assert all(x >= y - 1e-9 for x, y in pairwise(likeness))
        alone = neighbours(world, [place], seed=seed).variant_id.tolist()
        assert alone == [f"d{i}" for i in mine], "whatever else is asked for"


class Model:
    """Answers as it was told, the last question first; of other texts it has a problem."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.asked = answers, list[str]()

    def __call__(self, questions: Sequence[tuple[str, str]]) -> Iterator[tuple[int, Any]]:
        for number, (_, question) in reversed(list(enumerate(questions))):
            text = question.removeprefix("<text>\n").removesuffix("\n</text>")
            self.asked.append(text)
            answer = self.answers.get(text)
            problem = "" if answer else "it was cut off"
            yield number, SimpleNamespace(text=answer or "", problem=problem)


def test_edits_come_back_to_the_texts_they_are_of(caplog):
    texts = [f"The number of ships in port {i} is {i}." for i in range(20)]
    model = Model(
        {text: text.replace("ships", "cars") for text in texts[:18]} | {texts[18]: texts[18]}
    )
    with caplog.at_level(logging.WARNING):
        found = edited(model, 4000, texts)
    assert found == [[text.replace("ships", "cars")] for text in texts[:18]] + [[], []]
    assert sorted(model.asked) == sorted(texts)
    assert "2 of 20 texts were not edited (1 × " in caplog.text


def test_what_is_too_long_or_empty_is_not_asked():
    model = Model({"brief text": "short text"})
    assert edited(model, 20, ["brief text", "a" * 21, " "]) == [["short text"], [], []]
    assert model.asked == ["brief text"] and edited(model, 20, []) == []


@pytest.mark.parametrize(
    ("answer", "edit"),
    [
        ("It is green.", "It is green."),
        ("  It  is red. ", None),
        ("Sorry, I cannot make this text false, since it is true in all possible worlds.", None),
        ("", None),
        ("No", None),
    ],
)
def test_an_answer_that_is_no_edit_is_none(answer, edit):
    assert edit_in(answer, "It is red.") == edit


def made(
    world: Any, documents: list[int] | None = None, seed: int = 1, **params: Any
) -> pd.DataFrame:
    asked = np.array(range(len(world.ids)) if documents is None else documents, np.int32)
    return make_variants(world.graph, asked, world.ids, world.texts, VariantParams(**params), seed)


def inverted(texts: Sequence[str]) -> list[list[str]]:
    """Turn every text round, and have no idea for a short one."""
    return [[text[::-1], text] if len(text) > 20 else [] for text in texts]


def test_a_table_of_different_texts_each_with_its_id(cities):
    found = made(cities)
    assert tuple(found.columns) == VARIANT_COLUMNS and set(map(str, found.dtypes)) == {"str"}
    repeated = found[found.variant_id.duplicated(keep=False)]
    assert repeated.kind.eq("counterpart").all()
    assert not found.duplicated(["document_id", "text"]).any()
    assert not made(cities, seed=2).text.equals(found.text)
    own = dict(zip(cities.ids, cities.texts, strict=True))
    assert not (found.text == found.document_id.map(own)).any()
    existing = found[found.kind == "counterpart"]
    assert (existing.text == existing.variant_id.map(own)).all() and len(existing)
    others = found[found.kind != "counterpart"]
    prefixes = others.document_id + "#" + others.kind + ":"
    assert (others.variant_id.str[:-1] == prefixes).all()
    assert "d0#swap:0" in set(others.variant_id)
    counts = counts_of(found)
    assert sum(count["variants"] for count in counts.values()) == len(found)
    assert set(counts) <= set(KINDS)


def test_a_made_text_that_is_a_documents_is_that_document(make_world):
    entities = {"a": ("A", ["t"]), "b": ("B", ["t"])}
    documents = {
        "own": (None, [("a", "r", "5")]),
        "same": ("B | r | 5", []),
        "more": ("A | r | 6", [("a", "r", "6")]),
    }
    found = made(make_world(entities, documents), [0])
    swapped = found[found.text == "B | r | 5"]
    assert swapped.variant_id.tolist() == ["same"] and swapped.kind.tolist() == ["counterpart"]
    assert "A | r | 6" not in set(found.text), "that is true"


def test_what_a_generator_writes_is_a_kind_of_its_own(cities):
    everything = (cities.graph, np.arange(4, dtype=np.int32), cities.ids, cities.texts)
    found = make_variants(*everything, VariantParams(), 1, inverted)
    written = found[found.kind == "generated"].set_index("document_id").text
    long = {
        name: text for name, text in zip(cities.ids, cities.texts, strict=True) if len(text) > 20
    }
    assert written.to_dict() == {name: text[::-1] for name, text in long.items()}


@pytest.mark.data
def test_nearly_every_document_of_a_real_graph_has_variants(shared_data):
    collection = load_collection(f"kg:{shared_data / 'kg_webnlg' / 'beir_en'}")
    ids, texts = collection.corpus.document_id.tolist(), document_texts(collection.corpus)
    graph = KnowledgeGraph.from_tables(collection.entities, collection.graph, collection.facts, ids)
    asked = np.arange(0, len(ids), 8, dtype=np.int32)
    started = time.monotonic()
    found = make_variants(graph, asked, ids, texts, VariantParams(counterparts=4), 1)
    assert time.monotonic() - started < 30
    counts = counts_of(found)
    assert counts["swap"]["documents"] > 0.99 * len(asked)
    assert counts["counterpart"]["documents"] > 0.95 * len(asked)
    assert counts["neighbour"]["documents"] > 0.5 * len(asked)
