"""Candidates that a person marked as not relevant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import MARKED, PADDING, Candidates


@dataclass(frozen=True)
class Marked:
    """Adds the column ``marked`` to a block: 0 of candidates that were marked as not relevant, else NaN.

    What was marked as relevant is a positive, and so no candidate.

    Attributes
    ----------
    queries, documents
        The pairs: ids of queries [n], and the rows of the documents in the corpus, int64 [n].
    """

    queries: NDArray[np.str_]
    documents: NDArray[np.int64]

    @staticmethod
    def of(marks: pd.DataFrame | None, document_ids: list[str]) -> Marked | None:
        """Return what adds the column for marks, ``query_id, document_id, relevance``; None where none refutes."""
        refuted = marks[marks["relevance"] == 0] if marks is not None else pd.DataFrame()
        if refuted.empty:
            return None
        place = dict(zip(document_ids, range(len(document_ids)), strict=True))
        rows: Any = refuted["document_id"].map(place).to_numpy(np.int64)
        return Marked(refuted["query_id"].to_numpy(np.str_), rows)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with the column."""
        names, row = np.unique(block.query_ids, return_inverse=True)
        at = np.minimum(np.searchsorted(names, self.queries), len(names) - 1)
        here = names[at] == self.queries
        # A pair as one number: which query of the block, and which document.
        size = int(max(block.documents.max(initial=0), self.documents.max(initial=0))) + 1
        pairs = row[:, None].astype(np.int64) * size + block.documents
        found = np.isin(pairs, at[here] * size + self.documents[here]) & (block.documents != PADDING)
        return block.with_columns({MARKED: np.where(found, 0.0, np.nan).astype(np.float32)})
