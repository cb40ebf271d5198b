"""Elo of candidates from the pooled preferences of score columns."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from tests.judging.conftest import block_of

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.judging.rating import Rater, RatingOptions

JUDGES = ("bm25", "dense", "cross")


def block(queries: int = 12, width: int = 16) -> Candidates:
    """Candidates with a hidden quality that three noisy judges see on scales of their own."""
    rng = np.random.default_rng(0)
    positives = np.full((queries, 2), PADDING, np.int32)
    positives[:, 0] = 1000 + np.arange(queries)
    positives[::3, 1] = 2000 + np.arange(len(positives[::3]))
    documents = np.stack([rng.permutation(200)[:width] for _ in range(queries)]).astype(np.int32)
    documents[:, -3:][:: max(queries // 3, 1)] = PADDING
    quality, best = rng.normal(0, 1, documents.shape), rng.normal(2, 0.3, positives.shape)
    columns, own = {}, {}
    for judge, scale in zip(JUDGES, (8.0, 0.1, 3.0), strict=True):
        noisy = (quality + rng.normal(0, 0.4, quality.shape)) * scale
        hidden = documents == PADDING
        columns[judge] = np.where(hidden, np.nan, noisy).astype(np.float32)
        own[judge] = np.where(positives == PADDING, np.nan, best * scale).astype(np.float32)
    return block_of(documents, positives, columns | {"quality": quality}, own)


def rated(candidates: Candidates, shards: list[Candidates] | None = None, **options: object) -> Candidates:
    rater = Rater(RatingOptions(**options), seed=5)  # type: ignore[arg-type]
    rater.fit(CandidateShards.of(shards or [candidates]))
    return rater(candidates)


def test_ratings_follow_quality_and_do_not_depend_on_how_queries_are_cut_into_shards() -> None:
    candidates = block()
    halves = [candidates.take(slice(0, 5)), candidates.take(slice(5, None))]
    whole = rated(candidates)
    parts = Candidates.concatenate([rated(half, halves) for half in halves])
    for name in ("elo", "elo_se", "gap_se"):
        np.testing.assert_allclose(parts.columns[name], whole.columns[name], atol=1e-2)
        assert (np.isfinite(whole.columns[name]) == whole.filled).all()
    elo = whole.columns["elo"]
    assert np.corrcoef(elo[whole.filled], whole.columns["quality"][whole.filled])[0, 1] > 0.8
    assert (whole.positive_columns["elo"][:, 0] > np.nanmedian(elo, axis=1)).all()


@pytest.mark.parametrize("width", [0, 1])
def test_few_candidates_can_be_rated(width: int) -> None:
    candidates = block(width=width)
    found = rated(candidates, [block()])
    assert (np.isfinite(found.columns["elo"]) == candidates.filled).all()


def test_a_judge_that_never_spoke_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    candidates = block()
    candidates.columns["cross"][:] = np.nan
    candidates.positive_columns["cross"][:] = np.nan
    with caplog.at_level(logging.WARNING):
        found = rated(candidates)
    assert "judge cross has no score" in caplog.text
    others = rated(candidates, judges={"bm25": 1.0, "dense": 1.0})
    for name in ("elo", "elo_se", "gap_se"):
        np.testing.assert_array_equal(found.columns[name], others.columns[name])


def test_several_judges_count_for_more_than_one_and_a_single_one_for_one() -> None:
    alone, together = Rater(RatingOptions(judges={"dense": 1.0}), seed=5), Rater(RatingOptions(), seed=5)
    candidates = block(queries=60)
    for rater in (alone, together):
        rater.fit(CandidateShards.of([candidates]))
    assert alone.votes == 1.0 and alone.slope == 1.0
    assert together.votes > 1.5 and together.slope > 1.0
    errors = [np.nanmean(rater(candidates).columns["gap_se"]) for rater in (alone, together)]
    assert errors[1] < errors[0] / np.sqrt(1.5)
    assert together.summary.keys() == {"temperatures", "slope", "votes"}


def test_documents_that_nothing_joins_to_the_positive_stay_unrated_and_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    candidates = block(queries=6, width=8)
    for judge in JUDGES:
        candidates.positive_columns[judge][2] = np.nan
    # In one query, one judge saw the positive and the first half, another one the second half.
    candidates.columns["dense"][1, 4:] = candidates.columns["bm25"][1, :4] = np.nan
    candidates.positive_columns["bm25"][1] = candidates.columns["cross"][1, :] = np.nan
    with caplog.at_level(logging.WARNING):
        found = rated(candidates)
    known = {str(q): np.isfinite(row) for q, row in zip(found.query_ids, found.columns["elo"], strict=True)}
    assert known["q1"].tolist() == [True] * 4 + [False] * 4
    assert not known["q2"].any() and known["q4"].sum() >= 5
    assert "judged documents have no rating" in caplog.text


@pytest.mark.parametrize("variant", ["star", "paraphrase"])
def test_as_published_preferences_are_of_five_times_the_difference_and_gaps_without_root_two(variant: str) -> None:
    one = block_of([[3]], [[7]], {"dense": np.array([[0.3]])}, {"dense": np.array([[0.7]])})
    told = {"judges": {"dense": 1.0}, "variant": variant, "temperature": 0.2, "prior_precision": 1e-6}
    for difference, deviation in (("case_v", np.sqrt(2)), ("unit", 1.0)):
        found = rated(one, difference=difference, **told)
        gap = found.positive_columns["elo"][0, 0] - found.columns["elo"][0, 0]
        # A single comparison is met exactly: Φ(gap / (200 s)) = σ(5 · 0.4).
        assert gap == pytest.approx(200 * deviation * ndtri(1 / (1 + np.exp(-5 * 0.4))), rel=0.01)
        assert np.isfinite(found.columns["gap_se"][0, 0]) == (variant == "star")


@pytest.mark.parametrize(
    ("options", "deviation"),
    [({}, np.sqrt(2)), ({"difference": "unit"}, 1.0), ({"variant": "paraphrase"}, np.sqrt(2))],
)
def test_the_chance_to_beat_the_positive_is_that_of_the_model(options: dict[str, object], deviation: float) -> None:
    found = rated(block(), **options)
    gap = (found.columns["elo"] - found.positive_columns["elo"][:, :1]) / 200
    np.testing.assert_allclose(found.columns["p_preferred"], ndtr(gap / deviation), atol=1e-6)
    assert np.nanstd(gap) > 0.1 and np.isnan(found.columns["p_preferred"][~found.filled]).all()
