"""These nodes find the queries whose positive BM25 ranks high enough."""

from __future__ import annotations

from typing import Final

import pandas as pd

from anmi.candidates import Candidates, CandidateShards, Columns, ColumnShards
from anmi.pipelines.params import BM25Params, ConsistencyParams
from anmi.ragged import Bools, Float32s
from anmi.selection.recipe import RecipeBook

_VERDICT: Final = ("consistent", "positive_rank")


def check_consistency(
    candidates: CandidateShards,
    recipe: str,
    recipes: RecipeBook,
    params: ConsistencyParams,
    bm25: BM25Params,
) -> ColumnShards:
    """Add the BM25 rank of each query's best positive, and which positives are within the top K.

    What becomes of an inconsistent query is the recipe's choice. Without BM25 there is nothing to
    add.
    """
    chosen = recipes.get(recipe)
    if "bm25" not in chosen.sources:
        return ColumnShards()
    params = chosen.settings("consistency", params)
    engine = chosen.settings("bm25", bm25).engine

    def consistent(score: Float32s, rank: Float32s) -> Bools:
        # A document that shares no term is tied with all others that share none, so its rank may
        # look good; by rank_bm25 it has a place of its own.
        return (rank <= params.top) & ((score > 0) | (engine == "rank_bm25"))

    def verdict(block: Candidates) -> Candidates:
        best_rank = block.query_columns["best_bm25_rank"]
        best = consistent(block.query_columns["best_bm25"], best_rank)
        columns = block.positive_columns
        of_positive = consistent(columns["bm25"], columns["bm25_rank"])
        return block.with_columns(
            positive_columns={"consistent": of_positive},
            query_columns={"consistent": best, "positive_rank": best_rank},
        )

    narrow = candidates.only("best_bm25", "best_bm25_rank", "bm25", "bm25_rank")
    return ColumnShards(
        lambda: (Columns.added(block, verdict(block)).to_bytes(block) for block in narrow)
    )


def summarise_consistency(
    candidates: CandidateShards, consistency: ColumnShards
) -> dict[str, float]:
    """Return how many training queries pass, and where the positives of the others stand.

    Without BM25 it is empty.
    """
    read = candidates.joined(consistency).only(*_VERDICT)
    blocks = [block for block in read if block.query_columns.keys() >= {*_VERDICT}]
    if not blocks:
        return {}
    table = pd.concat(
        pd.DataFrame(block.query_columns, index=block.query_ids)[[*_VERDICT]] for block in blocks
    )
    table = table[~table.index.duplicated()]
    failed = table[table.consistent < 0.5]
    return {
        "queries": len(table),
        "consistent": len(table) - len(failed),
        "pass_rate": float((table.consistent > 0.5).mean()) if len(table) else 0.0,
        "median_positive_rank": float(table.positive_rank.median()) if len(table) else 0.0,
        "median_positive_rank_of_failed": (
            float(failed.positive_rank.median()) if len(failed) else 0.0
        ),
    }
