"""What evidence is measured on: terms, vectors and facts of the documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from anmi.retrieval.terms import Terms


@dataclass(frozen=True)
class Material:
    """What the kinds of evidence may look at.

    Attributes
    ----------
    terms
        Of the documents.
    query_texts
        By query id.
    vectors
        Unit vectors of the documents, float32 [N, D]; None where no encoder is used.
    facts
        Which document states which fact, sparse [N, F]; None where the collection has no graph.
    references
        Known positives a candidate is compared with, at most; the first ones of each query.
    """

    terms: Terms
    query_texts: dict[str, str]
    vectors: NDArray[np.float32] | None = None
    facts: sparse.csr_matrix | None = None
    references: int = 8
