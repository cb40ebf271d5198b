"""Documents beside queries, and what several kinds of evidence take from both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING, Candidates
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


Value = TypeVar("Value")


@dataclass(frozen=True)
class Beside:
    """Documents beside one known positive of each query.

    Attributes
    ----------
    rows
        Queries that have such a positive, [R].
    own
        That positive, int32 [R].
    others
        The documents beside it, int32 [R, M], padded with -1.
    cosine
        Sum of the products of their unit tf-idf vectors, float32 [R, M].
    overlap
        Σ idf of the terms that both hold, float32 [R, M].
    """

    rows: NDArray[np.int64]
    own: NDArray[np.int32]
    others: NDArray[np.int32]
    cosine: NDArray[np.float32]
    overlap: NDArray[np.float32]


@dataclass(frozen=True)
class Pairs:
    """Documents beside the queries of a block.

    Attributes
    ----------
    block
        Q queries with their known positives.
    documents
        The block's candidates, or its positives: int32 [Q, M], padded with -1.
    material
        What is measured on.
    """

    block: Candidates
    documents: NDArray[np.int32]
    material: Material
    _computed: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def queries(self) -> sparse.csr_matrix:
        """Terms of the queries weighted by idf, sparse [Q, V]."""
        return self._once("queries", self._queries)

    @property
    def asked(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Σ idf of the query's terms that a document holds, and that by BM25's saturated frequency; [Q, M] each."""
        return self._once("asked", self._asked)

    @property
    def beside(self) -> list[Beside]:
        """The documents beside the first positive of each query, beside the second, and so on."""
        return self._once("beside", lambda: list(self._beside()))

    def _queries(self) -> sparse.csr_matrix:
        texts = self.material.query_texts
        return self.material.terms.queries([texts[query] for query in self.block.query_ids.tolist()])

    def _asked(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        terms, queries = self.material.terms, self.queries
        saturated, held = terms.products(self.documents, queries, terms.saturated, queries)
        return held, saturated

    def _once(self, name: str, compute: Callable[[], Value]) -> Value:
        # A cached_property of Python 3.11 has one lock for all instances, on which threads with others would wait.
        if name not in self._computed:
            self._computed[name] = compute()
        found: Value = self._computed[name]
        return found

    def nearest(self, compare: Callable[[Beside], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Largest of the values [R, M] over the known positives, [Q, M]; a positive is not compared with itself."""
        best = np.full(self.documents.shape, np.nan, np.float32)
        for beside in self.beside:
            values = np.where(beside.others == beside.own[:, None], np.nan, compare(beside)).astype(np.float32)
            best[beside.rows] = np.fmax(best[beside.rows], values)
        return best

    def _beside(self) -> Iterator[Beside]:
        terms, positives = self.material.terms, self.block.positives
        for place in range(min(self.material.references, positives.shape[1])):
            rows = np.nonzero(positives[:, place] != PADDING)[0]
            own, others = positives[rows, place], self.documents[rows]
            cosine, overlap = terms.products(others, terms.unit[own], terms.unit, terms.weighted(own))
            yield Beside(rows, own, others, cosine, overlap)
