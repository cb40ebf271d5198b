"""What the mining did, by hand and however it is sharded: funnel, origins, gaps, expected shares, nearness, scores."""

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anmi.candidates import NEGATIVE, Candidates, CandidateShards
from anmi.evaluation import diagnostics
from anmi.selection.steps.samplers import TIERS


@pytest.fixture(scope="session")
def block() -> Callable[..., Candidates]:
    def make(seed: int = 0, queries: int = 6, width: int = 8) -> Candidates:
        """A selected block: one query dropped, candidates rejected by two steps, up to 3 negatives a query."""
        rng = np.random.default_rng(seed)
        documents = np.array([rng.permutation(100)[:width] for _ in range(queries)], np.int32)
        documents[0, 5:] = -1
        made = Candidates(
            query_ids=np.array([f"q{seed}_{i}" for i in range(queries)]),
            positives=np.full((queries, 1), 200, np.int32),
            documents=documents,
            source=np.ones((queries, width), np.uint8),
            columns={
                "dense": rng.random((queries, width), np.float32),
                "elo": 1000 * rng.random((queries, width), np.float32),
            },
            positive_columns={
                "dense": np.full((queries, 1), 0.9, np.float32),
                "elo": np.full((queries, 1), 1200, np.float32),
            },
        )
        made = made.rejected("denoise", made.columns["dense"] > 0.8)
        made = made.dropped("consistency", np.arange(queries) == 2)
        made = made.rejected("max_ratio", made.columns["dense"] > 0.6)
        drawn = made.undecided & (np.cumsum(made.undecided, axis=1) <= 3)
        verdict = np.where(drawn, np.int16(NEGATIVE), made.verdict)
        return Candidates(**{**made.__dict__, "verdict": verdict})

    return make


def found_by(diagnosis, shards):
    return diagnostics.diagnose(shards, diagnosis)[0]


def test_the_funnel_by_hand():
    columns = {"dense": np.array([[0.9, 0.1, 0.2, 0.3], [0.9, 0.7, 0.1, np.nan]], np.float32)}
    made = Candidates(
        query_ids=np.array(["a", "b"]),
        positives=np.array([[9], [9]], np.int32),
        documents=np.array([[1, 2, 3, 4], [1, 2, 3, -1]], np.int32),
        source=np.ones((2, 4), np.uint8),
        columns=columns,
    )
    made = made.rejected("denoise", columns["dense"] > 0.8).dropped(
        "consistency", np.array([False, True])
    )
    verdict = made.verdict.copy()
    verdict[0, 1:3] = NEGATIVE
    made = Candidates(**{**made.__dict__, "verdict": verdict})
    rows = found_by(diagnostics.Funnel(2), CandidateShards.of([made]))
    assert [(r["step"], r["candidates"], r["queries"]) for r in rows] == [
        ("candidates", 7, 2),
        ("denoise", 2, 0),
        ("consistency", 2, 1),
        ("not drawn", 1, 1),
        ("negatives", 2, 1),
        ("all 2 negatives", 2, 1),
    ]


def test_the_funnel_tells_rejected_from_uncertain_and_promoted_and_by_which_rule(block):
    made = block()
    made = made.rejected("route", made.columns["dense"] > 0.5, "p in doubt", "uncertain")
    made = made.rejected("promote", made.columns["dense"] > 0.4, "p ≥ 0.9", "promoted")
    rows = {r["step"]: r for r in found_by(diagnostics.Funnel(7), [made])}
    assert {step: rows[step]["kind"] for step in ("denoise", "route", "promote")} == {
        "denoise": "rejected",
        "route": "uncertain",
        "promote": "promoted",
    }
    assert (rows["route"]["rule"], rows["promote"]["rule"], rows["denoise"]["rule"]) == (
        "p in doubt",
        "p ≥ 0.9",
        "",
    )


def test_sources_by_hand(block):
    made = block(queries=4).with_columns(
        query_columns={"consistent": np.array([1, 0, 1, 1], np.float32)}
    )
    rows = pd.DataFrame(
        {"query_id": ["q0_0", "q0_0", "q0_3"], "negative_ids": [["a", "b"], ["a"], []]}
    )
    found = found_by(
        diagnostics.BySource(rows, {"q0_0": "first", "q0_1": "first", "q0_2": "second"}, "rest"),
        [made],
    )
    assert [tuple(row.values()) for row in found] == [
        ("first", 2, 1, 1, 2, 5, 1.5, 1, 2),
        ("rest", 1, 1, 0, 1, 1, 0.0, 0, 0),
        ("second", 1, 1, 0, 0, 0, None, None, None),
    ]
    unfiltered = found_by(diagnostics.BySource(rows, {}, "all"), [block(queries=3)])
    assert unfiltered[0]["passed"] == 3, "without the filter nothing fails"


def by_hand(part, name: str, low: float, high: float) -> dict[str, list[int]]:
    """Count one candidate after the other."""
    edges = np.linspace(low, high, 41)
    counts: dict[str, list[int]] = {}
    for row in range(len(part)):
        for slot in np.flatnonzero(part.filled[row]):
            code = part.verdict[row, slot]
            code = int(code or part.query_verdict[row])
            bin_ = min(
                int(np.searchsorted(edges, part.columns[name][row, slot], side="right")) - 1, 39
            )
            for group in (
                ["kept"] * (code < 2)
                + ["negatives"] * (code == 1)
                + [part.legend[code]] * (code > 1)
            ):
                counts.setdefault(group, [0] * 40)[bin_] += 1
    return counts


def test_each_candidate_is_counted_under_its_verdict(block) -> None:
    part = block(5, queries=9, width=12)
    found = found_by(diagnostics.Distributions(diagnostics.ranges([part], ("dense",))), [part])[
        "dense"
    ]
    expected = by_hand(part, "dense", found["edges"][0], found["edges"][-1])
    assert {"kept": found["kept"], "negatives": found["negatives"], **found["rejected"]} == expected


IDS = [f"d{number}" for number in range(201)]


def judged(block: Candidates, seed: int = 0) -> Candidates:
    chance = np.random.default_rng(seed).random(block.documents.shape).astype(np.float32)
    chance[:, 1] = np.nan
    return block.with_columns({"p_relevant": chance})


def relevant(blocks: list[Candidates]) -> pd.DataFrame:
    """Every third candidate of every second query, and a document that the corpus has not."""
    pairs = [
        (query, IDS[document])
        for block in blocks
        for query, row in list(
            zip(block.query_ids.tolist(), block.documents.tolist(), strict=True)
        )[::2]
        for document in row[::3]
        if document >= 0
    ]
    return pd.DataFrame([*pairs, ("q1_0", "gone")], columns=["query_id", "document_id"])


def test_it_is_what_counting_each_candidate_gives(block: Callable[..., Candidates]) -> None:
    blocks = [judged(block(1)), judged(block(2, queries=3, width=5), 1)]
    equivalents = relevant(blocks)
    (found,) = diagnostics.diagnose(blocks, diagnostics.RelevanceByNearness(equivalents, IDS))
    truth, known = set(map(tuple, equivalents.to_numpy().tolist())), set(equivalents.query_id)
    assert len(found["edges"]) == 41 and (found["edges"][0], found["edges"][-1]) == (-1.0, 1.0)
    rows: dict[tuple[str, int], list[tuple[float, bool, bool]]] = defaultdict(list)
    for each in blocks:
        fate = diagnostics.fate_of(each)
        for row, slot in zip(*np.nonzero(fate >= NEGATIVE), strict=True):
            near = each.columns["dense"][row, slot] - each.positive_columns["dense"][row, 0]
            place = sum(edge <= near for edge in found["edges"]) - 1
            query, document = str(each.query_ids[row]), IDS[each.documents[row, slot]]
            told = (
                float(each.columns["p_relevant"][row, slot]),
                query in known,
                (query, document) in truth,
            )
            rows["chosen" if fate[row, slot] == NEGATIVE else "rejected", place].append(told)
    for name in ("chosen", "rejected"):
        for place in range(40):
            mine = rows[name, place]
            chances = [chance for chance, _, _ in mine if np.isfinite(chance)]
            counts = [
                found[name][kind][place] for kind in ("candidates", "judged", "known", "relevant")
            ]
            assert counts == [
                len(mine),
                len(chances),
                *(sum(line[i] for line in mine) for i in (1, 2)),
            ]
            expected = pytest.approx(np.mean(chances), abs=1e-6) if chances else None
            assert found[name]["expected"][place] == expected
    assert sum(found["chosen"]["relevant"]) + sum(found["rejected"]["relevant"]) > 0


def test_the_expected_share_is_the_mean_over_the_chosen_that_were_judged(block) -> None:
    made = judged(block(1))
    tier = np.where(np.arange(8) % 2, float(TIERS.index("uncertain")), 0.0) * np.ones(
        made.documents.shape
    )
    chosen = made.negatives & (made.query_verdict == 0)[:, None]
    chance = made.columns["p_relevant"][chosen]
    (found,) = diagnostics.diagnose([made.with_columns({"tier": tier})], diagnostics.Expected())
    assert found["share"] == pytest.approx(np.nanmean(chance), rel=1e-5)
    assert (found["judged"], found["total"]) == (np.isfinite(chance).sum(), len(chance))
    assert found["doubtful"] == (chosen & (tier > 0)).sum() > 0


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3, unique=True))
def test_nothing_is_lost_however_it_is_sharded(block, seeds) -> None:
    blocks = [judged(block(seed), seed) for seed in seeds]
    blocks = [
        each.with_columns({"tier": np.arange(8) % 4 * np.ones(each.documents.shape)})
        for each in blocks
    ]
    equivalents, gap = relevant(blocks), diagnostics.ranges(blocks, ("dense",))
    made = (
        lambda: diagnostics.Funnel(3),
        diagnostics.Origins,
        lambda: diagnostics.Gap("elo"),
        lambda: diagnostics.Distributions(gap),
        lambda: diagnostics.RelevanceByNearness(equivalents, IDS),
    )
    found = [diagnostics.diagnose(blocks, each())[0] for each in made]
    assert found == [
        diagnostics.diagnose([Candidates.concatenate(blocks)], each())[0] for each in made
    ]
    funnel, origins, gaps = found[:3]
    total = funnel[0]["candidates"]
    assert total == sum(
        r["candidates"] for r in funnel if r["kind"] in ("rejected", "undecided", "negative")
    )
    assert total == sum(int(each.filled.sum()) for each in blocks)
    # Negatives of a dropped query reach no row.
    chosen = [each.negatives & (each.query_verdict == 0)[:, None] for each in blocks]
    count = sum(int(each.sum()) for each in chosen)
    assert (
        origins["sources"] == ({"bm25": count} if count else {})
        and sum(origins["tiers"].values()) == count
    )
    if count:
        values = np.concatenate(
            [1200 - each.columns["elo"][own] for each, own in zip(blocks, chosen, strict=True)]
        )
        assert (
            gaps["mean"] == pytest.approx(values.mean(), rel=1e-6) and sum(gaps["counts"]) == count
        )


def test_nothing_is_told_where_nothing_is_compared(block) -> None:
    none = diagnostics.RelevanceByNearness(pd.DataFrame({"query_id": [], "document_id": []}), IDS)
    for blocks in ([block(1)], [judged(block(1)).only(("p_relevant",))], []):
        assert diagnostics.diagnose(blocks, none) == [None]
    assert diagnostics.diagnose([block(1).only(())], diagnostics.Expected()) == [None]
    assert found_by(diagnostics.Gap("cross"), [block(1)]) == {}
    assert found_by(diagnostics.Origins(), [block(1)])["tiers"] == {}
