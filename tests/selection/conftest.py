"""What tests of selection share."""

from typing import Any

import numpy as np
import pandas as pd

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.selection.recipe import Recipe, Runner, Step
from anmi.selection.rows import TrainingRows
from anmi.selection.steps import STEPS, Context


def with_lists(rows: TrainingRows | pd.DataFrame) -> pd.DataFrame:
    """Return rows with lists in place of arrays, which compare by value."""
    table = rows.to_pandas() if isinstance(rows, TrainingRows) else rows
    return table.map(lambda value: value.tolist() if isinstance(value, np.ndarray) else value)


def named(*steps: Any) -> dict[str, Any]:
    """Steps of a recipe, of which some are given by their names alone."""
    params: dict[str, Any] = {}
    for item in steps:
        params |= {item: {}} if isinstance(item, str) else item
    return params


def candidates(
    columns: dict[str, Any], own: dict[str, Any] | None = None, source: Any = 1
) -> Candidates:
    """Queries q0, q1, … with the candidates 0, 1, … of these measurements, and a positive each."""
    values = {name: np.atleast_2d(np.array(column, np.float32)) for name, column in columns.items()}
    shape = next(iter(values.values())).shape
    positive = {
        name: np.zeros((shape[0], 1), np.float32) + np.reshape(value, (-1, 1))
        for name, value in (own or {}).items()
    }
    return Candidates(
        query_ids=np.array([f"q{row}" for row in range(shape[0])]),
        positives=np.full((shape[0], 1), 10_000, np.int32),
        documents=np.tile(np.arange(shape[1], dtype=np.int32), (shape[0], 1)),
        source=np.zeros(shape, np.uint8) + np.array(source, np.uint8),
    ).with_columns(values, positive)


def apply(
    block: Candidates, name: str, negatives: int = 3, seed: int = 1, **params: Any
) -> Candidates:
    """Run one step, fitting it on the block first where it is fitted."""
    item = Step.of(name, params)
    context = Context(seed, negatives)
    fit = STEPS[name].fit
    if fit is not None:
        context = Context(seed, negatives, fit([block], item.params, context))
    return item.type.apply(block, item.params, context)


def run(block: Candidates, *steps: Any, negatives: int = 2) -> Candidates:
    """Run a recipe of these steps."""
    recipe = Recipe(description="", negatives=negatives, steps=named(*steps))
    return Runner(recipe, 1).run(CandidateShards.of([block])).whole()


POSITIVE = 1000


def make_block(
    seed: int, queries: int = 6, width: int = 12, negative_scores: bool = False
) -> Candidates:
    """All that steps read, of candidates 0…199 and positives from 1000 on; rows of unlike length."""
    rng = np.random.default_rng(seed)
    documents = np.stack([rng.permutation(200)[:width] for _ in range(queries)]).astype(np.int32)
    filled = np.arange(width) < rng.integers(0, width + 1, queries)[:, None]
    positives = np.full((queries, 2), PADDING, np.int32)
    positives[:, 0] = POSITIVE + np.arange(queries)
    positives[::2, 1] = POSITIVE + 500
    known = positives != PADDING

    def column(values: np.ndarray, missing: float = 0.0, of: np.ndarray = filled) -> np.ndarray:
        return np.where(~of | (rng.random(of.shape) < missing), np.nan, values).astype(np.float32)

    low, high = (-2.0, 0.5) if negative_scores else (0.0, 1.0)
    shape, ranks = filled.shape, np.arange(1.0, width + 1)
    return Candidates(
        query_ids=np.array([f"q{i}" for i in range(queries)]),
        positives=positives,
        documents=np.where(filled, documents, PADDING).astype(np.int32),
        source=np.where(filled, rng.choice([1, 2, 3, 8], shape), 0).astype(np.uint8),
        columns={
            "dense": column(rng.uniform(low, high, shape)),
            "dense_rank": column(rng.permuted(np.tile(ranks, (queries, 1)), axis=1)),
            "bm25": column(rng.gamma(2, 3, shape)),
            "p_relevant": column(rng.random(shape), missing=0.2),
            "p_evidence": column(rng.random(shape) ** 4, missing=0.1),
            "p_preferred": column(rng.beta(0.3, 2, shape)),
            "p_cross": np.where(filled, documents % 7 / 7, np.nan).astype(np.float32),
            "elo": column(rng.normal(900, 250, shape), missing=0.1),
            "gap_se": column(rng.uniform(20, 200, shape)),
            "related": column(rng.choice(3, shape, p=[0.8, 0.1, 0.1])),
        },
        positive_columns={
            "dense": column(rng.uniform(low, high, known.shape), of=known),
            "dense_rank": column(rng.integers(1, 9, known.shape), of=known),
            "consistent": column(rng.integers(0, 2, known.shape), of=known),
            "elo": column(rng.normal(1200, 150, known.shape), of=known),
            "p_relevant": column(rng.beta(3, 1, known.shape), of=known),
            "p_evidence": column(rng.beta(3, 1, known.shape), of=known),
        },
        query_columns={"consistent": (rng.random(queries) < 0.7).astype(np.float32)},
    )
