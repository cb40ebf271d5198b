"""Rows of an earlier mining, taken over: which, under which places, and how they are fitted on again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import PADDING, Candidates, CandidateShards, Rule
from anmi.selection.kept_rows import KeptRows, chained, losers, places_of

LEGEND = ("open", "negative", "unsafe", "uncertain", "promoted")
RULES = {name: Rule(kind=name) for name in LEGEND[2:]}  # type: ignore[arg-type]
CHOSEN = {"negative", "uncertain", "promoted"}


def ragged(rows: Sequence[Sequence[int]]) -> np.ndarray:
    width = max(map(len, rows), default=0)
    return np.array([[*row, *[PADDING] * (width - len(row))] for row in rows], np.int32).reshape(len(rows), width)


def block_of(positives: Sequence[Sequence[int]], documents: Sequence[Sequence[int]]) -> Candidates:
    """A block whose every measurement tells from which document it is."""
    own, others = ragged(positives), ragged(documents)
    filled = others != PADDING
    return Candidates(
        query_ids=np.array([f"q{i}" for i in range(len(own))], dtype=np.str_),
        positives=own,
        documents=others,
        source=np.where(filled, others, 0).astype(np.uint8),
        columns={"dense": np.where(filled, others, np.nan).astype(np.float32)},
        positive_columns={"dense": np.where(own >= 0, own, np.nan).astype(np.float32)},
        query_columns={"positive_rank": np.arange(len(own), dtype=np.float32)},
        verdict=np.where(filled, others % len(LEGEND), 0).astype(np.int16),
        weight=np.where(filled, others / 100, 0).astype(np.float32),
        query_verdict=np.arange(len(own), dtype=np.int16) % 2 * 2,
        legend=LEGEND,
        rules=RULES,
    )


@dataclass(frozen=True)
class Update:
    """Two corpora, a block mined from the first, and which queries are mined again."""

    before: list[str]
    now: list[str]
    gone: list[str]
    block: Candidates
    without: list[str]

    @property
    def places(self) -> np.ndarray:
        return places_of(self.before, self.now, self.gone)

    @property
    def left(self) -> set[str]:
        """Ids of the documents that are there as before."""
        return {*self.before} & {*self.now} - {*self.gone}


@st.composite
def updates(draw: st.DrawFn) -> Update:
    count = draw(st.integers(1, 12))
    before = [f"d{i}" for i in range(count)]
    now = draw(st.lists(st.sampled_from([*before, "new", "newer"]), unique=True))
    gone = draw(st.lists(st.sampled_from(before), unique=True, max_size=2))
    positives, documents = [], []
    for _ in range(draw(st.integers(0, 5))):
        order = draw(st.permutations(range(count)))
        first = draw(st.integers(0, min(count, 3)))
        positives.append(order[:first])
        documents.append(order[first : draw(st.integers(first, count))])
    block = block_of(positives, documents)
    return Update(before, now, gone, block, draw(st.lists(st.sampled_from(["q0", "q1", "q3", "other"]), unique=True)))


def pairs(block: Candidates, ids: Sequence[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(query, document id) of positives and of candidates, in their order."""
    found = []
    for documents in (block.positives, block.documents):
        row, slot = np.nonzero(documents != PADDING)
        names = [ids[place] for place in documents[row, slot].tolist()]
        found.append(list(zip(block.query_ids[row].tolist(), names, strict=True)))
    return found[0], found[1]


@given(updates())
@settings(max_examples=150)
def test_every_pair_is_taken_over_but_for_removed_documents_and_queries_that_are_mined(update: Update) -> None:
    carried = KeptRows.of(update.without, update.places)(update.block)
    for before, now in zip(pairs(update.block, update.before), pairs(carried, update.now), strict=True):
        assert now == [(query, name) for query, name in before if query not in update.without and name in update.left]


@given(updates())
@settings(max_examples=150)
def test_what_was_measured_of_a_document_stays_with_it_on_disk(update: Update) -> None:
    carried = Candidates.from_bytes(KeptRows.of(update.without, update.places)(update.block).to_bytes())
    rank = carried.query_columns["positive_rank"].astype(int)
    assert carried.query_ids.tolist() == [f"q{row}" for row in rank]
    assert carried.query_verdict.tolist() == (rank % 2 * 2).tolist()
    number = {f"d{i}": i for i in range(len(update.before))}
    for documents, columns in (
        (carried.documents, carried.columns),
        (carried.positives, carried.positive_columns),
    ):
        row, slot = np.nonzero(documents != PADDING)
        earlier = [number[update.now[place]] for place in documents[row, slot]]
        assert columns["dense"][row, slot].tolist() == earlier
        assert np.isfinite(columns["dense"]).sum() == len(earlier), "of one that is gone nothing is left"
        if documents is carried.documents:
            assert carried.source[row, slot].tolist() == earlier
            assert carried.verdict[row, slot].tolist() == [each % len(LEGEND) for each in earlier]
            np.testing.assert_allclose(carried.weight[row, slot], np.array(earlier) / 100, rtol=1e-6)
    assert (carried.legend, carried.rules) == (LEGEND, RULES)


def test_a_candidate_dropped_in_the_middle_leaves_no_hole_on_disk() -> None:
    block = block_of([[0], [5]], [[1, 2, 3], [3, 4]])
    before = [f"d{i}" for i in range(6)]
    carried = KeptRows.of([], places_of(before, ["d5", "d4", "d3", "d1", "d0"]))(block)
    assert carried.documents.tolist() == [[3, PADDING, 2], [2, 1, PADDING]]
    stored = Candidates.from_bytes(carried.to_bytes())
    assert stored.documents.tolist() == [[3, 2], [2, 1]]
    assert stored.columns["dense"].tolist() == [[1, 3], [3, 4]]
    assert stored.verdict.tolist() == [[1, 3], [3, 4]]
    assert stored.positives.tolist() == [[4], [0]]
    assert block.documents.tolist() == [[1, 2, 3], [3, 4, PADDING]], "the earlier block is as it was"


def test_a_document_that_says_something_else_has_no_place() -> None:
    assert places_of(["a", "b", "c"], ["c", "b", "a"], gone=["b", "unknown"]).tolist() == [2, PADDING, 0]
    assert places_of([], ["a"]).shape == (0,)


@given(updates())
@settings(max_examples=150)
def test_losers_are_the_queries_of_which_a_chosen_document_is_gone(update: Update) -> None:
    half = len(update.block) // 2
    shards = CandidateShards.of([update.block.take(slice(0, half)), update.block.take(slice(half, None))])
    expected = {
        query
        for query, name in pairs(update.block, update.before)[1]
        if name not in update.left and LEGEND[int(name[1:]) % len(LEGEND)] in CHOSEN
    }
    assert set(losers(shards, update.places)) == expected


def test_each_kind_of_choice_makes_a_loser_and_no_other_verdict_does() -> None:
    # The document of number n carries the n-th verdict.
    block = block_of([[9]] * 5, [[0], [1], [2], [3], [4]])
    removed = np.full(10, PADDING, np.int32)
    assert list(losers(CandidateShards.of([block]), removed)) == ["q1", "q3", "q4"]
    assert list(losers(CandidateShards.of([block]), np.arange(10, dtype=np.int32))) == []


def test_both_are_read_together_as_often_as_one_likes() -> None:
    blocks = [block_of([[0]], [[1, 2]]), block_of([[3]], [[4]]), block_of([[5]], [[6, 7, 8]])]
    parts = [block.to_bytes() for block in blocks]
    made = CandidateShards.of(blocks[:2])
    stored = CandidateShards.of_parts(lambda: iter(parts[2:]))
    for first, second, expected in ((made, stored, parts), (stored, made, [parts[2], *parts[:2]])):
        both = chained(first, second)
        for _ in range(2):
            assert [block.to_bytes() for block in both] == expected
            assert list(both.parts()) == expected
        assert [list(block.columns) for block in both.only()] == [[]] * 3
        assert [block.documents.tolist() for block in both.only("dense")] == [b.documents.tolist() for b in both]


@settings(max_examples=60)
@given(updates())
def test_bytes_are_taken_over_as_blocks_are(update: Update) -> None:
    carried = KeptRows.of(update.without, update.places)
    part = update.block.to_bytes()
    found, expected = (
        Candidates.from_bytes(carried.in_bytes(part)),
        Candidates.from_bytes(carried(update.block).to_bytes()),
    )
    assert found.to_table().equals(expected.to_table(), check_metadata=True)


def test_bytes_that_say_the_same_stay_as_they_are() -> None:
    part = block_of([[0]], [[1, 2]]).to_bytes()
    assert KeptRows.of(["other"], places_of(["a", "b", "c"], ["a", "b", "c", "new"])).in_bytes(part) is part
