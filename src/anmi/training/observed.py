"""What a training step encoded, for samplers that go by it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Observed:
    """Embeddings of one step, before its weights changed.

    Attributes
    ----------
    rows
        Numbers of the B training rows, int64 [B].
    queries
        Of their queries, normalised, float32 [B, d].
    document_ids
        Of the U different documents.
    documents
        Of these, normalised, float32 [U, d].
    """

    rows: NDArray[np.int64]
    queries: NDArray[np.float32]
    document_ids: list[str]
    documents: NDArray[np.float32]
