import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.candidates import NEGATIVE, Candidates, CandidateShards
from anmi.evaluation.diagnostics import BySource, Expected, Funnel, Gap, Origins, diagnose
from anmi.selection.steps.samplers import TIERS


def funnel(shards, n=7):
    return diagnose(shards, Funnel(n))[0]


def origins(shards):
    return diagnose(shards, Origins())[0]


def by_source(shards, *given):
    return diagnose(shards, BySource(*given))[0]


def gap(shards, column="elo"):
    return diagnose(shards, Gap(column))[0]


def test_the_funnel_by_hand():
    columns = {"dense": np.array([[0.9, 0.1, 0.2, 0.3], [0.9, 0.7, 0.1, np.nan]], np.float32)}
    made = Candidates(
        query_ids=np.array(["a", "b"]), positives=np.array([[9], [9]], np.int32),
        documents=np.array([[1, 2, 3, 4], [1, 2, 3, -1]], np.int32), source=np.ones((2, 4), np.uint8), columns=columns,
    )  # fmt: skip
    made = made.rejected("denoise", columns["dense"] > 0.8).dropped("consistency", np.array([False, True]))
    verdict = made.verdict.copy()
    verdict[0, 1:3] = NEGATIVE
    made = Candidates(**{**made.__dict__, "verdict": verdict})
    rows = funnel(CandidateShards.of([made]), n=2)
    assert [(r["step"], r["candidates"], r["queries"]) for r in rows] == [
        ("candidates", 7, 2), ("denoise", 2, 0), ("consistency", 2, 1), ("not drawn", 1, 1), ("negatives", 2, 1),
        ("all 2 negatives", 2, 1),
    ]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=4, unique=True))
def test_nothing_is_lost_in_the_funnel_however_it_is_sharded(block, seeds):
    blocks = [block(seed) for seed in seeds]
    rows = funnel(blocks, n=3)
    total = rows[0]["candidates"]
    assert total == sum(int(b.filled.sum()) for b in blocks)
    assert total == sum(r["candidates"] for r in rows if r["kind"] in ("rejected", "undecided", "negative"))
    assert funnel([Candidates.concatenate(blocks)], n=3) == rows
    assert next(r for r in rows if r["step"] == "consistency")["queries"] == len(blocks)


def test_the_funnel_tells_rejected_from_uncertain_and_promoted_and_by_which_rule(block):
    made = block()
    made = made.rejected("route", made.columns["dense"] > 0.5, "p in doubt", "uncertain")
    made = made.rejected("promote", made.columns["dense"] > 0.4, "p ≥ 0.9", "promoted")
    rows = {r["step"]: r for r in funnel([made])}
    assert {step: rows[step]["kind"] for step in ("denoise", "route", "promote")} == {
        "denoise": "rejected", "route": "uncertain", "promote": "promoted",
    }  # fmt: skip
    assert (rows["route"]["rule"], rows["promote"]["rule"], rows["denoise"]["rule"]) == ("p in doubt", "p ≥ 0.9", "")


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3, unique=True))
def test_every_negative_has_one_origin(block, seeds):
    blocks = [
        b.with_columns({"tier": np.arange(8) % 4 * np.ones(b.documents.shape)}) for b in (block(seed) for seed in seeds)
    ]
    blocks = [Candidates(**{**b.__dict__, "source": np.where(b.filled, 3, 0).astype(np.uint8)}) for b in blocks]
    # Negatives of a dropped query reach no row.
    total = sum(int(b.negatives[b.query_verdict == 0].sum()) for b in blocks)
    found = origins(blocks)
    assert found["sources"] == ({"bm25+dense": total} if total else {})
    assert sum(found["tiers"].values()) == total
    assert found["tiers"].keys() <= set(TIERS)
    assert origins([Candidates.concatenate(blocks)]) == found
    assert origins([block(seeds[0])])["tiers"] == {}, "a recipe without back-off has no tiers"


def test_sources_by_hand(block):
    made = block(queries=4).with_columns(query_columns={"consistent": np.array([1, 0, 1, 1], np.float32)})
    rows = pd.DataFrame({"query_id": ["q0_0", "q0_0", "q0_3"], "negative_ids": [["a", "b"], ["a"], []]})
    found = by_source([made], rows, {"q0_0": "first", "q0_1": "first", "q0_2": "second"}, "rest")
    assert [tuple(row.values()) for row in found] == [
        ("first", 2, 1, 1, 2, 5, 1.5, 1, 2),
        ("rest", 1, 1, 0, 1, 1, 0.0, 0, 0),
        ("second", 1, 1, 0, 0, 0, None, None, None),
    ]
    assert by_source([block(queries=3)], rows, {}, "all")[0]["passed"] == 3, "without the filter nothing fails"


def test_gap_is_positive_minus_negative(block):
    blocks = [block(1), block(2)]
    found = gap(CandidateShards.of(blocks), "elo")
    expected = np.concatenate(
        [(1200 - b.columns["elo"])[b.negatives & (b.query_verdict == 0)[:, None]] for b in blocks]
    )
    assert found["mean"] == pytest.approx(expected.mean(), rel=1e-6)
    assert sum(found["counts"]) == found["count"] == len(expected)
    assert gap(CandidateShards.of(blocks), "cross") == {}


def test_the_expected_share_is_the_mean_over_what_was_judged_however_it_is_sharded():
    """A calibrated judge that is drawn from its own word is right about the share."""
    draw = np.random.default_rng(0)
    probability = draw.beta(0.3, 4, (2000, 10))
    truth = draw.random(probability.shape) < probability
    verdict = np.where(probability < 0.1, NEGATIVE, 0).astype(np.int16)
    tier = np.where(np.arange(10) == 9, float(TIERS.index("uncertain")), 0.0) + np.zeros((2000, 1))
    made = Candidates(
        query_ids=np.array([f"q{row}" for row in range(2000)]), positives=np.full((2000, 1), 99, np.int32),
        documents=np.tile(np.arange(10, dtype=np.int32), (2000, 1)), source=np.ones(probability.shape, np.uint8),
        columns={"p_relevant": probability.astype(np.float32), "tier": tier.astype(np.float32)}, verdict=verdict,
    ).dropped("consistency", np.arange(2000) < 5)  # fmt: skip
    chosen = (probability < 0.1) & (np.arange(2000) >= 5)[:, None]
    (found,) = diagnose([made.take(slice(at, at + 300)) for at in range(0, 2000, 300)], Expected())
    assert found["share"] == pytest.approx(probability[chosen].mean(), rel=1e-5)
    assert found["share"] == pytest.approx(truth[chosen].mean(), rel=0.15)
    assert (found["judged"], found["total"], found["doubtful"]) == (chosen.sum(), chosen.sum(), chosen[:, 9].sum())
    unknown = np.where(np.arange(10) < 5, np.nan, probability)
    (half,) = diagnose([made.with_columns({"p_relevant": unknown})], Expected())
    assert (half["judged"], half["total"]) == (chosen[:, 5:].sum(), chosen.sum())
    assert diagnose([made.only(())], Expected()) == [None], "nothing is said where nothing was judged"
