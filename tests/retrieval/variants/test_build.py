"""All variants of a document, of worlds known by hand and of the real collections."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from anmi.corpus.knowledge import KnowledgeGraph
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.retrieval.variants.build import KINDS, VARIANT_COLUMNS, VariantParams, counts_of, make_variants


def made(world: Any, documents: list[int] | None = None, seed: int = 1, **params: Any) -> pd.DataFrame:
    asked = np.array(range(len(world.ids)) if documents is None else documents, np.int32)
    return make_variants(world.graph, asked, world.ids, world.texts, VariantParams(**params), seed)


def inverted(texts: Sequence[str]) -> list[list[str]]:
    """Turn every text round, and have no idea for a short one."""
    return [[text[::-1], text] if len(text) > 20 else [] for text in texts]


def test_a_table_of_different_texts_each_with_its_id(cities: Any) -> None:
    found = made(cities)
    assert tuple(found.columns) == VARIANT_COLUMNS and set(map(str, found.dtypes)) == {"str"}
    assert found.variant_id.is_unique or found[found.variant_id.duplicated(keep=False)].kind.eq("counterpart").all()
    assert not found.duplicated(["document_id", "text"]).any()
    assert not made(cities, seed=2).text.equals(found.text)
    own = dict(zip(cities.ids, cities.texts, strict=True))
    assert not (found.text == found.document_id.map(own)).any()
    existing = found[found.kind == "counterpart"]
    assert (existing.text == existing.variant_id.map(own)).all() and len(existing)
    others = found[found.kind != "counterpart"]
    assert (others.variant_id == others.document_id + "#" + others.kind + ":" + others.variant_id.str[-1:]).all()
    assert "d0#swap:0" in set(others.variant_id)
    counts = counts_of(found)
    assert sum(count["variants"] for count in counts.values()) == len(found) and set(counts) <= set(KINDS)


def test_a_made_text_that_is_a_documents_is_that_document(make_world: Any) -> None:
    entities = {"a": ("A", ["t"]), "b": ("B", ["t"])}
    documents = {"own": (None, [("a", "r", "5")]), "same": ("B | r | 5", []), "more": ("A | r | 6", [("a", "r", "6")])}
    found = made(make_world(entities, documents), [0])
    swapped = found[found.text == "B | r | 5"]
    assert swapped.variant_id.tolist() == ["same"] and swapped.kind.tolist() == ["counterpart"]
    assert "A | r | 6" not in set(found.text), "that is true"


def test_what_a_generator_writes_is_a_kind_of_its_own(cities: Any) -> None:
    found = make_variants(
        cities.graph, np.arange(4, dtype=np.int32), cities.ids, cities.texts, VariantParams(), 1, inverted
    )
    written = found[found.kind == "generated"].set_index("document_id").text
    long = {name: text for name, text in zip(cities.ids, cities.texts, strict=True) if len(text) > 20}
    assert written.to_dict() == {name: text[::-1] for name, text in long.items()} and len(long) > 1


@pytest.mark.data
def test_nearly_every_document_of_a_real_graph_has_variants(shared_data: Path) -> None:
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
