"""What tests of training rows share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from anmi.selection.row_table import TrainingRows


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
