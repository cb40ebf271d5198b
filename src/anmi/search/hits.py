"""What a search returns: documents, and what each part of the search said of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Hit:
    """A document that was found.

    Attributes
    ----------
    rank
        From 1.
    document_id, title, text
        Of the document.
    score
        By which it was ranked; compares documents of one query only.
    bm25_rank, bm25_score, dense_rank, dense_score, sparse_rank, sparse_score
        What each part says; None where the search has no such part, or the document is not among the best that the part
        was asked for.
    """

    rank: int
    document_id: str
    title: str
    text: str
    score: float
    bm25_rank: int | None = None
    bm25_score: float | None = None
    dense_rank: int | None = None
    dense_score: float | None = None
    sparse_rank: int | None = None
    sparse_score: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return everything by name, for JSON."""
        return asdict(self)
