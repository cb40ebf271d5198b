"""Blocks one at a time: read again, mapped, in part, and as a view of one source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from anmi.candidates import PADDING, SOURCES, Candidates, CandidateShards


def block_of(rows: list[tuple[list[int], list[int]]]) -> Candidates:
    """A block whose columns tell from which document they are."""
    width = max((len(documents) for _, documents in rows), default=0)
    lists = [documents + [PADDING] * (width - len(documents)) for _, documents in rows]
    documents = np.array(lists, np.int32).reshape(len(rows), width)
    return Candidates(
        query_ids=np.array([f"q{i}" for i in range(len(rows))], dtype=np.str_),
        positives=np.array([positives for positives, _ in rows], np.int32).reshape(len(rows), 1),
        documents=documents,
        source=np.where(documents >= 0, 1, 0).astype(np.uint8),
        columns={"dense": np.where(documents >= 0, documents / 100, np.nan).astype(np.float32)},
        positive_columns={"dense": np.zeros((len(rows), 1), np.float32)},
    )


def test_shards_can_be_read_in_part(tmp_path: Path) -> None:
    block = block_of([([1], [40, 41]), ([2], [42])]).rejected("margin", np.ones((2, 2), bool), "dense ≥ 0.5", "unsafe")
    more = {name: np.ones((2, 2), np.float32) for name in ("bm25", "elo")}
    block = block.with_columns(more, query_columns={"rank": np.ones(2)})
    pq.write_table(block.to_table(), tmp_path / "part.parquet")
    for shards in (CandidateShards.read([tmp_path / "part.parquet"]), CandidateShards.of([block])):
        (part,) = shards.only("elo")
        assert set(part.columns) == {"elo"} and not part.positive_columns and not part.query_columns
        np.testing.assert_array_equal(part.documents, block.documents)
        np.testing.assert_array_equal(part.of_kind("unsafe"), block.of_kind("unsafe"))
        assert part.rules == block.rules
        assert set(next(iter(shards)).columns) >= {"bm25", "elo"}


def test_a_view_of_one_source_holds_what_it_found_best_first() -> None:
    block = block_of([([1], [40, 41, 42, 43]), ([2], [50, 51])])
    bm25, dense = SOURCES["bm25"], SOURCES["dense"]
    block.source[:] = [[bm25 | dense, dense, bm25, bm25], [dense, dense, 0, 0]]
    ranks = np.array([[3, 1, 2, 7], [1, 2, np.nan, np.nan]], np.float32)
    found = block.with_columns({"bm25_rank": ranks}).of_source("bm25")
    assert found.documents.tolist() == [[42, 40, 43], [PADDING] * 3]
    assert found.columns["bm25_rank"][0].tolist() == [2, 3, 7]
    assert np.isnan(found.columns["dense"][1]).all() and not found.source[1].any()
    assert block.of_source("bm25").documents.shape == (2, 0), "where it was not asked it found nothing"
