"""Counterparts say the same of somebody else; neighbours state some facts of a document and not all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.retrieval.variants.build import make_counterparts, make_neighbours
from anmi.retrieval.variants.context import Context


def counterparts(world: Any, documents: Any = None, count: int = 9, seed: int = 1) -> pd.DataFrame:
    asked = np.arange(len(world.ids)) if documents is None else np.array(documents)
    context = Context.of(world.graph, asked.astype(np.int32), world.ids, world.texts)
    return make_counterparts(context, world.ids, world.texts, count, seed)


@pytest.fixture(scope="module")
def people(make_world: Any) -> Any:
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


def test_what_is_most_alike_comes_first(people: Any) -> None:
    found = counterparts(people, [0])
    assert found.variant_id.tolist() == ["same", "ship", "more", "half"]
    assert found.text.tolist() == [people.texts[people.ids.index(name)] for name in found.variant_id]
    assert found.old.tolist() == ["a"] * 4 and found.new.tolist() == ["b", "ship", "c", "d"]
    assert found.relation.tolist() == ["birth"] * 4
    assert counterparts(people, [0], count=1).variant_id.tolist() == ["same"]


NODES = list("abcde")
FACTS = st.tuples(st.sampled_from(NODES), st.sampled_from(["r", "s", "t"]), st.sampled_from([*NODES, "1", "2"]))


@given(
    types=st.lists(st.sampled_from(["t", "u"]), min_size=5, max_size=5),
    stated=st.lists(st.lists(FACTS, max_size=4, unique=True), min_size=1, max_size=8),
    count=st.integers(1, 3),
)
def test_counterparts_are_about_others_and_entail_nothing(
    types: list[str], stated: Any, count: int, make_world: Any
) -> None:
    entities = {uri: (uri.upper(), [kind]) for uri, kind in zip(NODES, types, strict=True)}
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
    for place in range(len(world.ids)):
        alone, together = (counterparts(world, [place], count=count), found[found.place == place])
        assert alone.drop(columns="place").to_dict("records") == together.drop(columns="place").to_dict("records")


def neighbours(world: Any, documents: Any, count: int = 99, seed: int = 1) -> pd.DataFrame:
    context = Context.of(world.graph, np.array(documents, np.int32), world.ids, world.texts)
    return make_neighbours(context, world.ids, world.texts, count, seed)


def test_what_shares_most_comes_first_and_what_states_all_is_none(make_world: Any) -> None:
    entities = {name: (name.upper(), ["t"]) for name in "abcd"}
    a, b, c, d = facts = [("a", "r", "1"), ("b", "r", "2"), ("c", "r", "3"), ("d", "r", "4")]
    world = make_world(
        entities,
        {
            "own": (None, [a, b]),
            "one": (None, [a]),
            "mixed": (None, [b, c]),
            "long": (None, [a, c, d]),
            "all": (None, facts),
            "other": (None, [c, d]),
            "mute": ("Silence.", []),
        },
    )
    found = neighbours(world, [0])
    assert found.variant_id.tolist() == ["one", "mixed", "long"]
    assert found.text.tolist() == [world.texts[world.ids.index(name)] for name in found.variant_id]
    assert found.old.tolist() == ["a"] * 3 and found.new.tolist() == ["a", "b", "a"]
    assert neighbours(world, [0], count=1).variant_id.tolist() == ["one"]
    assert neighbours(world, [6]).empty and neighbours(world, [0], count=0).empty
    assert neighbours(world, []).empty


@given(st.lists(st.sets(st.integers(0, 5), max_size=4), min_size=2, max_size=9), st.integers(0, 5))
def test_against_sets(make_world: Any, sets: list[set[int]], seed: int) -> None:
    made = {f"d{i}": ("Text.", [("a", "r", str(n)) for n in sorted(facts)]) for i, facts in enumerate(sets)}
    world = make_world({"a": ("A", ["t"])}, made)
    found = neighbours(world, range(len(sets)), seed=seed)
    for place, own in enumerate(sets):
        mine = [int(name[1:]) for name in found[found.place == place].variant_id]
        assert sorted(mine) == [i for i, other in enumerate(sets) if own & other and not own <= other]
        likeness = [len(own & sets[i]) * (1 / len(own) + 1 / len(sets[i])) for i in mine]
        assert all(x >= y - 1e-9 for x, y in pairwise(likeness))
        alone = neighbours(world, [place], seed=seed).variant_id.tolist()
        assert alone == [f"d{i}" for i in mine], "whatever else is asked for"
