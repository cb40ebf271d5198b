"""Documents that are searched in ranges: each finds its best by statistics of all, and what they find is merged.

Scores are those of one index over all documents, bit for bit: weights of terms are computed before an index is cut, a
document's postings are added in the order of the query's terms wherever they lie, and a cosine looks at nothing but its
two vectors. So neither does the number of ranges change a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anmi.engine.parts import Parts
from anmi.errors import AnmiError
from anmi.retrieval import exact
from anmi.retrieval.best import best_of
from anmi.retrieval.bm25 import BM25Index, above
from anmi.retrieval.dense import DenseIndex


class Search(NamedTuple):
    """The best documents of Q queries are asked for.

    Attributes
    ----------
    texts
        Of the queries.
    vectors
        Unit vectors, float32 [Q, D].
    given
        Documents that BM25 scores in any case, int32 [Q, G], padded with -1.
    bm25, dense
        How many of each list, at most all documents.
    """

    texts: list[str]
    vectors: NDArray[np.float32]
    given: NDArray[np.int32]
    bm25: int
    dense: int


class Found(NamedTuple):
    """What answers a search; lists are best first, equal scores in the order of the corpus.

    Attributes
    ----------
    lexical, lexical_scores
        By BM25, int32 and float32 [Q, bm25]; -1 and 0 where no more documents share a term with the query.
    nearest, nearest_scores
        By the encoder, int32 and float32 [Q, dense].
    nearest_lexical, given
        Scores by BM25 of the nearest and of the given, float32 [Q, dense] and [Q, G]; NaN in padding.
    """

    lexical: NDArray[np.int32]
    lexical_scores: NDArray[np.float32]
    nearest: NDArray[np.int32]
    nearest_scores: NDArray[np.float32]
    nearest_lexical: NDArray[np.float32]
    given: NDArray[np.float32]


class Look(NamedTuple):
    """What is asked once candidates are chosen.

    Attributes
    ----------
    vectors, documents
        Cosines of Q queries, float32 [Q, D], with documents, int32 [Q, M], padded with -1.
    texts, scores
        Of R queries: how many documents BM25 scores higher than these, float32 [R, P], padded with NaN.
    """

    vectors: NDArray[np.float32]
    documents: NDArray[np.int32]
    texts: list[str]
    scores: NDArray[np.float32]


class Seen(NamedTuple):
    """What answers a look: cosines, float32 [Q, M], NaN in padding, and numbers of documents, int64 [R, P]."""

    cosines: NDArray[np.float32]
    above: NDArray[np.int64]


@dataclass(frozen=True)
class DocumentRange:
    """The n documents from a number on, by what searches them; it answers with numbers of the whole corpus.

    Attributes
    ----------
    first, count
        Number of the first of them, and n.
    bm25
        Their postings; None where BM25 is not asked.
    vectors
        Unit vectors, float32 [n, D]; None where no encoder is asked.
    approximate
        What searches the vectors in the place of matrix products, of one range over all documents.
    """

    first: int
    count: int
    bm25: BM25Index | None
    vectors: NDArray[np.float32] | None
    approximate: DenseIndex | None = None

    def __call__(self, asked: Search | Look) -> Found | Seen:
        """Answer a request."""
        return self._find(asked) if isinstance(asked, Search) else self._look(asked)

    def _find(self, asked: Search) -> Found:
        nearest, scores = self._nearest(asked)
        count, places = len(asked.texts), np.concatenate([self._inside(asked.given), nearest], axis=1)
        if self.bm25 is None:
            lexical, lexical_scores = np.empty((count, 0), np.int32), np.empty((count, 0), np.float32)
            values = np.full(places.shape, np.nan, np.float32)
        else:
            lexical, lexical_scores, values = self.bm25.search_and_look(asked.texts, asked.bm25, places)
        given = asked.given.shape[1]
        return Found(
            self._outside(lexical), lexical_scores, self._outside(nearest), scores, values[:, given:], values[:, :given]
        )

    def _nearest(self, asked: Search) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        if self.vectors is None or not asked.dense:
            nothing = np.zeros((len(asked.texts), 0), np.float32)
            return nothing.astype(np.int32), nothing
        if self.approximate is None:
            return exact.nearest(asked.vectors, self.vectors, min(asked.dense, self.count))
        nearest, _ = self.approximate.search(asked.vectors, asked.dense)
        # What an index of compressed vectors takes for their scores is none of the candidates' scores.
        scores = np.nan_to_num(exact.similarities(asked.vectors, self.vectors, nearest), nan=-np.inf)
        order = np.lexsort((nearest, -scores), axis=1)
        return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def _look(self, asked: Look) -> Seen:
        higher = np.zeros(asked.scores.shape, np.int64)
        if self.bm25 is not None and asked.texts:
            for some, full in self.bm25.scored(asked.texts, 0):
                higher[some] = above(full, asked.scores[some])
        cosines = np.full(asked.documents.shape, np.nan, np.float32)
        if self.vectors is not None:
            places = self._inside(asked.documents)
            if np.array_equal(places, asked.documents):
                return Seen(exact.similarities(asked.vectors, self.vectors, places), higher)
            # Padding is looked at like any other document, so those of this range are moved to the front.
            order = np.argsort(places < 0, axis=1, kind="stable")[:, : int((places >= 0).sum(axis=1).max(initial=0))]
            found = exact.similarities(asked.vectors, self.vectors, np.take_along_axis(places, order, axis=1))
            np.put_along_axis(cosines, order, found, axis=1)
        return Seen(cosines, higher)

    def _inside(self, documents: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the places in this range of documents; -1 of those that are not in it."""
        places = documents - np.int32(self.first)
        return np.where((documents >= 0) & (places >= 0) & (places < self.count), places, np.int32(-1))

    def _outside(self, places: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.where(places >= 0, places + np.int32(self.first), places)


@dataclass(frozen=True)
class Documents:
    """All N documents, in ranges that are asked side by side.

    Attributes
    ----------
    ranges
        A :class:`DocumentRange` each, in the order of the corpus.
    bm25, dense
        Whether they are searched by BM25 and by an encoder.

    Examples
    --------
    >>> index = BM25Index.build(["a red fox", "a blue whale", "the fox den"], language="en", kind="whitespace")
    >>> nothing = np.zeros((1, 0), np.int32)
    >>> for ranges in (1, 2):
    ...     found = Documents.cut(3, index, None, None, ranges).find(
    ...         Search(["fox"], nothing.astype(np.float32), nothing, 3, 0)
    ...     )
    ...     print(found.lexical.tolist())
    [[0, 2, -1]]
    [[0, 2, -1]]
    """

    ranges: Parts
    bm25: bool
    dense: bool

    @staticmethod
    def cut(
        count: int,
        bm25: BM25Index | None,
        dense: DenseIndex | None,
        embeddings: NDArray[np.float32] | None,
        ranges: int = 1,
    ) -> Documents:
        """Cut N documents into ranges of nearly the same number.

        Parameters
        ----------
        count
            N.
        bm25, dense
            Indexes of all documents; None for a source that is not asked.
        embeddings
            Unit vectors, float32 [N, D], where ``dense`` is asked.
        ranges
            At least 1; with more than documents, each document is one.

        Raises
        ------
        AnmiError
            See :func:`check_cut`.
        """
        check_cut(
            ranges, "flat" if dense is None else dense.settings["kind"],
            "bm25s" if bm25 is None else bm25.settings["engine"],
        )  # fmt: skip
        if dense is None:
            embeddings = None
        approximate = None if dense is None or dense.settings["kind"] == "flat" else dense
        ranges = max(min(ranges, count), 1)
        if ranges == 1:
            return Documents(
                Parts((DocumentRange(0, count, bm25, embeddings, approximate),)), bm25 is not None, dense is not None
            )
        borders = [count * number // ranges for number in range(ranges + 1)]
        held = tuple(
            DocumentRange(
                first, end - first, None if bm25 is None else bm25.part(first, end),
                None if embeddings is None else np.asarray(embeddings[first:end]),
            )
            for first, end in pairwise(borders)
        )  # fmt: skip
        return Documents(Parts(held), bm25 is not None, dense is not None)

    def find(self, asked: Search) -> Found:
        """Return the best of all documents."""
        found: list[Found] = self.ranges(asked)
        if len(found) == 1:
            return found[0]
        whole = Found(*(np.concatenate(each, axis=1) for each in zip(*found, strict=True)))
        order = np.lexsort((whole.nearest, -whole.nearest_scores), axis=1)[:, : asked.dense]
        lexical, lexical_scores = best_of(whole.lexical, whole.lexical_scores, asked.bm25)
        given: NDArray[np.float32] = np.fmax.reduce([each.given for each in found])
        return Found(
            lexical, lexical_scores,
            np.take_along_axis(whole.nearest, order, axis=1),
            np.take_along_axis(whole.nearest_scores, order, axis=1),
            np.take_along_axis(whole.nearest_lexical, order, axis=1),
            given,
        )  # fmt: skip

    def look(self, asked: Look) -> Seen:
        """Return cosines with any documents, and how many of all have a higher score."""
        seen: list[Seen] = self.ranges(asked)
        return Seen(np.fmax.reduce([each.cosines for each in seen]), np.sum([each.above for each in seen], axis=0))


def check_cut(ranges: int, index: str, engine: str) -> None:
    """Refuse several ranges of what is one structure over all documents.

    Parameters
    ----------
    ranges
        How many are asked for.
    index, engine
        Kind of the dense index, and by what BM25 is computed.

    Examples
    --------
    >>> check_cut(1, "hnsw", "rank_bm25"), check_cut(9, "flat", "bm25s")
    (None, None)
    """
    for name, given, cut in (("dense.index", index, "flat"), ("bm25.engine", engine, "bm25s")):
        if ranges > 1 and given != cut:
            raise AnmiError(
                f"engine.document_shards is {ranges}, but {name}={given} is one structure over all documents: set "
                f"{name}={cut} or engine.document_shards=1"
            )
