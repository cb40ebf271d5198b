"""One line per training row or per negative: the formats of sentence-transformers' contrastive losses.

Column names and order follow ``sentence_transformers.util.mine_hard_negatives``; a loss reads columns by their order,
and every one of them is a text apart from ``label`` and ``scores``, so nothing else may stand in these tables.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.selection.export.flat import FlatRows, table_of
from anmi.selection.export.options import Collection, ExportOptions


def triplet(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query, positive, negative``, one line per negative."""
    _note_empty(flat)
    return table_of({
        "query": flat.rows["query"].to_numpy()[flat.row],
        "positive": flat.rows.positive.to_numpy()[flat.row],
        "negative": flat.texts,
    })  # fmt: skip


def n_tuple(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query, positive, negative_1, …, negative_n``, one line per row that has n negatives."""
    return _tuples(flat, options)[0]


def n_tuple_scores(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return an n-tuple with ``scores``: the positive's, then those of the negatives.

    Scores and not their differences: MarginMSELoss takes both (Hofstätter et al. 2020, arXiv 2010.02666),
    DistillKLDivLoss only scores.
    """
    table, kept, slots = _tuples(flat, options)
    positive = flat.rows.score.to_numpy(np.float64)[kept]
    negative = flat.scores[slots].reshape(len(kept), table.shape[1] - 2)
    table["scores"] = list(np.column_stack([positive, negative]).astype(np.float32))
    return table


def _tuples(flat: FlatRows, options: ExportOptions) -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.bool_]]:
    """Return the table, the rows in it, and which negatives are in it, bool [P]."""
    _note_empty(flat)
    counts = flat.counts
    if flat.score is not None:
        unknown = np.isnan(flat.rows.score.to_numpy(np.float64)) & (counts > 0)
        flat.leave_out(f"rows whose positive has no {flat.score}", int(unknown.sum()))
        counts = np.where(unknown, 0, counts)
    wanted = max(options.negatives or int(counts.max(initial=0)), 1)
    full = counts >= wanted
    short = counts[(counts > 0) & ~full]
    if len(short):
        # Tuples must be of one length; what would keep all rows is the least that any of them has.
        flat.leave_out(
            f"rows with fewer than {wanted} negatives (--negatives {short.min()} keeps every row that has any)",
            len(short),
        )
    kept, slots = np.flatnonzero(full), full[flat.row]
    rows = flat.rows.iloc[kept]
    texts = flat.texts[slots].reshape(len(kept), wanted)
    named = {f"negative_{place + 1}": texts[:, place] for place in range(wanted)}
    columns = {"query": rows["query"].to_numpy(), "positive": rows.positive.to_numpy(), **named}
    return table_of(columns), kept, slots


def _note_empty(flat: FlatRows) -> None:
    flat.leave_out("rows without negatives", int((flat.counts == 0).sum()))
