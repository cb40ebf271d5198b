"""From training rows to the tensors of one step: which documents a batch holds and what each weighs for each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from anmi.errors import AnmiError

InBatch = Literal["none", "positives", "all"]
COLUMNS: Final = (
    "query_id",
    "query",
    "positive_id",
    "positive",
    "negative_ids",
    "negatives",
    "weights",
    "query_weight",
    "positive_ids",
)


@dataclass(frozen=True)
class Row:
    """One (query, positive) pair with its mined negatives, best first."""

    query_id: str
    query: str
    positive_id: str
    positive: str
    negative_ids: tuple[str, ...]
    negatives: tuple[str, ...]
    weights: tuple[float, ...]
    query_weight: float
    positive_ids: frozenset[str]
    excluded_ids: frozenset[str] = frozenset()


def read_rows(table: pd.DataFrame, negatives: int | None = None) -> list[Row]:
    """Check a table of training rows and return its rows.

    Parameters
    ----------
    table
        Columns :data:`COLUMNS`; the three lists about negatives of one row have one length.
    negatives
        Keep at most the first so many mined negatives of a row.

    Raises
    ------
    AnmiError
        A column is missing, there are no rows, or a row is inconsistent; the message names the query.
    """
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise AnmiError(f"The training rows lack the columns {', '.join(missing)}; run the selection stage again.")
    if table.empty:
        raise AnmiError("There are no training rows; check what the recipe rejected, and loosen its filters.")
    rows = []
    # Rows that somebody made by hand need not say what must stay out of their batch.
    excluded = table["excluded_ids"] if "excluded_ids" in table.columns else [()] * len(table)
    for *values, excluded_ids in zip(*(table[name] for name in COLUMNS), excluded, strict=True):
        query_id, query, positive_id, positive, ids, texts, weights, query_weight, positive_ids = values
        known = frozenset(positive_ids) | {positive_id}
        row = Row(
            str(query_id),
            str(query),
            str(positive_id),
            str(positive),
            tuple(ids)[:negatives],
            tuple(texts)[:negatives],
            tuple(float(weight) for weight in weights)[:negatives],
            float(query_weight),
            known,
            frozenset(excluded_ids),
        )
        _check(row, len(ids), len(texts), len(weights))
        rows.append(row)
    return rows


def _check(row: Row, ids: int, texts: int, weights: int) -> None:
    if not ids == texts == weights:
        raise AnmiError(
            f'Training row of query "{row.query_id}" has {ids} negative ids, {texts} texts and {weights} weights; '
            "they must be equally many: run the selection stage again."
        )
    wrong = [weight for weight in (*row.weights, row.query_weight) if not (math.isfinite(weight) and weight >= 0)]
    if wrong:
        raise AnmiError(
            f'Training row of query "{row.query_id}" has the weight {wrong[0]}; '
            "weights must be finite and not negative: check the recipe's weighters."
        )


@dataclass(frozen=True)
class Assembly:
    """The documents of a batch and what they weigh.

    Attributes
    ----------
    texts
        U different documents.
    positive
        Column of every row's positive, int64 [B].
    weights
        Weight of every document as a negative of every row, float32 [B, U]; 0 where it is none.
    """

    texts: list[str]
    positive: NDArray[np.int64]
    weights: NDArray[np.float32]


def assemble(rows: Sequence[Row], in_batch: InBatch) -> Assembly:
    """Lay out a batch: one column per different document text, one weight per row and column.

    Rules, a later one winning over an earlier one:

    1. ``in_batch``: other rows' positives (``positives``), or their positives and mined negatives (``all``), have
       weight 1.
    2. A row's own mined negative has its own weight, also 0: a candidate the recipe found doubtful for this query must
       not come back through another row. Listed twice, the smaller weight holds.
    3. No document known to be relevant to the query is a negative: the row's positive, any of its ``positive_ids``,
       the positives of other rows of the same query, and any document with the text of one of these. Nor is one of
       the row's ``excluded_ids``: kin of its positive, or judged likely or uncertain to be relevant when it was mined.
    """
    column: dict[str, int] = {}
    positive = np.array([column.setdefault(row.positive, len(column)) for row in rows], dtype=np.int64)
    positives = len(column)
    for row in rows:
        for text, weight in zip(row.negatives, row.weights, strict=True):
            if weight > 0:
                column.setdefault(text, len(column))

    weights = np.zeros((len(rows), len(column)), np.float32)
    weights[:, : {"none": 0, "positives": positives, "all": len(column)}[in_batch]] = 1.0
    for i, row in enumerate(rows):
        own: dict[int, float] = {}
        for text, weight in zip(row.negatives, row.weights, strict=True):
            if text in column:
                own[column[text]] = min(weight, own.get(column[text], weight))
        weights[i, list(own.keys())] = list(own.values())
    _mask_positives(rows, column, weights)
    return Assembly(list(column), positive, weights)


def _mask_positives(rows: Sequence[Row], column: dict[str, int], weights: NDArray[np.float32]) -> None:
    columns_of: dict[str, set[int]] = {}
    known: dict[str, set[str]] = {}
    for row in rows:
        columns_of.setdefault(row.positive_id, set()).add(column[row.positive])
        for document_id, text in zip(row.negative_ids, row.negatives, strict=True):
            if text in column:
                columns_of.setdefault(document_id, set()).add(column[text])
        known.setdefault(row.query_id, set()).update(row.positive_ids)
    for i, row in enumerate(rows):
        ids = known[row.query_id] | row.excluded_ids
        masked = {c for document_id in ids & columns_of.keys() for c in columns_of[document_id]}
        weights[i, list(masked)] = 0.0


class Collator:
    """Turns row numbers into a batch: assembles it and tokenises queries and documents.

    Documents are tokenised in groups of similar length, so that a long one does not pad all the others.

    Parameters
    ----------
    rows
        All training rows.
    tokenise
        Texts and a role (``query`` or ``document``) to the encoder's input features.
    in_batch
        See :func:`assemble`.
    texts_per_pass
        Most texts in a group.
    """

    # Read by the trainer when it builds its batch sampler; there are no labels here.
    valid_label_columns: tuple[str, ...] = ()

    def __init__(
        self,
        rows: Sequence[Row],
        tokenise: Callable[[list[str], str], dict[str, Any]],
        in_batch: InBatch,
        texts_per_pass: int,
    ) -> None:
        self._rows = rows
        self._tokenise = tokenise
        self._in_batch = in_batch
        self._texts_per_pass = texts_per_pass

    def __call__(self, features: Sequence[dict[str, int]]) -> dict[str, Any]:
        """Return the batch of the given row numbers (``{"row": number}`` each)."""
        rows = [self._rows[feature["row"]] for feature in features]
        assembly = assemble(rows, self._in_batch)
        return {
            "query_ids": [row.query_id for row in rows],
            "queries": self._groups([row.query for row in rows], "query"),
            "documents": self._groups(assembly.texts, "document"),
            "positive": torch.from_numpy(assembly.positive),
            "weights": torch.from_numpy(assembly.weights),
            "query_weight": torch.tensor([row.query_weight for row in rows], dtype=torch.float32),
        }

    def _groups(self, texts: list[str], role: str) -> dict[str, Any]:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        starts = range(0, len(texts), self._texts_per_pass)
        groups = [[texts[i] for i in order[start : start + self._texts_per_pass]] for start in starts]
        return {
            "groups": [self._tokenise(group, role) for group in groups],
            "place": torch.from_numpy(np.argsort(np.array(order, dtype=np.int64), kind="stable")),
        }
