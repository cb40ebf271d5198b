"""A swap makes false what the document says, and touches nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import surface
from anmi.retrieval.variants.build import Pools, make_swaps
from anmi.retrieval.variants.context import Context, find_mentions


def swaps(world: Any, documents: Sequence[int] | None = None, count: int = 20, seed: int = 1) -> pd.DataFrame:
    asked = np.arange(len(world.ids)) if documents is None else np.array(documents)
    context = Context.of(world.graph, asked.astype(np.int32), world.ids, world.texts)
    return make_swaps(context, Pools(world.graph), count, seed)


def pairs(table: pd.DataFrame, place: int) -> set[tuple[str, str]]:
    own = table[table.place == place]
    return set(zip(own.old, own.new, strict=True))


def test_exactly_the_valid_swaps_are_made(cities: Any) -> None:
    found = swaps(cities)
    # Ann may not become Bob, to whom Akron is related already; nor may Austin become Rome, whose mayor he is.
    assert pairs(found, 0) == {("akron", "austin"), ("akron", "rome"), ("ohio", "texas")}
    assert pairs(found, 1) == {("texas", "ohio"), ("bob", "ann")}
    # Nothing else is a colour.
    assert pairs(found, 2) == {("rome", "akron"), ("rome", "austin")}
    assert pairs(found, 3) == set()


def test_the_text_changes_wherever_the_entity_stands_and_only_there(cities: Any) -> None:
    found = swaps(cities, [0]).set_index("new")
    assert found.text["texas"] == "Akron, Ohio | in | Texas ; Akron, Ohio | mayor | Ann"
    assert found.text["rome"] == "Rome | in | Ohio ; Rome | mayor | Ann"
    assert found.relation["texas"] == "in"
    assert set(found.kind) == {"swap"}


NODES = [f"n{i}" for i in range(7)]
FACTS = st.tuples(st.sampled_from(NODES), st.sampled_from(["r", "s"]), st.sampled_from([*NODES, '"n1 n2"', "25.0"]))


@given(
    types=st.lists(st.sampled_from(["t", "u"]), min_size=7, max_size=7),
    stated=st.lists(st.lists(FACTS, min_size=1, max_size=4), min_size=1, max_size=5),
    known=st.lists(FACTS, max_size=6),
    count=st.integers(1, 4),
)
def test_no_swap_says_a_truth_or_depends_on_other_documents(
    types: list[str], stated: Any, known: Any, count: int, make_world: Any
) -> None:
    entities = {uri: (f"{uri} {uri}s" if uri == "n3" else uri, [kind]) for uri, kind in zip(NODES, types, strict=True)}
    world = make_world(entities, {f"d{i}": (None, facts) for i, facts in enumerate(stated)}, known)
    found = swaps(world, count=count)
    truth = {fact for facts in stated for fact in facts} | set(known)
    for row in found.itertuples():
        facts = set(world.facts[row.place])
        changed = {(h, r, t) for h, r, t in facts if row.old in (h, t)}
        new = {(row.new if h == row.old else h, r, row.new if t == row.old else t) for h, r, t in changed}
        assert changed and not new & truth
        own = world.texts[row.place]
        assert row.text != own
        # All other names stand in the text as often as before.
        labels = [world.labels.get(node, surface(node)) for h, _, t in facts for node in (h, t)]
        others = sorted(set(labels) - {world.labels[row.old], world.labels[row.new]})
        before, after = (find_mentions(text, [*others, world.labels[row.new]]) for text in (own, row.text))
        assert [len(spans) for spans in before[:-1]] == [len(spans) for spans in after[:-1]]
    assert found.groupby("place").size().max() <= count if len(found) else True
    for place in range(len(world.ids)):
        alone, together = (swaps(world, [place], count=count), found[found.place == place])
        assert alone.drop(columns="place").to_dict("records") == together.drop(columns="place").to_dict("records")
