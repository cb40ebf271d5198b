"""Which share of the candidates is relevant, by how near they are to the query: false negatives against hardness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import NEGATIVE, PADDING, Candidates
from anmi.evaluation.diagnostics import fate_of

# A twentieth of a cosine is fine enough to see a bend, and leaves hundreds of candidates to a bin of a small run.
_STEP: Final = 0.05
_MOST: Final = 20
# Probabilities are added up as whole numbers, so that no order of the blocks changes the sum.
_WHOLE: Final = 1 << 20
_COUNTS: Final = ("candidates", "judged", "expected", "known", "relevant")


class RelevanceByNearness:
    """Counts which share of the chosen and of the rejected candidates is relevant, by how near they are.

    Near is the similarity ``dense`` of a candidate less that of its row's positive: above 0 the candidate is nearer to
    the query than the positive, the harder a negative. It finds ``edges`` of n bins, of which the outermost ones hold
    all beyond, and for ``chosen`` and ``rejected`` lists of n: ``candidates``; those ``judged`` and their ``expected``
    share of relevant ones (mean ``p_relevant``, None of none); those of queries for which unlabelled relevant documents
    are ``known``, and how many of them are ``relevant`` in truth. None where nothing was compared.

    Parameters
    ----------
    equivalents
        ``query_id, document_id``: what is relevant though no label says so; mining has not seen it.
    document_ids
        Of the corpus, in its order.
    """

    columns: tuple[str, ...] = ("dense", "p_relevant")

    def __init__(self, equivalents: pd.DataFrame, document_ids: Sequence[str]) -> None:
        self._queries = pd.Index(equivalents["query_id"].astype(str).unique())
        self._documents = len(document_ids)
        place = pd.Index(document_ids).get_indexer(pd.Index(equivalents["document_id"]))
        query = self._queries.get_indexer(equivalents["query_id"].astype(str))
        self._relevant = self._pairs(query[place >= 0], place[place >= 0])
        self._counts = np.zeros((2, len(_COUNTS), 2 * _MOST), np.int64)

    def _pairs(self, query: NDArray[np.integer[Any]], document: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        return query.astype(np.int64) * self._documents + document

    def see(self, block: Candidates) -> None:
        """Count the candidates of a block."""
        if "dense" not in block.columns or "dense" not in block.positive_columns:
            return
        near = block.columns["dense"] - block.positive_columns["dense"][:, :1]
        fate = fate_of(block)
        row, slot = np.nonzero(np.isfinite(near) & (fate >= NEGATIVE) & (block.documents != PADDING))
        place = np.clip(np.floor(near[row, slot] / _STEP).astype(np.int64) + _MOST, 0, 2 * _MOST - 1)
        chance = block.columns["p_relevant"][row, slot] if "p_relevant" in block.columns else np.full(len(row), np.nan)
        judged = np.isfinite(chance)
        query = self._queries.get_indexer(block.query_ids.astype(str))[row]
        relevant = np.isin(self._pairs(query, block.documents[row, slot]), self._relevant) & (query >= 0)
        whole = np.rint(np.where(judged, chance, 0).astype(np.float64) * _WHOLE)
        # Bins of the rejected after those of the chosen.
        bins = place + 2 * _MOST * (fate[row, slot] > NEGATIVE)
        for number, values in enumerate((np.ones(len(row)), judged, whole, query >= 0, relevant)):
            self._counts[:, number] += np.bincount(bins, values, 4 * _MOST).astype(np.int64).reshape(2, -1)

    def found(self) -> dict[str, Any] | None:
        """Return the counts and shares."""
        if not self._counts[:, 1].any() and not self._counts[:, 4].any():
            return None
        edges = (np.arange(-_MOST, _MOST + 1) * _STEP).round(2).tolist()
        return {"edges": edges} | {
            name: dict(zip(_COUNTS, _with_shares(counts), strict=True))
            for name, counts in zip(("chosen", "rejected"), self._counts, strict=True)
        }


def _with_shares(counts: NDArray[np.int64]) -> list[list[Any]]:
    candidates, judged, expected, known, relevant = counts.tolist()
    shares = [total / _WHOLE / count if count else None for total, count in zip(expected, judged, strict=True)]
    return [candidates, judged, shares, known, relevant]
