"""Elo of candidates from the pooled preferences of score columns."""

from __future__ import annotations

import numpy as np
import pytest

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.judging.rating import Rater, RatingOptions

JUDGES = ("bm25", "dense", "cross")


def block(seed: int = 0, queries: int = 12, width: int = 16, missing: float = 0.0) -> Candidates:
    """Candidates with a hidden quality that three noisy judges see on scales of their own."""
    rng = np.random.default_rng(seed)
    positives = np.full((queries, 2), PADDING, np.int32)
    positives[:, 0] = 1000 + np.arange(queries)
    positives[::3, 1] = 2000 + np.arange(len(positives[::3]))
    documents = np.stack([rng.permutation(200)[:width] for _ in range(queries)]).astype(np.int32)
    documents[:, -3:][:: max(queries // 3, 1)] = PADDING
    quality, best = rng.normal(0, 1, documents.shape), rng.normal(2, 0.3, positives.shape)
    columns, own = {}, {}
    for judge, scale in zip(JUDGES, (8.0, 0.1, 3.0), strict=True):
        noisy = (quality + rng.normal(0, 0.4, quality.shape)) * scale
        hidden = (documents == PADDING) | (rng.random(documents.shape) < missing)
        columns[judge] = np.where(hidden, np.nan, noisy).astype(np.float32)
        own[judge] = np.where(positives == PADDING, np.nan, best * scale).astype(np.float32)
    columns["quality"] = quality.astype(np.float32)
    return Candidates(
        query_ids=np.array([f"q{i}" for i in range(queries)]),
        positives=positives,
        documents=documents,
        source=np.ones(documents.shape, np.uint8),
        columns=columns,
        positive_columns=own,
    )


def rated(candidates: Candidates, shards: list[Candidates] | None = None, **options: object) -> Candidates:
    rater = Rater(RatingOptions(**options), seed=5)  # type: ignore[arg-type]
    rater.fit(CandidateShards.of(shards or [candidates]))
    return rater(candidates)


def test_there_is_a_row_per_positive_and_ratings_follow_quality() -> None:
    found = rated(block())
    assert len(found) == 16
    judged = found.filled
    assert np.isfinite(found.columns["elo"][judged]).all() and np.isnan(found.columns["elo"][~judged]).all()
    assert np.corrcoef(found.columns["elo"][judged], found.columns["quality"][judged])[0, 1] > 0.8
    assert (found.positive_columns["elo"][:, 0] > np.nanmedian(found.columns["elo"], axis=1)).all()
    for name in ("elo_se", "gap_se"):
        assert (found.columns[name][judged] > 0).all()
    mean = np.nansum(found.columns["elo"], axis=1) + found.positive_columns["elo"][:, 0]
    np.testing.assert_allclose(mean / (1 + judged.sum(axis=1)), 1000, atol=0.01)


def test_candidates_beyond_the_depth_stay_unrated() -> None:
    found = rated(block(), depth=5, degree=4)
    assert np.isfinite(found.columns["elo"][:, :5]).all() and np.isnan(found.columns["elo"][:, 5:]).all()


def test_a_candidate_that_no_judge_saw_has_no_rating() -> None:
    candidates = block()
    for judge in JUDGES:
        candidates.columns[judge][4, 2] = np.nan
    elo = rated(candidates).columns["elo"]
    row = [str(q) for q in rated(candidates).query_ids].index("q4")
    assert np.isnan(elo[row, 2]) and np.isfinite(np.delete(elo[row], 2)).sum() >= 12


def test_one_judges_silence_is_made_up_by_the_others() -> None:
    found = rated(block(missing=0.2))
    assert np.isfinite(found.columns["elo"][found.filled]).mean() > 0.9


def test_ratings_do_not_depend_on_how_queries_are_cut_into_shards() -> None:
    candidates = block()
    halves = [candidates.take(slice(0, 5)), candidates.take(slice(5, None))]
    whole = rated(candidates)
    parts = Candidates.concatenate([rated(half, halves) for half in halves])
    for name in ("elo", "elo_se", "gap_se"):
        np.testing.assert_allclose(parts.columns[name], whole.columns[name], atol=1e-2)


def test_a_judge_of_no_weight_has_no_say() -> None:
    candidates = block()
    found = rated(candidates, judges={"dense": 1.0, "bm25": 0.0})
    np.testing.assert_allclose(found.columns["elo"], rated(candidates, judges={"dense": 1.0}).columns["elo"], atol=1e-2)


@pytest.mark.parametrize("width", [0, 1, 12, 13])
def test_few_candidates_can_be_rated(width: int) -> None:
    candidates = block(width=16)
    narrow = Candidates(
        candidates.query_ids, candidates.positives, candidates.documents[:, :width], candidates.source[:, :width],
        {name: column[:, :width] for name, column in candidates.columns.items()}, candidates.positive_columns,
    )  # fmt: skip
    found = rated(narrow, [candidates])
    assert found.columns["elo"].shape == (16, width)
    assert (np.isfinite(found.columns["elo"]) == found.filled).all()
