"""Parts of one document, and the table of what is related."""

from __future__ import annotations

import logging
import random

import numpy as np
import pandas as pd
import pytest

from anmi.corpus.related import copies, find_related, siblings


def corpus_of(*metadata: str) -> pd.DataFrame:
    return pd.DataFrame({"document_id": [f"d{i}" for i in range(len(metadata))], "metadata": metadata})


def sibling_pairs(metadata: list[str], *keys: str) -> list[tuple[int, int]]:
    first, second = siblings([f"d{i}" for i in range(len(metadata))], metadata, keys)
    return list(zip(first.tolist(), second.tolist(), strict=True))


def test_documents_of_one_parent_are_siblings_and_the_parent_is_one_of_them() -> None:
    metadata = ['{"parent": "p"}', "{}", '{"parent": "p"}', '{"parent": "q"}', '{"parent": "p"}', '{"parent": "d1"}']
    assert sibling_pairs(metadata, "parent") == [(0, 2), (0, 4), (1, 5), (2, 4)]


def test_only_values_of_the_same_key_are_compared_and_nothing_empty() -> None:
    metadata = [
        *('{"parent": "p"}', '{"page": "p"}', '{"page": 3}', '{"page": 3}', '{"parent": null}', '{"parent": null}'),
        *('{"parent": ""}', '{"parent": ""}', '{"parent": ["x"]}', '{"parent": ["x"]}', '{"other": "p"}'),
    ]
    assert sibling_pairs(metadata, "parent", "page") == [(2, 3)]
    assert sibling_pairs(metadata) == []


def test_a_pair_that_agrees_in_two_keys_stands_once() -> None:
    assert sibling_pairs(['{"a": "p", "b": 1}'] * 2, "a", "b") == [(0, 1)]


def test_a_value_that_much_of_the_corpus_shares_is_no_parent(caplog: pytest.LogCaptureFixture) -> None:
    metadata = ['{"parent": "category"}'] * 30 + ['{"parent": "x"}'] * 2 + ["{}"] * 100
    assert sibling_pairs(metadata, "parent") == [(30, 31)]
    assert caplog.messages == [
        'metadata key "parent": 30 of 132 documents share the value "category", which is no document they are parts of;'
        " 1 such values are ignored; name other keys in ingestion.sibling_keys"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert len(sibling_pairs(['{"parent": "x"}'] * 20, "parent")) == 190
    assert not caplog.messages


def test_copies_come_first_and_are_compared_with_nothing_else() -> None:
    text, another = (" ".join(random.Random(seed).choices("abcdefghij", k=80)) for seed in (0, 9))
    texts = [another, text, text, f"{text} a"]
    duplicates = pd.DataFrame({"document_id": ["d2"], "duplicate_of": ["d1"]})
    table = find_related(corpus_of('{"parent": "p"}', "{}", '{"parent": "p"}', "{}"), texts, duplicates, name_share=0)
    assert table.iloc[:, :3].values.tolist() == [
        ["d2", "d1", "copy"], ["d0", "d2", "sibling"], ["d1", "d3", "near"],
    ]  # fmt: skip
    assert table.similarity[0] == 1 and np.isnan(table.similarity[1]) and 0.9 < table.similarity[2] < 1
    assert copies(table) == {"d2": "d1"}
    none = find_related(corpus_of(*["{}"] * 4), texts, duplicates, name_share=0, least_words=82)
    assert none.kind.tolist() == ["copy"], "the limit is passed on"
    nothing = find_related(corpus_of("{}"), ["a"], duplicates.iloc[:0])
    assert nothing.columns.tolist() == table.columns.tolist() and nothing.dtypes.tolist() == table.dtypes.tolist()
