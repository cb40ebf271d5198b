"""The ring buffer and the index over it."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.training.mixed.latent import LastSteps, LatentIndex, RingBuffer

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


def test_documents_that_come_once_leave_in_the_order_they_came():
    assert sorted(filled([[i] for i in range(9)]).held().documents.tolist()) == [4, 5, 6, 7, 8]


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


def number(ids):
    return np.array([int(name) if name.isdigit() else -1 for name in ids], np.int64)


@given(steps, st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_what_the_last_steps_encoded_is_in_the_buffer_whenever_it_is_put_in(sequence, stop):
    """Copied to another process after some steps, it gives the same; and the newest are as if put in at once."""
    last, ring = LastSteps(number, CAPACITY), RingBuffer(DOCUMENTS, CAPACITY, DIMENSION)
    for step, documents in enumerate(sequence):
        if step == stop:
            values, tensors = last.state()
            last = LastSteps(number, CAPACITY)
            last.load(json.loads(json.dumps(values)), tensors)
        # Something that is no document stands among them.
        encoded = np.concatenate([np.full((1, DIMENSION), 9, np.float32), vectors(documents, step)])
        last.add(["a", *map(str, documents)], encoded, len(documents), step)
    last.into(ring)
    held, eager = ring.held(), filled(sequence).held()
    seen = {document: step for step, documents in enumerate(sequence) for document in documents}
    for document, step, vector in zip(held.documents.tolist(), held.steps.tolist(), held.vectors, strict=True):
        assert step == seen[document]
        assert np.array_equal(vector, vectors(sequence[step], step)[sequence[step].index(document)])
    assert set(sequence[-1] if sequence else []) <= set(held.documents.tolist())
    if sum(map(len, sequence)) < 1.5 * CAPACITY:
        assert same(held, eager), "nothing was dropped"


def brute(anchors, snapshot, count):
    return np.argsort(-anchors @ snapshot.vectors.T, axis=1, kind="stable")[:, :count]


def test_a_flat_index_finds_the_nearest_and_is_only_made_when_it_is_due():
    ring, index = filled([[0, 1, 2, 3, 4]]), LatentIndex(refresh=3, kind="flat")
    anchors = vectors(range(4), 77)
    assert (index.search(anchors, 2) == -1).all(), "nothing before the first is made"
    index.update(2, ring)
    assert index.snapshot is None
    index.update(3, ring)
    found, right = (
        np.take_along_axis(anchors @ index.snapshot.vectors.T, p, axis=1)
        for p in (index.search(anchors, 5), brute(anchors, index.snapshot, 5))
    )
    assert np.abs(found - right).max() < 0.05, "but for the rounding of bfloat16"
    assert (index.search(anchors, 7)[:, 5:] == -1).all(), "no more than there are"
    ring.add(np.array([9]), np.full((1, DIMENSION), 100, np.float32), 4)
    index.update(4, ring)
    assert 9 not in index.snapshot.documents
    index.update(6, ring)
    assert 9 in index.snapshot.documents


def test_an_hnsw_index_is_taken_up_when_the_next_is_due_and_goes_on_alike():
    rng = np.random.default_rng(1)
    many, ring = 300, RingBuffer(300, 300, 8)
    index, copy = LatentIndex(10, "hnsw"), LatentIndex(10, "hnsw")
    anchors = rng.normal(size=(6, 8)).astype(np.float32)
    first = rng.normal(size=(many, 8)).astype(np.float32)
    ring.add(np.arange(many), first, 1)
    index.update(10, ring)
    assert index.snapshot is None, "it is being made"
    ring.add(np.arange(many), rng.normal(size=(many, 8)).astype(np.float32), 11)
    index.update(20, ring)
    assert np.array_equal(index.snapshot.vectors, first), "the one that was begun ten steps ago"
    hits = index.search(anchors, 10)
    right = brute(anchors, index.snapshot, 10)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(hits.tolist(), right.tolist(), strict=True)]) > 0.9
    copy.load(index.tensors())
    assert np.array_equal(copy.search(anchors, 10), hits)
    for one in (index, copy):
        one.update(30, ring)
    assert np.array_equal(copy.search(anchors, 10), index.search(anchors, 10))
    assert copy.snapshot.steps.tolist() == [11] * many


def test_a_product_quantiser_finds_nearly_what_the_exact_index_finds_and_always_the_same():
    rng = np.random.default_rng(0)
    # Ten clusters, as documents about the same things are.
    centres = rng.normal(size=(10, 32))
    found = centres[rng.integers(0, 10, 1500)] + 0.7 * rng.normal(size=(1500, 32))
    found = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    ring = RingBuffer(1500, 1500, 32)
    ring.add(np.arange(1500), found, 0)
    indexes = {}
    for kind in ("flat", "pq", "again"):
        indexes[kind] = LatentIndex(1, "pq" if kind == "again" else kind)
        for step in (1, 2):
            indexes[kind].update(step, ring)
    asked = found[:100] + 0.05 * rng.normal(size=(100, 32)).astype(np.float32)
    places = {kind: index.search(asked, 20) for kind, index in indexes.items()}
    overlap = np.mean([len(set(a) & set(b)) for a, b in zip(places["flat"], places["pq"], strict=True)]) / 20
    assert overlap > 0.5, "by chance it would be a hundredth"
    assert np.array_equal(places["pq"], places["again"])
    assert (places["pq"][:, :3] == np.arange(100)[:, None]).any(axis=1).mean() > 0.9
    assert indexes["pq"]._index.code_size == 7, "seven bits for four of 32 dimensions each"


def test_of_few_vectors_the_quantiser_has_few_bits_and_of_next_to_none_it_is_exact():
    for count, bits in ((64, 3), (17, 1), (15, None), (0, None)):
        ring = RingBuffer(max(count, 1), 100, 6)
        ring.add(np.arange(count), vectors(range(count), 1).repeat(2, axis=1), 0)
        index = LatentIndex(1, "pq")
        for step in (1, 2):
            index.update(step, ring)
        assert getattr(getattr(index._index, "pq", None), "nbits", None) == bits
        assert index.search(np.ones((2, 6), np.float32), 4).shape == (2, 4)
