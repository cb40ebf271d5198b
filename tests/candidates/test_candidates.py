"""Blocks of candidates and the columns that stages add: round trips, verdicts, stacking, parts, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import PADDING, Candidates, CandidateShards, Columns, ColumnShards
from anmi.engine import IN_PROCESS, add_columns, map_blocks
from anmi.errors import AnmiError
from anmi.ragged import read_table

Row = tuple[list[int], list[int]]
DOCUMENTS = (
    st.lists(st.integers(low, high), max_size=size, unique=True)
    for low, high, size in ((0, 30, 3), (31, 90, 6))
)
ROWS = st.lists(st.tuples(*DOCUMENTS), max_size=6)


def ragged(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows), default=0)
    padded = [row + [PADDING] * (width - len(row)) for row in rows]
    return np.array(padded, np.int32).reshape(len(rows), width)


def block_of(rows: list[Row], **changes: object) -> Candidates:
    """A block whose columns tell from which document they are."""
    positives, documents = ragged([p for p, _ in rows]), ragged([d for _, d in rows])
    filled = documents != PADDING
    fields: dict[str, object] = {
        "query_ids": np.array([f"q{i}" for i in range(len(rows))], dtype=np.str_),
        "positives": positives,
        "documents": documents,
        "source": np.where(filled, 1 + documents % 3, 0).astype(np.uint8),
        "columns": {"dense": np.where(filled, documents / 100, np.nan)},
        "positive_columns": {"dense": np.where(positives >= 0, positives / 100, np.nan)},
        "query_columns": {"rank": np.arange(len(rows), dtype=np.float32)},
        "verdict": np.where(filled, documents % 3, 0).astype(np.int16),
        "weight": np.where(filled, documents / 200, 0).astype(np.float32),
        "query_verdict": (np.arange(len(rows)) % 2 * 2).astype(np.int16),
        "legend": ("open", "negative", "denoise"),
    }
    fields |= changes
    measured = [fields.pop(name) for name in ("columns", "positive_columns", "query_columns")]
    return Candidates(**fields).with_columns(*measured)  # type: ignore[arg-type]


def contents(block: Candidates) -> list[object]:
    """Everything a block says, row by row, free of how it is padded."""

    def measured(columns: dict[str, np.ndarray], row: int, mask: np.ndarray) -> list[object]:
        plain = {name: np.nan_to_num(values[row], nan=-9) for name, values in columns.items()}
        return [(name, values[mask].tolist()) for name, values in sorted(plain.items())]

    rows: list[object] = []
    for i, query_id in enumerate(block.query_ids.tolist()):
        filled, known = block.filled[i], block.positives[i] != PADDING
        of_candidates = [block.documents, block.source, block.weight]
        verdicts = [block.legend[code] for code in block.verdict[i][filled]]
        row: list[object] = [query_id, block.positives[i][known].tolist(), verdicts]
        row += [values[i][filled].tolist() for values in of_candidates]
        row += [block.legend[block.query_verdict[i]], measured(block.columns, i, filled)]
        row += [measured(block.positive_columns, i, known), measured(block.query_columns, i, ...)]
        rows.append(row)
    return rows


@given(ROWS)
def test_a_block_survives_a_parquet_file(rows: list[Row]) -> None:
    block = block_of(rows)
    back = Candidates.from_table(read_table(block.to_bytes()))
    assert contents(back) == contents(block)
    assert back.legend == block.legend
    for name in ("positives", "documents", "source", "verdict", "weight", "query_verdict"):
        assert getattr(back, name).dtype == getattr(block, name).dtype
    assert {c.dtype for c in [*back.columns.values(), *back.query_columns.values()]} == {
        np.dtype(np.float32)
    }


def test_padding_inside_a_row_is_closed_up_for_all_columns_alike() -> None:
    block = block_of([([1], [40, PADDING, 41]), ([2], [50, 51, 52])])
    back = Candidates.from_table(block.to_table())
    assert back.documents.tolist() == [[40, 41, PADDING], [50, 51, 52]]
    assert contents(back) == contents(block)


def test_the_first_verdict_stands() -> None:
    rows: list[Row] = [([1], [40, 41]), ([2], [50, 51])]
    block = block_of(rows, verdict=np.zeros((2, 2), "i2"), query_verdict=np.zeros(2, "i2"))
    block = block.rejected("margin", np.array([[True, False], [False, False]]))
    block = block.dropped("consistency", np.array([False, True]))
    block = block.dropped("min_negatives", np.array([False, True]))
    block = block.rejected("denoise", np.ones((2, 2), bool))
    names = [[block.legend[code] for code in row] for row in block.verdict.tolist()]
    assert names == [["margin", "denoise"], ["open", "open"]], "a dropped query is left alone"
    assert [block.legend[code] for code in block.query_verdict] == ["open", "consistency"]
    assert not block.undecided.any()


@given(ROWS, ROWS)
def test_stacking_keeps_every_row_whatever_the_widths_and_legends(
    first: list[Row], second: list[Row]
) -> None:
    a = block_of(first)
    b = block_of(second, legend=("open", "negative", "margin"))
    assert contents(Candidates.concatenate([a, b])) == contents(a) + contents(b)


def on_disk(blocks: list[Candidates], folder: Path) -> CandidateShards:
    folder.mkdir()
    parts = CandidateShards.of(blocks).save(folder)
    return CandidateShards.read([folder / part.name for part in parts])


def test_shards_can_be_read_in_part(tmp_path: Path) -> None:
    block = block_of([([1], [40, 41]), ([2], [42])], verdict=np.zeros((2, 2), np.int16))
    block = block.rejected("margin", np.ones((2, 2), bool), "dense ≥ 0.5", "unsafe")
    block = block.with_columns({name: np.ones((2, 2), np.float32) for name in ("bm25", "elo")})
    for shards in (on_disk([block], tmp_path / "shards"), CandidateShards.of([block])):
        for _ in range(2):
            (part,) = shards.only("elo")
            assert set(part.columns) == {"elo"}
            assert not part.positive_columns and not part.query_columns
            np.testing.assert_array_equal(part.documents, block.documents)
            np.testing.assert_array_equal(part.of_kind("unsafe"), block.of_kind("unsafe"))
            assert part.rules == block.rules
        assert set(next(iter(shards)).columns) >= {"bm25", "elo"}


NAMES = ("a", "b", "c")


def block(rows: list[Row], first: int = 0) -> Candidates:
    names = np.array([f"q{first + number}" for number in range(len(rows))], np.str_)
    return block_of(rows, query_ids=names, query_columns={})


class Measure:
    """Adds a measurement of each kind that tells from which document and query it is."""

    def __init__(self, name: str, factor: float) -> None:
        self.name, self.factor = name, factor

    def __call__(self, block: Candidates) -> Candidates:
        def of(documents: np.ndarray) -> np.ndarray:
            return np.where((documents >= 0) & (documents % 3 > 0), documents * self.factor, np.nan)

        number = np.array([int(query[1:]) for query in block.query_ids.tolist()], np.float32)
        measured = ({self.name: of(values)} for values in (block.documents, block.positives))
        return block.with_columns(*measured, {f"{self.name}_of_query": number})


A, B, C = (Measure(name, factor) for name, factor in zip(NAMES, (0.5, 2.0, 4.0), strict=True))


def stored(shards: ColumnShards, folder: Path) -> ColumnShards:
    """The same, from files."""
    folder.mkdir()
    return ColumnShards(files=[folder / part.name for part in shards.save(folder)])


def saved(shards: CandidateShards) -> list[bytes]:
    """What a stage would save: the stored form, in which widths of padding and orders of columns do not count."""

    def ordered(block: Candidates) -> Candidates:
        kinds = (block.columns, block.positive_columns, block.query_columns)
        return block.only(()).with_columns(*(dict(sorted(kind.items())) for kind in kinds))

    return [ordered(Candidates.from_table(read_table(part))).to_bytes() for part in shards.parts()]


@given(
    st.lists(ROWS, max_size=3), st.sets(st.sampled_from(["dense", *NAMES, "b_of_query", "other"]))
)
@settings(max_examples=8)
def test_joined_columns_are_those_that_were_added_and_only_what_is_asked_for_is_there(
    tmp_path_factory: pytest.TempPathFactory, found: list, asked: set[str]
) -> None:
    blocks = [block(rows, first=10 * number) for number, rows in enumerate(found)]
    at_once = [C(B(A(each))) for each in blocks]
    folder = tmp_path_factory.mktemp("columns")
    for candidates in (CandidateShards.of(blocks), on_disk(blocks, folder / "candidates")):
        first = add_columns(IN_PROCESS, A, candidates)
        second = add_columns(IN_PROCESS, B, candidates.joined(first))
        third = add_columns(IN_PROCESS, C, candidates.joined(first, second))
        made = enumerate((first, second, third))
        files = [stored(each, folder / f"{number}-{id(candidates)}") for number, each in made]
        for one, two, last in ((first, second, third), files):
            joined = candidates.joined(one, two, ColumnShards(), last)
            assert saved(joined) == saved(CandidateShards.of(at_once))
            some = joined.only(*asked)
            expected = saved(CandidateShards.of([each.only(asked) for each in at_once]))
            assert saved(some) == expected
            assert saved(CandidateShards.of(list(some))) == expected
            assert saved(map_blocks(IN_PROCESS, Same(), some)) == expected


class Same:
    def __call__(self, block: Candidates) -> Candidates:
        return block


def other_queries(block: Candidates) -> Candidates:
    return block.take(np.arange(len(block))[::-1])


def other_candidates(block: Candidates) -> Candidates:
    documents = block.documents.copy()
    documents[0, :2] = documents[0, 1::-1]
    return Candidates(block.query_ids, block.positives, documents, block.source)


def a_candidate_less(block: Candidates) -> Candidates:
    return Candidates(block.query_ids, block.positives, block.documents[:, :2], block.source[:, :2])


@pytest.mark.parametrize("change", [other_queries, other_candidates, a_candidate_less])
@pytest.mark.parametrize("alone", [True, False])
def test_columns_of_other_candidates_are_refused_in_one_sentence(
    change: Callable[[Candidates], Candidates], alone: bool
) -> None:
    whole = block([([0, 1], [10, 12, 14]), ([2], [16, 17, 18])])
    candidates = CandidateShards.of([whole])
    added = add_columns(IN_PROCESS, A, candidates)
    moved = CandidateShards.of([change(whole)]).joined(added)
    with pytest.raises(AnmiError, match='"a" was measured for other candidates'):
        moved.whole() if alone else [*map_blocks(IN_PROCESS, Same(), moved.only("a")).parts()]


@pytest.mark.parametrize("more", [1, -1])
def test_another_number_of_shards_is_refused_in_one_sentence(more: int) -> None:
    blocks = [block([([0], [10])], first=number) for number in range(3)]
    added = add_columns(IN_PROCESS, A, CandidateShards.of(blocks[: 2 + more]))
    joined = CandidateShards.of(blocks[:2]).joined(added)
    for read in (lambda: [*joined], lambda: [*joined.layers()]):
        with pytest.raises(AnmiError, match="not of the same number of shards"):
            read()


def test_columns_stand_beside_their_document_however_a_block_is_padded() -> None:
    whole = block([([0], [10, 14]), ([2], [16, 17, 20])])
    wide = Candidates(
        whole.query_ids,
        np.array([[-1, 0], [2, -1]], np.int32),
        np.array([[10, -1, 14, -1], [16, 17, -1, 20]], np.int32),
        np.ones((2, 4), np.uint8),
    )
    added = add_columns(IN_PROCESS, A, CandidateShards.of([whole]))
    (found,) = CandidateShards.of([wide]).joined(added)
    np.testing.assert_array_equal(found.columns["a"], A(wide).columns["a"])
    np.testing.assert_array_equal(found.positive_columns["a"], A(wide).positive_columns["a"])


def test_a_measurement_that_is_replaced_is_the_last(tmp_path: Path) -> None:
    whole = block([([0, 1], [10, 12, 14])])
    candidates = on_disk([whole], tmp_path / "candidates")
    first = add_columns(IN_PROCESS, A, candidates)
    again = add_columns(IN_PROCESS, Measure("a", 8.0), candidates.joined(first))
    (found,) = candidates.joined(first, again).only("a")
    np.testing.assert_array_equal(found.columns["a"], [[80.0, np.nan, 112.0]])
    assert set(Columns.from_table(read_table(next(again.parts()))).columns) == {"a"}, (
        "and nothing of what was there"
    )
