"""What the mining did, by hand and however it is sharded: funnel, origins, gaps, expected shares, nearness, scores."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

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
        dense, elo = rng.random((2, queries, width), np.float32)
        positives = {"dense": np.full((queries, 1), 0.9), "elo": np.full((queries, 1), 1200.0)}
        made = Candidates(
            query_ids=np.array([f"q{seed}_{i}" for i in range(queries)]),
            positives=np.full((queries, 1), 200, np.int32),
            documents=documents,
            source=np.ones((queries, width), np.uint8),
        ).with_columns({"dense": dense, "elo": 1000 * elo}, positives)
        made = made.rejected("denoise", made.columns["dense"] > 0.8)
        made = made.dropped("consistency", np.arange(queries) == 2)
        made = made.rejected("max_ratio", made.columns["dense"] > 0.6)
        drawn = made.undecided & (np.cumsum(made.undecided, axis=1) <= 3)
        return replace(made, verdict=np.where(drawn, np.int16(NEGATIVE), made.verdict))

    return make


def found_by(diagnosis, shards):
    return diagnostics.diagnose(shards, diagnosis)[0]


def test_the_funnel_by_hand():
    dense = np.array([[0.9, 0.1, 0.2, 0.3], [0.9, 0.7, 0.1, np.nan]], np.float32)
    made = Candidates(
        query_ids=np.array(["a", "b"]),
        positives=np.array([[9], [9]], np.int32),
        documents=np.array([[1, 2, 3, 4], [1, 2, 3, -1]], np.int32),
        source=np.ones((2, 4), np.uint8),
    )
    made = made.rejected("denoise", dense > 0.8).dropped("consistency", np.array([False, True]))
    verdict = made.verdict.copy()
    verdict[0, 1:3] = NEGATIVE
    rows = found_by(diagnostics.Funnel(2), CandidateShards.of([replace(made, verdict=verdict)]))
    assert [(row["step"], row["candidates"], row["queries"]) for row in rows] == [
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
    rows = {row["step"]: row for row in found_by(diagnostics.Funnel(7), [made])}
    kinds = {step: (rows[step]["kind"], rows[step]["rule"]) for step in ("denoise", "route")}
    assert kinds == {"denoise": ("rejected", ""), "route": ("uncertain", "p in doubt")}
    assert (rows["promote"]["kind"], rows["promote"]["rule"]) == ("promoted", "p ≥ 0.9")


def test_sources_by_hand(block):
    consistent = {"consistent": np.array([1, 0, 1, 1], np.float32)}
    made = block(queries=4).with_columns(query_columns=consistent)
    negatives = [["a", "b"], ["a"], []]
    rows = pd.DataFrame({"query_id": ["q0_0", "q0_0", "q0_3"], "negative_ids": negatives})
    source_of = {"q0_0": "first", "q0_1": "first", "q0_2": "second"}
    found = found_by(diagnostics.BySource(rows, source_of, "rest"), [made])
    assert [tuple(row.values()) for row in found] == [
        ("first", 2, 1, 1, 2, 5, 1.5, 1, 2),
        ("rest", 1, 1, 0, 1, 1, 0.0, 0, 0),
        ("second", 1, 1, 0, 0, 0, None, None, None),
    ]
    unfiltered = found_by(diagnostics.BySource(rows, {}, "all"), [block(queries=3)])
    assert unfiltered[0]["passed"] == 3, "without the filter nothing fails"


def test_each_candidate_is_counted_under_its_verdict(block) -> None:
    part = block(5, queries=9, width=12)
    distributions = diagnostics.Distributions(diagnostics.ranges([part], ("dense",)))
    found = found_by(distributions, [part])["dense"]
    edges = np.linspace(found["edges"][0], found["edges"][-1], 41)
    expected: dict[str, list[int]] = {}
    for row, slot in zip(*np.nonzero(part.filled), strict=True):
        code = int(part.verdict[row, slot] or part.query_verdict[row])
        place = np.searchsorted(edges, part.columns["dense"][row, slot], side="right") - 1
        for group in [["kept"], ["kept", "negatives"]][code] if code < 2 else [part.legend[code]]:
            expected.setdefault(group, [0] * 40)[min(int(place), 39)] += 1
    assert {"kept": found["kept"], "negatives": found["negatives"], **found["rejected"]} == expected


IDS = [f"d{number}" for number in range(201)]


def judged(block: Candidates, seed: int = 0) -> Candidates:
    chance = np.random.default_rng(seed).random(block.documents.shape).astype(np.float32)
    chance[:, 1] = np.nan
    return block.with_columns({"p_relevant": chance})


def relevant(blocks: list[Candidates]) -> pd.DataFrame:
    """Every third candidate of every second query, and a document that the corpus has not."""
    pairs = []
    for block in blocks:
        for query, documents in zip(block.query_ids[::2], block.documents[::2], strict=True):
            pairs += [(str(query), IDS[document]) for document in documents[::3] if document >= 0]
    return pd.DataFrame([*pairs, ("q1_0", "gone")], columns=["query_id", "document_id"])


def test_it_is_what_counting_each_candidate_gives(block: Callable[..., Candidates]) -> None:
    blocks = [judged(block(1)), judged(block(2, queries=3, width=5), 1)]
    equivalents = relevant(blocks)
    (found,) = diagnostics.diagnose(blocks, diagnostics.RelevanceByNearness(equivalents, IDS))
    truth, known = set(map(tuple, equivalents.to_numpy().tolist())), set(equivalents.query_id)
    assert len(found["edges"]) == 41 and (found["edges"][0], found["edges"][-1]) == (-1.0, 1.0)
    rows: dict[tuple[str, int], list[tuple[float, bool, bool]]] = defaultdict(list)
    for part in blocks:
        fate = diagnostics.fate_of(part)
        for row, slot in zip(*np.nonzero(fate >= NEGATIVE), strict=True):
            near = part.columns["dense"][row, slot] - part.positive_columns["dense"][row, 0]
            place = sum(edge <= near for edge in found["edges"]) - 1
            query, document = str(part.query_ids[row]), IDS[part.documents[row, slot]]
            chance = float(part.columns["p_relevant"][row, slot])
            group = "chosen" if fate[row, slot] == NEGATIVE else "rejected"
            rows[group, place].append((chance, query in known, (query, document) in truth))
    for group in ("chosen", "rejected"):
        for place in range(40):
            table = np.array(rows[group, place], float).reshape(-1, 3)
            chances = table[np.isfinite(table[:, 0]), 0]
            kinds = ("candidates", "judged", "known", "relevant")
            counts = [found[group][kind][place] for kind in kinds]
            assert counts == [len(table), len(chances), *table[:, 1:].sum(axis=0)]
            expected = pytest.approx(chances.mean(), abs=1e-6) if len(chances) else None
            assert found[group]["expected"][place] == expected
    assert sum(found["chosen"]["relevant"]) + sum(found["rejected"]["relevant"]) > 0


def test_the_expected_share_is_the_mean_over_the_chosen_that_were_judged(block) -> None:
    made = judged(block(1))
    tier = np.where(np.arange(8) % 2, float(TIERS.index("uncertain")), 0.0)
    tier = np.broadcast_to(tier, made.documents.shape)
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
        part.with_columns({"tier": np.broadcast_to(np.arange(8.0) % 4, part.documents.shape)})
        for part in blocks
    ]
    equivalents, ranges = relevant(blocks), diagnostics.ranges(blocks, ("dense",))
    kinds = (
        lambda: diagnostics.Funnel(3),
        diagnostics.Origins,
        lambda: diagnostics.Gap("elo"),
        lambda: diagnostics.Distributions(ranges),
        lambda: diagnostics.RelevanceByNearness(equivalents, IDS),
    )
    found = diagnostics.diagnose(blocks, *(kind() for kind in kinds))
    whole = [Candidates.concatenate(blocks)]
    assert found == diagnostics.diagnose(whole, *(kind() for kind in kinds))
    funnel, origins, gaps = found[:3]
    ends = [row["candidates"] for row in funnel if row["kind"] not in ("total", "complete")]
    assert funnel[0]["candidates"] == sum(ends) == whole[0].filled.sum()
    # Negatives of a dropped query reach no row.
    chosen = whole[0].negatives & (whole[0].query_verdict == 0)[:, None]
    count = int(chosen.sum())
    assert origins["sources"] == ({"bm25": count} if count else {})
    assert sum(origins["tiers"].values()) == count
    if count:
        expected = (1200 - whole[0].columns["elo"][chosen]).mean()
        assert gaps["mean"] == pytest.approx(expected, rel=1e-6)
        assert sum(gaps["counts"]) == count


def test_nothing_is_told_where_nothing_is_compared(block) -> None:
    none = diagnostics.RelevanceByNearness(pd.DataFrame({"query_id": [], "document_id": []}), IDS)
    for blocks in ([block(1)], [judged(block(1)).only(("p_relevant",))], []):
        assert diagnostics.diagnose(blocks, none) == [None]
    assert diagnostics.diagnose([block(1).only(())], diagnostics.Expected()) == [None]
    assert found_by(diagnostics.Gap("cross"), [block(1)]) == {}
    assert found_by(diagnostics.Origins(), [block(1)])["tiers"] == {}
