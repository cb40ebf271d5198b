"""The table of queries against the block it was made of, candidate by candidate."""

import json

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import NEGATIVE, OPEN, PADDING, Candidates
from anmi.report.query_table import QueryTable

LEGEND = ("open", "negative", "max_ratio", "barred")
CORPUS = pd.DataFrame(
    {"document_id": [f"d{i}" for i in range(60)], "title": "", "text": [f"text {i}" for i in range(60)]}
)


def block_of(verdicts: list[list[int]], seed: int) -> Candidates:
    rng = np.random.default_rng(seed)
    verdict = np.array(verdicts, np.int16)
    shape = verdict.shape
    documents = np.stack([rng.permutation(50)[: shape[1]] for _ in verdict]).astype(np.int32)
    documents[:, -1] = PADDING
    return Candidates(
        np.array([f"q{i}" for i in range(shape[0])]), np.full((shape[0], 1), 55, np.int32), documents,
        np.ones(shape, np.uint8), verdict=verdict, legend=LEGEND,
        columns={"choice": rng.permuted(np.tile(np.arange(shape[1], dtype=np.float32), (shape[0], 1)), axis=1),
                 "bm25": rng.uniform(0, 30, shape).astype(np.float32)},
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 24).flatmap(
        lambda width: st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1, max_size=6)
    ),
    st.integers(0, 99),
    st.integers(1, 3),
)
def test_rows_hold_the_first_negatives_and_what_was_rejected(verdicts, seed, size):
    block = block_of(verdicts, seed)
    table = QueryTable({})
    table.add_mined(block.take(slice(i, i + size)) for i in range(0, len(block), size))
    found = table.as_dict(CORPUS)
    assert len(found["rows"]) == len(block) and found["left_out"] == 0
    for i, row in enumerate(found["rows"]):
        filled = [j for j in range(block.documents.shape[1]) if block.documents[i, j] != PADDING]
        taken = [j for j in filled if block.verdict[i, j] == NEGATIVE]
        refused = [j for j in filled if block.verdict[i, j] not in (OPEN, NEGATIVE)]
        wanted = [*sorted(taken, key=lambda j: block.columns["choice"][i, j])[:8], *refused[:6]]
        here = slice(found["starts"][i], found["starts"][i + 1])
        documents = [found["ids"][place] for place in found["documents"][here]]
        assert documents == ["d55", *(f"d{block.documents[i, j]}" for j in wanted)]
        names = [found["names"][verdict] for verdict in found["verdicts"][here]]
        assert names == ["positive", *(LEGEND[block.verdict[i, j]] for j in wanted)]
        assert found["scores"]["bm25"][here][0] is None
        np.testing.assert_allclose(
            found["scores"]["bm25"][here][1:], [block.columns["bm25"][i, j] for j in wanted], atol=0.051
        )
        assert row["negatives"] == len(taken) and row["rejected"] == len(refused)
        assert sum(row["steps"].values()) == len(refused)
    json.dumps(found, allow_nan=False)


def test_a_column_that_only_a_later_block_has_is_empty_before():
    first, second = block_of([[1, 2, 1]], 0), block_of([[1, 1, 1]], 1)
    second = second.with_columns({"elo": np.full(second.documents.shape, 1200.4, np.float32)})
    table = QueryTable({})
    table.add_mined([first, second])
    elo = table.as_dict(CORPUS)["scores"]["elo"]
    assert elo == [None, None, None, None, 1200.0, 1200.0]


def test_rows_that_find_no_room_are_counted():
    table = QueryTable({}, most=3)
    table.add_held_out([{"query_id": "h", "before": 0.0, "after": 1.0, "tops": {"hybrid": [(59, True)]}}])
    table.add_mined([block_of([[1, 0]] * 2, 0), block_of([[1, 0]] * 2, 1)])
    found = table.as_dict(CORPUS)
    assert [row["id"] for row in found["rows"]] == ["h", "q0", "q1"]
    assert found["left_out"] == 2
    ((place, relevant),) = found["rows"][0]["tops"]["hybrid"]
    assert (found["ids"][place], relevant) == ("d59", True)
    assert found["starts"][:2] == [0, 0], "a held-out query has no candidates"


def test_without_rows_there_is_no_table():
    assert QueryTable({}, most=0).as_dict(CORPUS) is None
    table = QueryTable({}, most=0)
    table.add_mined([block_of([[1, 1]], 0)])
    assert table.as_dict(CORPUS) is None


def test_texts_are_the_shorter_the_more_documents_there_are():
    corpus = pd.DataFrame({"document_id": [f"d{i}" for i in range(30_000)], "title": "", "text": "word " * 200})
    tops = [{"query_id": f"q{i}", "before": 0.0, "after": 0.0, "tops": {"x": [(3 * i + j, False) for j in range(3)]}}
            for i in range(10_000)]  # fmt: skip
    lengths = []
    for count in (5, 10_000):
        table = QueryTable({}, most=10_000)
        table.add_held_out(tops[:count])
        lengths.append(max(map(len, table.as_dict(corpus)["texts"])))
    assert lengths[0] == 241 and lengths[1] < 90
