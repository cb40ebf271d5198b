"""Numbers of a loss that are estimated from the training rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from anmi.errors import AnmiError


def estimate_tau_plus(how: str, rows: pd.DataFrame, corpus_size: int) -> float:
    """Return the share of positives among what serves as negatives (methods §3.3).

    ``labelled``: labelled positives a query over the size of the corpus. ``judged``: the share of the judged mined
    negatives that are likelier relevant than not.

    Raises
    ------
    AnmiError
        ``judged``, and nobody judged the negatives of these rows; or all of them would be positives.

    Examples
    --------
    >>> table = pd.DataFrame({"query_id": ["q"], "positive_ids": [["a", "b"]], "negative_p_relevant": [[0.9, 0.1]]})
    >>> estimate_tau_plus("labelled", table, 100), estimate_tau_plus("judged", table, 100)
    (0.02, 0.5)
    """
    value = _labelled(rows, corpus_size) if how == "labelled" else _judged(rows)
    if not value < 1.0:
        raise AnmiError(
            f"tau_plus, the share of positives among negatives, was estimated ({how}) as {value:g} and must be below "
            "1: give it as a number"
        )
    return value


def _labelled(rows: pd.DataFrame, corpus_size: int) -> float:
    found = rows.drop_duplicates("query_id").positive_ids.map(len)
    # Without rows the training says so itself.
    return float(found.mean() / corpus_size) if len(found) else 0.0


def _judged(rows: pd.DataFrame) -> float:
    judged = np.array([value for values in rows.get("negative_p_relevant", ()) for value in values], np.float64)
    judged = judged[~np.isnan(judged)]
    if not len(judged):
        raise AnmiError(
            "tau_plus is to be estimated from judgments, and nobody judged the negatives of these rows: name "
            "`p_relevant` under `reads` of the recipe, or choose `tau_plus: labelled` or a number"
        )
    return float((judged > 0.5).mean())
