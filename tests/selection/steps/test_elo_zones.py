"""Curriculum tiers and what becomes of candidates that nobody rated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anmi.candidates import Candidates
from anmi.selection.recipe import Step
from anmi.selection.steps import Context

GAPS = [-50, 99, 100, 199, 200, 399, 400, 599, 600, 5000, np.nan]
FIRST = [np.inf, np.inf, 4, 4, 3, 3, 2, 2, 1, 1, np.nan]


def block_of(gaps: list[float], errors: list[float] | None = None) -> Candidates:
    width = len(gaps)
    return Candidates(
        query_ids=np.array(["q"]),
        positives=np.array([[1000]], np.int32),
        documents=np.arange(width, dtype=np.int32)[None, :],
        source=np.ones((1, width), np.uint8),
        columns={
            "elo": (1500 - np.array([gaps])).astype(np.float32),
            "gap_se": np.array([errors or [50.0] * width], np.float32),
        },
        positive_columns={"elo": np.array([[1500.0]], np.float32)},
    )


def applied(block: Candidates, name: str, **params: Any) -> Candidates:
    item = Step.of(name, params)
    return item.type.apply(block, item.params, Context(0, 3))


@pytest.mark.parametrize("limit", [None, 0.05])
def test_candidates_without_a_rating_are_rejected(limit: float | None) -> None:
    block = block_of([50, 500, np.nan], [10, 10, np.nan])
    params = {} if limit is None else {"max_probability": limit}
    assert applied(block, "elo_gap", **params).undecided[0].tolist() == [False, True, False]
    # A rating without its error is none by interval.
    rated = applied(block_of([500], [np.nan]), "elo_gap", **params)
    assert rated.undecided[0].tolist() == [limit is None]
