"""New terms, against sets of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.evaluation.binned import Tally
from anmi.evaluation.vocabulary import new_term_shares, read_terms

WORDS = st.lists(st.sampled_from([f"w{i}" for i in range(25)]), max_size=8)
TEXTS = st.lists(WORDS, min_size=1, max_size=8)
PAIRS = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=8)


def read(documents: Any, queries: Any, pairs: Any = (), most: int = 1000) -> dict[str, Any]:
    lengths = {"documents": Tally([2.0, 4.0]), "queries": Tally([2.0, 4.0])}
    labels = tuple(np.array([pair[side] for pair in pairs], int) for side in (0, 1))
    return read_terms(
        [" ".join(text) for text in documents],
        [" ".join(text) for text in queries],
        labels,
        lambda texts: [text.split() for text in texts],
        most=most,
        lengths=lengths,
    )


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, PAIRS)
def test_expected_new_terms_leave_a_text_and_its_own_out(documents: Any, queries: Any, pairs: Any) -> None:
    pairs = {(q, d) for q, d in pairs if q < len(queries) and d < len(documents)}
    found = read(documents, queries, sorted(pairs))["expected"]
    texts = {("d", i): text for i, text in enumerate(documents)} | {("q", i): text for i, text in enumerate(queries)}
    own = {key: {key} for key in texts}
    for q, d in pairs:
        own["q", q].add(("d", d))
        own["d", d].add(("q", q))
    for side, name in (("d", "documents"), ("q", "queries")):
        new = total = 0
        for key, text in texts.items():
            if key[0] == side:
                others = {word for other, words in texts.items() if other not in own[key] for word in words}
                new += sum(word not in others for word in text)
                total += len(text)
        assert found[name].get("share", 0) == pytest.approx(new / max(total, 1))


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_new_terms_are_those_that_the_reference_has_nowhere(one: Any, two: Any, three: Any, four: Any) -> None:
    known = {word for text in one + two for word in text}
    found = new_term_shares(read(one, two), read(three, four))
    for name, texts in (("documents", three), ("queries", four)):
        words = [word for text in texts for word in text]
        assert (name in found) == bool(words)
        if words:
            assert found[name] == pytest.approx(sum(word not in known for word in words) / len(words))


def test_the_rarest_terms_are_left_out_all_of_one_frequency_together() -> None:
    documents = [["a", "b", "c"], ["a", "b", "d"], ["a"]]
    found = read(documents, [["a"]], most=3)
    assert (found["terms"], found["least"]) == (2, 2)
    # c and d are new again, since nothing tells them from what was never there.
    assert new_term_shares(found, read(documents, [["a"]]))["documents"] == pytest.approx(2 / 7)
    # A further text would find "b" kept only if two others have it.
    assert found["expected"]["documents"]["share"] == pytest.approx(4 / 7)


def test_the_largest_vocabulary_is_small_and_hardly_ever_wrong() -> None:
    words = [f"term{i}" for i in range(200_000)]
    found = read([words], [[]], most=200_000)
    assert found["terms"] == 200_000
    assert len(found["encoded"]) < 1_000_000
    other = read([[f"other{i}" for i in range(200_000)]], [[]], most=200_000)
    assert new_term_shares(found, other)["documents"] > 1 - 2e-4
