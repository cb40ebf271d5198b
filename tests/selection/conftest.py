"""What tests of selection share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from anmi.candidates import Candidates
from anmi.selection.rows import TrainingRows


def with_lists(rows: TrainingRows | pd.DataFrame) -> pd.DataFrame:
    """Return rows with lists in place of arrays, which compare by value."""
    table = rows.to_pandas() if isinstance(rows, TrainingRows) else rows
    return table.map(lambda value: value.tolist() if isinstance(value, np.ndarray) else value)


def named(*steps: Any) -> dict[str, Any]:
    """Steps of a recipe, of which some are given by their names alone."""
    found: dict[str, Any] = {}
    for item in steps:
        found |= {item: {}} if isinstance(item, str) else item
    return found


def candidates(columns: dict[str, Any], own: dict[str, Any] | None = None, source: Any = 1) -> Candidates:
    """Queries q0, q1, … with the candidates 0, 1, … of these measurements, and a positive each, 10,000, of its own."""
    values = {name: np.atleast_2d(np.array(column, np.float32)) for name, column in columns.items()}
    shape = next(iter(values.values())).shape
    positive = {name: np.reshape(np.array(value, np.float32), (-1, 1)) for name, value in (own or {}).items()}
    return Candidates(
        query_ids=np.array([f"q{row}" for row in range(shape[0])]), positives=np.full((shape[0], 1), 10_000, np.int32),
        documents=np.tile(np.arange(shape[1], dtype=np.int32), (shape[0], 1)),
        source=np.zeros(shape, np.uint8) + np.array(source, np.uint8), columns=values,
        positive_columns={name: np.broadcast_to(value, (shape[0], 1)).copy() for name, value in positive.items()},
    )  # fmt: skip
