"""A neighbour states some facts of a document and not all."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.retrieval.variants.build import make_neighbours
from anmi.retrieval.variants.context import Context


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


@settings(max_examples=40, deadline=None)
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
