"""What a loss may know about a batch beyond its similarities."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Facts:
    """About the B queries and N documents of a batch; a loss says in ``columns`` which judgments it cannot do without.

    Attributes
    ----------
    query, document
        Normalised embeddings, [B, d] and [N, d], or None where a loss is used on similarities alone.
    positive_column
        Column of each row's own positive among the N documents, int64 [B], or None.
    negative_columns
        Columns of each row's own mined negatives, best first, int64 [B, n], padded with -1, or None.
    hardness
        Hardness of the queries in [0, 1], [B], or None.
    positive_judged
        By column name, what judges said of each row's own positive, [B]; NaN where nobody did.
    judged
        By column name, what they said of every document for every row, [B, N]; NaN where nobody did.
    step
        Number of the training step, from 0.
    about
        Number of the entity that each row's positive is about, int64 [B], -1 for none; or None.
    """

    query: Tensor | None = None
    document: Tensor | None = None
    positive_column: Tensor | None = None
    negative_columns: Tensor | None = None
    hardness: Tensor | None = None
    positive_judged: dict[str, Tensor] = field(default_factory=dict)
    judged: dict[str, Tensor] = field(default_factory=dict)
    step: int = 0
    about: Tensor | None = None


NOTHING_KNOWN = Facts()
