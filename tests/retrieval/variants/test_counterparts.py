"""A counterpart says the same of somebody else, and nothing of what the document says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anmi.retrieval.variants.build import make_counterparts
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


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
