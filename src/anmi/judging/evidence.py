"""Evidence of relevance: many small, differently biased measurements of (query, candidate) pairs.

A kind of evidence is one function from :class:`Pairs` (documents beside the queries of a block) to values [Q, M], and
one line in :data:`KINDS`. ``gather`` adds the values as columns, for the candidates and for the known positives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING, Candidates
from anmi.errors import AnmiError, nearest
from anmi.retrieval.exact import similarities
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
    def term_matches(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Σ idf of the query's terms that a document holds, and that by BM25's saturated frequency; [Q, M] each."""
        return self._once("term_matches", self._term_matches)

    @property
    def beside(self) -> list[Beside]:
        """The documents beside the first positive of each query, beside the second, and so on."""
        return self._once("beside", lambda: list(self._beside()))

    def _queries(self) -> sparse.csr_matrix:
        texts = self.material.query_texts
        return self.material.terms.queries([texts[query] for query in self.block.query_ids.tolist()])

    def _term_matches(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
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


def coverage(pairs: Pairs) -> NDArray[np.float32]:
    """Σ idf of the query's terms that the document holds / Σ idf of the query's terms; in [0, 1].

    Returns
    -------
    numpy.ndarray
        float32 [Q, M]; NaN in padding and for a query without a known term.
    """
    return share(pairs.term_matches[0], _whole(pairs), pairs.documents)


def match(pairs: Pairs) -> NDArray[np.float32]:
    """Coverage with each term counted by BM25's saturated frequency; in [0, 1), float32 [Q, M]."""
    return share(pairs.term_matches[1], _whole(pairs), pairs.documents)


def _whole(pairs: Pairs) -> NDArray[np.float32]:
    """Σ idf of each query's terms, [Q]."""
    whole: NDArray[np.float32] = pairs.queries @ np.ones(pairs.queries.shape[1], np.float32)
    return whole


def share(part: NDArray[np.float32], whole: NDArray[np.float32], documents: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return part [Q, M] / whole [Q], [Q, 1] or [Q, M]; NaN in padding and where there is no whole."""
    whole = np.asarray(whole, np.float32)
    whole = whole if whole.ndim == 2 else whole[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.where((documents == PADDING) | (whole <= 0), np.nan, part / whole)
    return result.astype(np.float32)


def likeness(pairs: Pairs) -> NDArray[np.float32]:
    """Cosine with the nearest known positive, float32 [Q, M] in [-1, 1].

    Raises
    ------
    AnmiError
        Without vectors.
    """
    vectors = pairs.material.vectors
    if vectors is None:
        raise AnmiError("the evidence likeness needs document vectors; leave it out or give an encoder")
    return pairs.nearest(lambda beside: similarities(vectors[beside.own], vectors, beside.others))


def likeness_terms(pairs: Pairs) -> NDArray[np.float32]:
    """Tf-idf cosine with the nearest known positive, float32 [Q, M] in [0, 1]."""
    some = (pairs.material.terms.lengths > 0).astype(np.float32)

    def compare(beside: Beside) -> NDArray[np.float32]:
        with_terms = some[beside.own][:, None] * some[np.maximum(beside.others, 0)]
        return share(np.minimum(beside.cosine, 1), with_terms, beside.others)

    return pairs.nearest(compare)


def containment(pairs: Pairs) -> NDArray[np.float32]:
    """Share of a known positive's terms, by idf, that the document holds; float32 [Q, M] in [0, 1].

    A document that holds all of them says at least what the positive says.
    """
    mass = pairs.material.terms.mass
    return pairs.nearest(lambda beside: share(beside.overlap, mass[beside.own], beside.others))


def contained(pairs: Pairs) -> NDArray[np.float32]:
    """Share of the document's terms, by idf, that a known positive holds; float32 [Q, M] in [0, 1]."""
    mass = pairs.material.terms.mass
    return pairs.nearest(lambda beside: share(beside.overlap, mass[np.maximum(beside.others, 0)], beside.others))


def shared_facts(pairs: Pairs) -> NDArray[np.float32]:
    """Share of a known positive's facts that the document states too, float32 [Q, M]; the largest over positives.

    NaN where the positive states none, and in every slot of a collection without facts.
    """
    documents, facts, positives = pairs.documents, pairs.material.facts, pairs.block.positives
    best = np.full(documents.shape, np.nan, np.float32)
    if facts is None:
        return best
    for place in range(min(pairs.material.references, positives.shape[1])):
        own = positives[:, place]
        held = facts[np.maximum(own, 0)]
        rows, slots = np.nonzero(documents != PADDING)
        both = np.asarray(held[rows].multiply(facts[documents[rows, slots]]).sum(axis=1)).ravel()
        count = np.zeros(documents.shape, np.float32)
        count[rows, slots] = both
        values = share(count, np.asarray(held.sum(axis=1)), documents)
        values[(own == PADDING)[:, None] | (documents == own[:, None])] = np.nan
        best = np.fmax(best, values)
    return best


def facts_of(corpus: pd.DataFrame, graph: pd.DataFrame) -> sparse.csr_matrix | None:
    """Return which document states which fact, float32 [N, F]; None where there are none.

    A fact is a (relation, tail) of ``graph`` whose head is a document, or a triple in ``metadata.triples``.

    Parameters
    ----------
    corpus
        ``document_id, metadata``.
    graph
        ``head, relation, tail``.
    """
    row_of = {document: row for row, document in enumerate(corpus.document_id)}
    number: dict[str, int] = {}
    pairs = {
        (row_of[head], number.setdefault(f"{relation}\x1f{tail}", len(number)))
        for head, relation, tail in zip(
            graph.get("head", []), graph.get("relation", []), graph.get("tail", []), strict=True
        )
        if head in row_of
    }
    for row, text in enumerate(corpus.metadata):
        if '"triples"' in text:
            triples = json.loads(text).get("triples")
            for triple in triples if isinstance(triples, list) else []:
                pairs.add((row, number.setdefault(json.dumps(triple), len(number))))
    if not pairs:
        return None
    rows, columns = (np.array(part, np.int64) for part in zip(*sorted(pairs), strict=True))
    return sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (len(corpus), len(number)))


Measure = Callable[[Pairs], NDArray[np.float32]]


@dataclass(frozen=True)
class Kind:
    """One kind of evidence.

    Attributes
    ----------
    measure
        Values of documents beside the queries of a block: float32 [Q, M], NaN where there is nothing to say.
    meaning
        One sentence for people who read an explanation.
    needs
        ``positives`` when the value speaks of a known positive, which has none of itself; ``facts`` when the
        collection must have a graph.
    """

    measure: Measure
    meaning: str
    needs: frozenset[str] = frozenset()


_POSITIVES: Final = frozenset({"positives"})

KINDS: Final[dict[str, Kind]] = {
    "coverage": Kind(coverage, "share of the query's terms that the document holds, by idf"),
    "match": Kind(match, "BM25 as a share of what a perfect document would score"),
    "likeness": Kind(likeness, "cosine of the document and the nearest known positive", _POSITIVES),
    "likeness_terms": Kind(likeness_terms, "the same by tf-idf terms", _POSITIVES),
    "containment": Kind(containment, "share of a known positive's terms that the document holds", _POSITIVES),
    "contained": Kind(contained, "share of the document's terms that a known positive holds", _POSITIVES),
    "facts": Kind(shared_facts, "share of a known positive's facts that the document states", _POSITIVES | {"facts"}),
}


def gather(block: Candidates, material: Material, kinds: Iterable[str] | None = None) -> Candidates:
    """Add the columns of the given kinds to a block.

    Parameters
    ----------
    block
        Q queries with M candidates; ``dense`` and ``bm25`` come from retrieval.
    material
        What the kinds are measured on.
    kinds
        Names of :data:`KINDS`; all that the material allows when None.

    Returns
    -------
    Candidates
        With one column a kind for candidates [Q, M] and for positives [Q, P].

    Raises
    ------
    AnmiError
        Unknown kind, or ``likeness`` without vectors.
    """
    names = [n for n, kind in KINDS.items() if "facts" not in kind.needs or material.facts is not None]
    if kinds is not None:
        names = list(kinds)
        unknown = [name for name in names if name not in KINDS]
        if unknown:
            raise AnmiError(f'unknown kind of evidence "{unknown[0]}"; {nearest(unknown[0], KINDS)}')
    candidates, positives = (Pairs(block, documents, material) for documents in (block.documents, block.positives))
    columns, own = ({name: KINDS[name].measure(pairs) for name in names} for pairs in (candidates, positives))
    return block.with_columns(columns, own)
