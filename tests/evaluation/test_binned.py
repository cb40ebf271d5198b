"""Histograms and shares that know their noise, against slow and readable versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anmi.evaluation.binned import BINS, EDGES, LEAST_EXPECTED, Shares, Tally, merge_starts

SEEDS = st.integers(0, 2**31)


def clustered(seed: int, units: int = 60, most: int = 8) -> tuple[Any, Any]:
    """Values around the mean of their unit, and their units."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most, units)
    unit = np.repeat(np.arange(units), sizes)
    return rng.normal(size=units)[unit] + 0.3 * rng.normal(size=len(unit)), unit


def slow_effective(values: Any, unit: Any, edges: Any) -> tuple[float, float]:
    """Rao and Scott, one unit and one bin after another."""
    codes = [sum(value >= edge for edge in edges) for value in values]
    counts = [codes.count(code) for code in range(len(edges) + 1)]
    total = len(values)
    starts = merge_starts(np.array(counts) / total, BINS, LEAST_EXPECTED / len(set(unit)))
    merged = [int(np.searchsorted(starts, code, side="right")) - 1 for code in codes]
    shares = [merged.count(place) / total for place in range(len(starts))]
    scaled = np.zeros((len(starts), len(starts)))
    for one in set(unit):
        mine = [place for place, other in zip(merged, unit, strict=True) if other == one]
        off = np.array([mine.count(place) - share * len(mine) for place, share in enumerate(shares)])
        scaled += np.outer(off, off) / total**2 / np.sqrt(np.outer(shares, shares))
    eigenvalues = np.linalg.eigvalsh(scaled)
    free = len(starts) - 1
    return free / eigenvalues.sum(), free * (eigenvalues**2).sum() / eigenvalues.sum() ** 2


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_a_tally_is_a_histogram_whatever_the_blocks(seed: int) -> None:
    values, unit = clustered(seed)
    edges = np.linspace(-2, 2, 17)
    whole, parts = Tally(edges), Tally(edges)
    whole.add(values, unit)
    for block in (unit < 7, (unit >= 7) & (unit < 40), unit >= 40):
        parts.add(values[block], unit[block])
    found, other = whole.as_dict(), parts.as_dict()
    assert found["counts"] == np.histogram(values, [-np.inf, *edges, np.inf])[0].tolist() == other["counts"]
    assert (found["mean"], found["std"]) == pytest.approx((values.mean(), values.std()))
    names = ("mean", "std", "error", "effective", "spread", "units")
    assert [found[name] for name in names] == pytest.approx([other[name] for name in names])


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_effective_values_against_the_slow_way(seed: int) -> None:
    values, unit = clustered(seed)
    edges = np.linspace(-2, 2, 17)
    tally = Tally(edges)
    tally.add(values, unit)
    found = tally.as_dict()
    assert (found["effective"], found["spread"]) == pytest.approx(slow_effective(values, unit, edges))
    assert found["units"] <= found["effective"] * 2 <= 2 * found["count"]


def test_independent_values_count_in_full_and_copies_do_not() -> None:
    values = np.random.default_rng(0).normal(size=400)
    alone, copied = Tally(np.linspace(-2, 2, 17)), Tally(np.linspace(-2, 2, 17))
    alone.add(values)
    copied.add(np.repeat(values, 5), np.repeat(np.arange(400), 5))
    assert alone.as_dict()["effective"] == pytest.approx(400)
    assert copied.as_dict()["effective"] == pytest.approx(400)
    assert copied.as_dict()["error"] == pytest.approx(values.std() / 20) == alone.as_dict()["error"]


def test_what_is_not_finite_is_left_out() -> None:
    tally = Tally([0.0])
    tally.add(np.array([np.nan, np.inf]), np.array([0, 1]))
    assert tally.as_dict() == {}
    tally.add(np.array([np.nan, 1.0, -1.0]))
    assert tally.as_dict()["counts"] == [1, 1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=60), st.integers(1, 12), st.floats(0, 0.4))
def test_merged_bins_hold_enough(counts: list[int], most: int, least: float) -> None:
    shares = np.array(counts) / max(sum(counts), 1)
    starts = merge_starts(shares, most, least)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert len(starts) <= most
    if len(starts) > 1:
        assert np.add.reduceat(shares, starts).min() >= least


def test_without_atoms_merged_bins_are_deciles() -> None:
    assert np.add.reduceat(np.full(200, 1 / 200), merge_starts(np.full(200, 1 / 200), 10, 0.0)) == pytest.approx(0.1)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_shares_against_the_slow_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, 50)
    hits = rng.binomial(sizes, rng.beta(1, 3, 50))
    shares = Shares()
    # A step that the first block has not heard of.
    shares.add({"a": hits[:20]}, sizes[:20])
    shares.add({"a": hits[20:], "late": hits[20:]}, sizes[20:])
    found = shares.as_dict()
    share = hits.sum() / sizes.sum()
    variance = sum((hit - share * size) ** 2 for hit, size in zip(hits, sizes, strict=True)) / sizes.sum() ** 2
    assert found["a"]["share"] == pytest.approx(share)
    if 0 < share < 1:
        assert found["a"]["effective"] == pytest.approx(min(share * (1 - share) / variance, sizes.sum()))
    assert found["late"]["share"] == pytest.approx(hits[20:].sum() / sizes.sum())


def test_edges_ascend_and_cover_what_is_measured() -> None:
    for name, edges in EDGES.items():
        assert (np.diff(edges) > 0).all(), name
    assert EDGES["dense"][0] == -0.99
    assert len(EDGES["dense"]) == len(np.unique(EDGES["dense"])) == 199
    assert EDGES["p_relevant"][[0, -1]] == pytest.approx([0.000335, 0.999665], rel=0.01)
