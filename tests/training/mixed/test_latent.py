"""Documents that mixed sources draw from, and the latest of them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from anmi.corpus.knowledge import KnowledgeGraph
from anmi.errors import AnmiError
from anmi.training.mixed import Stock
from anmi.training.mixed.latent import LatentIndex, RingBuffer

COLUMNS = {name: pd.Series(dtype="str") for name in ("variant_id", "document_id", "kind", "text")}


def test_variants_stand_behind_the_documents_and_name_what_they_are_of(world):
    stock = world.stock
    assert stock.documents == 20 and stock.ids[:20] == tuple(world.ids)
    for number, of in enumerate(stock.origin.tolist()):
        assert number == of if number < 20 else stock.ids[number].startswith(f"{stock.ids[of]}#")
    names = [[stock.ids[n] for n in line if n >= 0] for line in stock.swaps.tolist()]
    assert names[1] == ["s1#swap:1", "s1#swap:2", "s5"], "a counterpart is the document itself"
    assert [[stock.ids[n] for n in line if n >= 0] for line in stock.edits.tolist()][:3] == [
        ["s0#number:0"], [], ["s2#number:0"],
    ]  # fmt: skip


def test_a_longer_document_entails_the_shorter_one(world):
    found = world.stock.entailing.toarray()
    assert found[world.ids.index("s3")].nonzero()[0].tolist() == [world.ids.index("s3"), world.ids.index("l3")]
    assert found[world.ids.index("l3")].nonzero()[0].tolist() == [world.ids.index("l3")]


def test_without_facts_there_is_nothing_to_go_by():
    empty = {
        name: pd.Series(dtype="str") for name in ("document_id", "head", "relation", "tail", "uri", "label", "types")
    }
    nothing = pd.DataFrame(empty)
    graph = KnowledgeGraph.from_tables(nothing, nothing, nothing, ["a"])
    with pytest.raises(AnmiError, match="kg:DIR"):
        Stock.build(["a"], ["text"], graph, pd.DataFrame(COLUMNS), sparse.csr_array((1, 1), dtype=bool))


DOCUMENTS, CAPACITY, DIMENSION = 12, 5, 3
steps = st.lists(st.lists(st.integers(0, DOCUMENTS - 1), unique=True, max_size=CAPACITY), max_size=12)


def vectors(documents, step):
    return np.random.default_rng(step).normal(size=(len(documents), DIMENSION)).astype(np.float32)


def filled(sequence):
    ring = RingBuffer(DOCUMENTS, CAPACITY, DIMENSION)
    for step, documents in enumerate(sequence):
        ring.add(np.array(documents, np.int64), vectors(documents, step), step)
    return ring


@given(steps)
@settings(max_examples=60, deadline=None)
def test_holds_each_document_once_as_it_was_encoded_last(sequence):
    held = filled(sequence).held()
    assert len(set(held.documents.tolist())) == len(held.documents) <= CAPACITY
    seen = {document: step for step, documents in enumerate(sequence) for document in documents}
    assert len(held.documents) == min(CAPACITY, len(seen))
    for document, step, vector in zip(held.documents.tolist(), held.steps.tolist(), held.vectors, strict=True):
        assert step == seen[document], "the newest embedding of a document"
        assert np.array_equal(vector, vectors(sequence[step], step)[sequence[step].index(document)])
    if sequence:
        assert set(sequence[-1]) <= set(held.documents.tolist()), "what the last step encoded is there"


@given(steps, steps)
@settings(max_examples=30, deadline=None)
def test_a_copy_goes_on_alike(before, after):
    ring, copy = filled(before), RingBuffer(DOCUMENTS, CAPACITY, DIMENSION)
    copy.load(ring.tensors())
    for step, documents in enumerate(after, start=100):
        for one in (ring, copy):
            one.add(np.array(documents, np.int64), vectors(documents, step), step)
    assert same(ring.held(), copy.held())


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("documents", "steps", "vectors"))


def brute(anchors, snapshot, count):
    return np.argsort(-anchors @ snapshot.vectors.T, axis=1, kind="stable")[:, :count]


def test_the_index_finds_the_nearest_of_what_was_held():
    ring, index = filled([[0, 1, 2, 3, 4]]), LatentIndex(refresh=3)
    anchors = vectors(range(4), 77)
    assert (index.search(anchors, 2) == -1).all(), "nothing before the first is made"
    assert [step for step in range(1, 8) if index.is_due(step)] == [3, 6]
    index.take(ring.held())
    found, right = (
        np.take_along_axis(anchors @ index.snapshot.vectors.T, p, axis=1)
        for p in (index.search(anchors, 5), brute(anchors, index.snapshot, 5))
    )
    assert np.abs(found - right).max() < 0.05, "but for the rounding of bfloat16"
    assert (index.search(anchors, 7)[:, 5:] == -1).all(), "no more than there are"
    ring.add(np.array([9]), np.full((1, DIMENSION), 100, np.float32), 4)
    assert 9 not in index.snapshot.documents
    copy = LatentIndex(refresh=3)
    copy.load(index.tensors())
    assert np.array_equal(copy.search(anchors, 5), index.search(anchors, 5))
    index.take(ring.held())
    assert 9 in index.snapshot.documents
