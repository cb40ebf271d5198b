"""Nodes of the consistency filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from anmi.candidates import CandidateShards
from anmi.corpus.difference import EVERYTHING, still_there
from anmi.pipelines.consistency.params import ConsistencyParams


def check_consistency(
    candidates: CandidateShards,
    params: ConsistencyParams,
    changes: Mapping[str, Any] = EVERYTHING,
    earlier_consistency: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return for every query the BM25 rank of its best positive and whether that is within the top K.

    What becomes of an inconsistent query is the recipe's choice. Of queries that are not mined again it is that of the
    mining before.
    """
    tables = []
    if changes["queries"] is not None:
        earlier = still_there(earlier_consistency, "consistency")
        tables.append(earlier[~earlier.query_id.isin({*changes["queries"], *changes["removed"]})])
    for block in candidates:
        rank = np.nanmin(block.positive_columns["bm25_rank"], axis=1)
        # A document that shares no term is tied with all others that share none, so its rank may look good.
        matched = np.nanmax(block.positive_columns["bm25"], axis=1) > 0
        tables.append(
            pd.DataFrame({
                "query_id": block.query_ids,
                "positive_rank": rank.astype(np.int64),
                "consistent": matched & (rank <= params.top),
            })
        )  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def summarise_consistency(consistency: pd.DataFrame, queries: pd.DataFrame) -> dict[str, float]:
    """Return how many training queries pass and where the positives of the others stand."""
    from anmi.corpus.mined import mined_dev

    consistency = consistency[~consistency.query_id.isin(mined_dev(queries))]
    failed = consistency[~consistency.consistent]
    return {
        "queries": len(consistency),
        "consistent": int(consistency.consistent.sum()),
        "pass_rate": float(consistency.consistent.mean()),
        "median_positive_rank": float(consistency.positive_rank.median()),
        "median_positive_rank_of_failed": float(failed.positive_rank.median()) if len(failed) else 0.0,
    }
