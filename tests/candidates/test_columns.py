"""Columns that stages add beside the block: joined by position, read in part, refused where they do not belong."""

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

NAMES = ("a", "b", "c")
LISTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), max_size=3, unique=True), st.lists(st.integers(10, 30), max_size=5, unique=True)
    ),
    max_size=4,
)  # fmt: skip


def ragged(rows: list[list[int]], least: int = 0) -> np.ndarray:
    width = max([least, *map(len, rows)])
    return np.array([row + [PADDING] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)


def block(rows: list[tuple[list[int], list[int]]], first: int = 0) -> Candidates:
    positives, documents = ragged([row[0] for row in rows], 1), ragged([row[1] for row in rows])
    return Candidates(
        query_ids=np.array([f"q{first + number}" for number in range(len(rows))], np.str_),
        positives=positives,
        documents=documents,
        source=np.where(documents >= 0, 1, 0).astype(np.uint8),
        columns={"dense": np.where(documents >= 0, documents / 8, np.nan).astype(np.float32)},
        positive_columns={"dense": np.where(positives >= 0, positives / 8, np.nan).astype(np.float32)},
    )


class Measure:
    """Adds a measurement of each kind that tells from which document and query it is."""

    def __init__(self, name: str, factor: float) -> None:
        self.name, self.factor = name, factor

    def __call__(self, block: Candidates) -> Candidates:
        def of(documents: np.ndarray) -> np.ndarray:
            return np.where((documents >= 0) & (documents % 3 > 0), documents * self.factor, np.nan)

        number = np.array([int(query[1:]) for query in block.query_ids.tolist()], np.float32)
        return block.with_columns(
            {self.name: of(block.documents)}, {self.name: of(block.positives)}, {f"{self.name}_of_query": number}
        )


A, B, C = (Measure(name, factor) for name, factor in zip(NAMES, (0.5, 2.0, 4.0), strict=True))


def stored(shards: ColumnShards, folder: Path) -> ColumnShards:
    """The same, from files."""
    folder.mkdir()
    files = []
    for number, part in enumerate(shards.parts()):
        files.append(folder / f"part-{number}.parquet")
        files[-1].write_bytes(part)
    return ColumnShards(files=files)


def on_disk(blocks: list[Candidates], folder: Path) -> CandidateShards:
    folder.mkdir()
    files = []
    for number, each in enumerate(blocks):
        files.append(folder / f"part-{number}.parquet")
        files[-1].write_bytes(each.to_bytes())
    return CandidateShards.read(files)


def as_bytes(shards: CandidateShards) -> list[bytes]:
    """What a stage would save: the stored form, in which widths of padding and orders of columns do not count."""

    def ordered(block: Candidates) -> Candidates:
        return block.only(()).with_columns(
            *(dict(sorted(of.items())) for of in (block.columns, block.positive_columns, block.query_columns))
        )

    return [ordered(Candidates.from_table(read_table(part))).to_bytes() for part in shards.parts()]


@given(st.lists(LISTS, max_size=3), st.sets(st.sampled_from(["dense", *NAMES, "b_of_query", "other"])))
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
        saved = [stored(each, folder / f"{number}-{id(candidates)}") for number, each in made]
        for one, two, last in ((first, second, third), saved):
            joined = candidates.joined(one, two, ColumnShards.none(), last)
            assert as_bytes(joined) == as_bytes(CandidateShards.of(at_once))
            some = joined.only(*asked)
            expected = as_bytes(CandidateShards.of([each.only(asked) for each in at_once]))
            assert as_bytes(some) == expected
            assert as_bytes(CandidateShards.of(list(some))) == expected
            assert as_bytes(map_blocks(IN_PROCESS, Same(), some)) == expected


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
    with pytest.raises(AnmiError, match=r'^"a" was measured for other candidates than those it was to be .* run'):
        moved.whole() if alone else [*map_blocks(IN_PROCESS, Same(), moved.only("a")).parts()]


@pytest.mark.parametrize("more", [1, -1])
def test_another_number_of_shards_is_refused_in_one_sentence(more: int) -> None:
    blocks = [block([([0], [10])], first=number) for number in range(3)]
    added = add_columns(IN_PROCESS, A, CandidateShards.of(blocks[: 2 + more]))
    joined = CandidateShards.of(blocks[:2]).joined(added)
    for read in (lambda: [*joined], lambda: [*joined.layers()]):
        with pytest.raises(AnmiError, match="not of the same number of shards: run the stages of mining again"):
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


def test_a_stage_that_has_nothing_to_add_costs_nothing() -> None:
    candidates = CandidateShards.of([block([([0], [10])])])
    assert not ColumnShards.none()
    assert candidates.joined(ColumnShards.none(), ColumnShards.none()) is candidates


def test_a_measurement_that_is_replaced_is_the_last(tmp_path: Path) -> None:
    whole = block([([0, 1], [10, 12, 14])])
    candidates = on_disk([whole], tmp_path / "candidates")
    first = add_columns(IN_PROCESS, A, candidates)
    again = add_columns(IN_PROCESS, Measure("a", 8.0), candidates.joined(first))
    (found,) = candidates.joined(first, again).only("a")
    np.testing.assert_array_equal(found.columns["a"], [[80.0, np.nan, 112.0]])
    assert set(Columns.from_table(read_table(next(again.parts()))).columns) == {"a"}, "and nothing of what was there"
