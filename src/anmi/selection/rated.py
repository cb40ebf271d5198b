"""The candidates that recipes choose from: what retrieval found, with all that later stages added."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from anmi.candidates import Candidates, CandidateShards, ColumnShards

# The candidates, and the columns that stages added to them. Here, so that who reads them imports no training.
RATED: Final = ("candidates", "consistency", "evidence", "judgments", "ratings")


def rated(
    candidates: CandidateShards,
    consistency: ColumnShards,
    evidence: ColumnShards,
    judgments: ColumnShards,
    ratings: ColumnShards,
) -> CandidateShards:
    """Return the candidates with the columns of all stages, one row per (query, positive).

    Parameters
    ----------
    candidates
        Of retrieval.
    consistency, evidence, judgments
        Columns that were added to them.
    ratings
        Columns that were added to their rows per (query, positive).
    """
    return candidates.joined(consistency, evidence, judgments).by_positive().joined(ratings)


def believed(block: Candidates) -> Candidates:
    """Return the block with ``p_relevant``: where no cross-encoder was asked, ``p_evidence`` alone says it."""
    if "p_relevant" in block.columns or "p_evidence" not in block.columns:
        return block
    return block.with_columns(*({"p_relevant": of["p_evidence"]} for of in (block.columns, block.positive_columns)))


def needed(requires: Collection[str]) -> set[str]:
    """Return the stored columns behind those that are read, for :meth:`anmi.candidates.CandidateShards.only`.

    Examples
    --------
    >>> sorted(needed({"dense", "p_relevant"}))
    ['dense', 'p_evidence', 'p_relevant']
    """
    return {*requires, "p_evidence"} if "p_relevant" in requires else {*requires}
