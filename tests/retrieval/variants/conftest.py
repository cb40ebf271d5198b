"""A graph small enough that everything about it can be said by hand, and worlds drawn at random."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import pytest

from anmi.corpus.knowledge import KnowledgeGraph

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
def make_world() -> Make:
    """Return a function of entities {uri: (label, types)}, documents {id: (text or None, facts)} and further facts."""

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
        texts = [text if text is not None else written(stated) for text, stated in documents.values()]
        return World(
            KnowledgeGraph.from_tables(table, graph, facts, ids),
            ids,
            texts,
            [list(stated) for _, stated in documents.values()],
            labels,
        )

    return make


@pytest.fixture(scope="session")
def cities(make_world: Make) -> World:
    """Three cities in two countries with their mayors: what may be swapped for what is said in the tests."""
    entities = {
        "akron": ("Akron, Ohio", ["city"]),
        "ohio": ("Ohio", ["state"]),
        "texas": ("Texas", ["state"]),
        "austin": ("Austin", ["city"]),
        "rome": ("Rome", ["city"]),
        "ann": ("Ann", []),
        "bob": ("Bob", []),
        "sky": ("Sky", []),
    }
    documents = {
        "d0": (None, [("akron", "in", "ohio"), ("akron", "mayor", "ann")]),
        "d1": (None, [("austin", "in", "texas"), ("austin", "mayor", "bob")]),
        "d2": (None, [("rome", "colour", "sky")]),
        "d3": ("Nothing is said here.", []),
    }
    return make_world(entities, documents, [("rome", "mayor", "bob"), ("akron", "twin", "bob")])
