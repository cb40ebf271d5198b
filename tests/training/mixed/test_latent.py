"""Documents that mixed sources draw from, and the latest of them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.corpus.knowledge import Knowledge
from anmi.errors import AnmiError
from anmi.training.mixed import LatentIndex, Stock


def test_variants_stand_behind_the_documents_and_name_what_they_are_of(world):
    stock = world.stock
    assert stock.documents == 20 and stock.ids[:20].tolist() == world.ids
    for number, of in enumerate(stock.origin.tolist()):
        assert number == of if number < 20 else stock.ids[number].startswith(f"{stock.ids[of]}#")
    names = [[stock.ids[n] for n in line if n >= 0] for line in stock.swaps.tolist()]
    assert names[1] == ["s1#swap:1", "s1#swap:2", "s5"], "a counterpart is the document itself"
    assert [[stock.ids[n] for n in line if n >= 0] for line in stock.edits.tolist()][:3] == [
        ["s0#number:0"], [], ["s2#number:0"],
    ]  # fmt: skip


def test_without_facts_there_is_nothing_to_go_by():
    columns = ("document_id", "head", "relation", "tail", "uri", "label", "types")
    nothing = pd.DataFrame({name: pd.Series(dtype="str") for name in columns})
    corpus = pd.DataFrame({"document_id": ["a"], "title": "", "text": "text"})
    with pytest.raises(AnmiError, match="kg:DIR"):
        Stock.from_tables(corpus, Knowledge(nothing, nothing, nothing), nothing, nothing)


DOCUMENTS, CAPACITY, DIMENSION = 12, 5, 3
steps = st.lists(st.lists(st.integers(0, DOCUMENTS - 1), unique=True, max_size=CAPACITY), max_size=12)


def vectors(documents, step):
    return np.random.default_rng(step).normal(size=(len(documents), DIMENSION)).astype(np.float32)


def filled(sequence):
    index = LatentIndex(CAPACITY, DIMENSION)
    for step, documents in enumerate(sequence):
        index.add(np.array(documents, np.int64), vectors(documents, step))
    index.take()
    return index


@given(steps, steps)
def test_it_holds_each_document_once_as_it_was_encoded_last_and_a_copy_goes_on_alike(sequence, after):
    index = filled(sequence)
    held = index.documents.tolist()
    seen, order = {document: step for step, documents in enumerate(sequence) for document in documents}, []
    for documents in sequence:
        order = [document for document in order if document not in documents] + documents
    assert held == order[-CAPACITY:]
    for document, vector in zip(held, index.tensors()["index.3"], strict=True):
        step = seen[document]
        newest = vectors(sequence[step], step)[sequence[step].index(document)]
        assert np.array_equal(vector, newest), "the newest embedding of a document"
    copy = LatentIndex(CAPACITY, DIMENSION)
    copy.load(index.tensors())
    for one in (index, copy):
        for step, documents in enumerate(after, start=100):
            one.add(np.array(documents, np.int64), vectors(documents, step))
        one.take()
    assert all(np.array_equal(a, b) for a, b in zip(index.tensors().values(), copy.tensors().values(), strict=True))


def test_the_index_finds_the_nearest_of_what_was_held():
    index, anchors = filled([]), vectors(range(4), 77)
    assert (index.search(anchors, 2) == -1).all(), "nothing before the first is made"
    held = vectors(range(5), 0)
    index.add(np.arange(5), held)
    index.take()
    found = np.take_along_axis(anchors @ held.T, index.search(anchors, 5), axis=1)
    assert np.abs(found + np.sort(-anchors @ held.T, axis=1)).max() < 0.05, "but for the rounding of bfloat16"
    assert (index.search(anchors, 7)[:, 5:] == -1).all(), "no more than there are"
    index.add(np.array([9]), np.full((1, DIMENSION), 100, np.float32))
    assert 9 not in index.documents
    index.take()
    assert 9 in index.documents
