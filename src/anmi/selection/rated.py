"""The candidates that recipes choose from: what retrieval found, with all that later stages added."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from anmi.candidates import MARKED, Candidates, CandidateShards, ColumnShards

# The candidates, and the columns that stages added to them. Here, so that who reads them imports no training.
RATED: Final = ("candidates", "consistency", "evidence", "judgments", "ratings")


def rated(
    candidates: CandidateShards,
    consistency: ColumnShards,
    evidence: ColumnShards,
    judgments: ColumnShards,
    ratings: ColumnShards,
) -> CandidateShards:
    """Return the candidates of retrieval with the columns that the stages added to them."""
    return candidates.joined(consistency, evidence, judgments, ratings)


def believed(block: Candidates) -> Candidates:
    """Return the block with ``p_relevant``: where no cross-encoder was asked, ``p_evidence`` alone says it.

    Of a candidate that was marked as not relevant it is 0; what the judges said of it is then in ``p_judged``.
    """
    if "p_relevant" not in block.columns and "p_evidence" in block.columns:
        parts = (block.columns, block.positive_columns)
        block = block.with_columns(*({"p_relevant": of["p_evidence"]} for of in parts))
    if MARKED not in block.columns or "p_relevant" not in block.columns or "p_judged" in block.columns:
        return block
    said = block.columns["p_relevant"]
    known = np.where(block.columns[MARKED] == 0, np.float32(0), said)
    return block.with_columns({"p_relevant": known, "p_judged": said})


def needed(requires: Collection[str]) -> set[str]:
    """Return the stored columns behind those that are read, for :meth:`anmi.candidates.CandidateShards.only`.

    Examples
    --------
    >>> sorted(needed({"dense", "p_relevant"}))
    ['dense', 'marked', 'p_evidence', 'p_relevant']
    """
    return {*requires, "p_evidence", MARKED} if "p_relevant" in requires else {*requires}
