"""Statistics of terms: from which documents they are, and what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from anmi.judging.evidence import Terms

TEXTS = ["red fox red", "fox", "", "sea whale sea sea"]


def split(texts: Sequence[str]) -> list[list[str]]:
    return [text.split() for text in texts]


def test_terms_are_counted_with_lucenes_idf() -> None:
    terms = Terms.build(TEXTS, split)
    column = terms.vocabulary
    assert terms.counts.toarray()[:, column["red"]].tolist() == [2, 0, 0, 0]
    assert terms.counts.toarray()[:, column["fox"]].tolist() == [1, 1, 0, 0]
    assert terms.idf[column["fox"]] == pytest.approx(math.log(1 + 2.5 / 2.5))
    assert terms.idf[column["sea"]] == pytest.approx(math.log(1 + 3.5 / 1.5))
    assert terms.lengths.tolist() == [3, 1, 0, 4]
    assert terms.mean_length == 2
    assert terms.mass[0] == pytest.approx(terms.idf[column["red"]] + terms.idf[column["fox"]])
    norms = np.linalg.norm(terms.unit.toarray(), axis=1)
    np.testing.assert_allclose(norms, [1, 1, 0, 1], rtol=1e-6)


def test_a_query_holds_each_known_term_once() -> None:
    terms = Terms.build(TEXTS, split)
    queries = terms.queries(["fox fox unknown red", "unknown"])
    fox, red = terms.vocabulary["fox"], terms.vocabulary["red"]
    assert set(queries[0].indices) == {fox, red}
    assert queries.toarray()[0, fox] == terms.idf[fox]
    assert queries[1].nnz == 0
