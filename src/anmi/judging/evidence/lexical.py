"""Evidence from the terms of query and document."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING
from anmi.judging.evidence.pairs import Pairs


def coverage(pairs: Pairs) -> NDArray[np.float32]:
    """Σ idf of the query's terms that the document holds / Σ idf of the query's terms; in [0, 1].

    Returns
    -------
    numpy.ndarray
        float32 [Q, M]; NaN in padding and for a query without a known term.
    """
    return share(pairs.asked[0], _whole(pairs), pairs.documents)


def match(pairs: Pairs) -> NDArray[np.float32]:
    """Coverage with each term counted by BM25's saturated frequency; in [0, 1), float32 [Q, M]."""
    return share(pairs.asked[1], _whole(pairs), pairs.documents)


def _whole(pairs: Pairs) -> NDArray[np.float32]:
    """Σ idf of each query's terms, [Q]."""
    whole: NDArray[np.float32] = pairs.queries @ np.ones(pairs.queries.shape[1], np.float32)
    return whole


def share(part: NDArray[np.float32], whole: NDArray[np.float32], documents: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return part [Q, M] / whole [Q], [Q, 1] or [Q, M]; NaN in padding and where there is no whole."""
    whole = np.asarray(whole, np.float32)
    whole = whole if whole.ndim == 2 else whole[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.where((documents == PADDING) | (whole <= 0), np.nan, part / whole)
    return result.astype(np.float32)
