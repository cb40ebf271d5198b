"""Steps that look at one query."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.selection.conftest import apply, candidates

from anmi.candidates import Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.selection.recipe import Recipe, Runner


def block_of(scores: list[float], positives: list[float], column: str = "dense") -> Candidates:
    """One row of candidates with these scores, under positives with those, the one compared with first."""
    block = candidates({column: scores})
    own = np.array([positives], np.float32)
    documents = 1000 + np.arange(len(positives), dtype=np.int32)[None, :]
    return replace(block, positives=documents, positive_columns={column: own})


def kept(block: Candidates, name: str, **params: Any) -> list[bool]:
    result: list[bool] = apply(block, name, **params).undecided[0].tolist()
    return result


def test_presets_are_named_by_what_they_do() -> None:
    block = block_of([0.89, 0.91, 0.96, 0.985], [1.0])
    assert [sum(kept(block, "max_ratio", max_ratio=name)) for name in ("strict", "balanced", "bold")] == [1, 2, 3]


@pytest.mark.parametrize(("name", "strictness"), [("max_ratio", {"max_ratio": 0.9}), ("margin", {"margin": 0.05})])
def test_the_first_positive_is_compared_with(name: str, strictness: dict[str, float]) -> None:
    block = block_of([0.5, 0.6, 0.7, 0.83], [0.9, 0.66, np.nan])
    assert kept(block, name, **strictness) == [True, True, True, name == "margin"]
    # Without a score of the positive nothing is known to be below it.
    assert not any(kept(block_of([0.1], [np.nan, 0.9]), name))


@pytest.mark.parametrize(
    ("positive", "given_ratio", "ratio"),
    [(0.95, 0.95, 0.93), (0.9, 0.95, 0.95), (0.7, 0.95, 0.95), (0.6, 0.95, 0.98), (0.6, 0.98, 1.0), (0.6, 1.1, 1.1)],
)
def test_the_adaptive_ratio_follows_the_positives_similarity(positive: float, given_ratio: float, ratio: float) -> None:
    ceiling = positive * ratio
    block = block_of([ceiling - 1e-4, ceiling + 1e-4], [positive])
    assert kept(block, "max_ratio", max_ratio=given_ratio, adaptive=True) == [True, False]


@pytest.mark.parametrize(("doubt", "ratio"), [(0.0, 0.98), (0.35, None), (0.9, None), (40.0, 0.90)])
def test_auto_is_the_largest_ratio_at_which_the_nearest_are_expected_to_be_clean(
    doubt: float, ratio: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    random = np.random.default_rng(3)
    scores = random.uniform(0.8, 1.0, (60, 40)).astype(np.float32)
    chance = np.clip(doubt * random.random((60, 40)) * np.maximum(scores - 0.88, 0.002), 0, 1).astype(np.float32)
    block = candidates({"dense": scores, "p_relevant": chance}, {"dense": 1.0})
    shares = {}
    for tried in (0.90, 0.92, 0.94, 0.95, 0.96, 0.98):
        below = [np.flatnonzero(row < tried) for row in scores]
        nearest = [sorted(places, key=lambda m, q=q: scores[q, m])[-7:] for q, places in enumerate(below)]
        shares[tried] = np.mean([chance[q, m] for q, places in enumerate(nearest) for m in places])
    expected = max((tried for tried, share in shares.items() if share <= 0.015), default=0.90)
    assert ratio in (None, expected)
    steps = {"max_ratio": {"max_ratio": "auto"}, "top": {"by": "dense"}}
    runner = Runner(Recipe.model_validate({"description": "-", "negatives": 7, "steps": steps}), 1)
    assert runner.recipe.requires == {"dense", "p_relevant"}
    with caplog.at_level(logging.INFO):
        after = runner.run(CandidateShards.of([block.take(slice(0, 25)), block.take(slice(25, None))])).whole()
    assert after.rules["max_ratio"].text.startswith(f"dense ≥ {expected:g} of the positive's, chosen at an expected")
    assert scores[after.negatives].max() < expected
    assert {record.levelname for record in caplog.records} == {"WARNING" if shares[expected] > 0.015 else "INFO"}


def test_related_documents_are_rejected_under_their_own_names() -> None:
    recipe = Recipe.model_validate({"description": "Guards.", "steps": {"duplicate_guard": {}}})
    after = Runner(recipe, seed=1).apply(candidates({"related": [0, 1, 2]}))
    assert [after.legend[code] for code in after.verdict[0]] == ["open", "near_duplicate", "sibling"]
    # They may be relevant, so they are no negatives inside a training batch either.
    assert (after.of_kind("unsafe") == after.excluded_in_batch).all() and after.excluded_in_batch.sum() == 2
    with pytest.raises(AnmiError, match="the recipe reads related"):
        Runner(recipe, seed=1).apply(candidates({"dense": [0.5] * 3}))
