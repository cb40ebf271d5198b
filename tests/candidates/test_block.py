"""The block of candidates: round trips, verdicts, stacking, parts, and views of one source."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from anmi.candidates import PADDING, Candidates, CandidateShards

Row = tuple[list[int], list[int]]
ROWS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), max_size=3, unique=True), st.lists(st.integers(31, 90), max_size=6, unique=True)
    ),
    max_size=6,
)


def ragged(rows: list[list[int]], width: int | None = None) -> np.ndarray:
    width = max(map(len, rows), default=0) if width is None else width
    return np.array([row + [PADDING] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)


def block_of(rows: list[Row], **changes: object) -> Candidates:
    """A block whose columns tell from which document they are."""
    positives, documents = ragged([p for p, _ in rows]), ragged([d for _, d in rows])
    filled = documents != PADDING
    fields: dict[str, object] = {
        "query_ids": np.array([f"q{i}" for i in range(len(rows))], dtype=np.str_),
        "positives": positives,
        "documents": documents,
        "source": np.where(filled, 1 + documents % 3, 0).astype(np.uint8),
        "columns": {"dense": np.where(filled, documents / 100, np.nan).astype(np.float32)},
        "positive_columns": {"dense": np.where(positives >= 0, positives / 100, np.nan).astype(np.float32)},
        "query_columns": {"rank": np.arange(len(rows), dtype=np.float32)},
        "verdict": np.where(filled, documents % 3, 0).astype(np.int16),
        "weight": np.where(filled, documents / 200, 0).astype(np.float32),
        "query_verdict": (np.arange(len(rows)) % 2 * 2).astype(np.int16),
        "legend": ("open", "negative", "denoise"),
    }
    return Candidates(**(fields | changes))  # type: ignore[arg-type]


def contents(block: Candidates) -> list[object]:
    """Everything a block says, row by row, free of how it is padded."""
    rows: list[object] = []
    for i in range(len(block)):
        filled, known = block.filled[i], block.positives[i] != PADDING
        rows.append((
            str(block.query_ids[i]),
            block.positives[i][known].tolist(),
            block.documents[i][filled].tolist(),
            block.source[i][filled].tolist(),
            [block.legend[code] for code in block.verdict[i][filled]],
            block.weight[i][filled].tolist(),
            block.legend[block.query_verdict[i]],
            {name: np.nan_to_num(c[i][filled], nan=-9).tolist() for name, c in sorted(block.columns.items())},
            {name: np.nan_to_num(c[i][known], nan=-9).tolist() for name, c in sorted(block.positive_columns.items())},
            {name: float(c[i]) for name, c in sorted(block.query_columns.items())},
        ))  # fmt: skip
    return rows


@given(ROWS)
def test_a_block_survives_a_parquet_file(rows: list[Row]) -> None:
    block = block_of(rows)
    file = io.BytesIO()
    pq.write_table(block.to_table(), file)
    back = Candidates.from_table(pq.ParquetFile(file).read())
    assert contents(back) == contents(block)
    assert back.legend == block.legend
    for name in ("positives", "documents", "source", "verdict", "weight", "query_verdict"):
        assert getattr(back, name).dtype == getattr(block, name).dtype
    assert {c.dtype for c in [*back.columns.values(), *back.query_columns.values()]} == {np.dtype(np.float32)}


def test_padding_inside_a_row_is_closed_up_for_all_columns_alike() -> None:
    block = block_of([([1], [40, PADDING, 41]), ([2], [50, 51, 52])])
    back = Candidates.from_table(block.to_table())
    assert back.documents.tolist() == [[40, 41, PADDING], [50, 51, 52]]
    assert contents(back) == contents(block)


def test_the_first_verdict_stands() -> None:
    block = block_of([([1], [40, 41, 42])], verdict=np.zeros((1, 3), np.int16), query_verdict=np.zeros(1, np.int16))
    block = block.rejected("margin", np.array([[True, False, False]]))
    block = block.rejected("denoise", np.array([[True, True, False]]))
    assert [block.legend[code] for code in block.verdict[0]] == ["margin", "denoise", "open"]
    assert block.undecided.tolist() == [[False, False, True]]


def test_a_dropped_query_keeps_its_first_reason_and_its_candidates_are_left_alone() -> None:
    rows: list[Row] = [([1], [40]), ([2], [50])]
    block = block_of(rows, verdict=np.zeros((2, 1), np.int16), query_verdict=np.zeros(2, np.int16))
    block = block.dropped("consistency", np.array([True, False])).dropped("min_negatives", np.array([True, True]))
    assert [block.legend[code] for code in block.query_verdict] == ["consistency", "min_negatives"]
    block = block.rejected("x", np.ones((2, 1), bool))
    assert not block.verdict.any() and not block.undecided.any()


@given(ROWS, ROWS)
def test_stacking_keeps_every_row_whatever_the_widths_and_legends(first: list[Row], second: list[Row]) -> None:
    a = block_of(first)
    b = block_of(second, legend=("open", "negative", "margin"), query_columns={"rank": np.zeros(len(second), "f4")})
    assert contents(Candidates.concatenate([a, b])) == contents(a) + contents(b)


def test_take_accepts_indexes_masks_and_slices() -> None:
    block = block_of([([1], [40]), ([2, 3], [50, 51]), ([4], [])])
    whole = contents(block)
    assert contents(block.take(np.array([2, 0, 0]))) == [whole[2], whole[0], whole[0]]
    assert contents(block.take(np.array([False, True, False]))) == [whole[1]]
    assert contents(block.take(slice(1, None))) == whole[1:]


def test_shards_can_be_read_in_part(tmp_path: Path) -> None:
    block = block_of([([1], [40, 41]), ([2], [42])], verdict=np.zeros((2, 2), np.int16))
    block = block.rejected("margin", np.ones((2, 2), bool), "dense ≥ 0.5", "unsafe")
    block = block.with_columns({name: np.ones((2, 2), np.float32) for name in ("bm25", "elo")})
    pq.write_table(block.to_table(), tmp_path / "part.parquet")
    for shards in (CandidateShards.read([tmp_path / "part.parquet"]), CandidateShards.of([block])):
        for _ in range(2):
            (part,) = shards.only("elo")
            assert set(part.columns) == {"elo"} and not part.positive_columns and not part.query_columns
            np.testing.assert_array_equal(part.documents, block.documents)
            np.testing.assert_array_equal(part.of_kind("unsafe"), block.of_kind("unsafe"))
            assert part.rules == block.rules
        assert set(next(iter(shards)).columns) >= {"bm25", "elo"}
