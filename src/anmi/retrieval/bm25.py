"""BM25 searches the whole corpus, by Lucene's formula (``bm25s``) or by ``rank_bm25``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING
from anmi.files import read_json, write_json
from anmi.ragged import Float32s, Int32s, Int64s, in_rows
from anmi.retrieval.exact import best
from anmi.retrieval.fusion import Ranked, Search
from anmi.retrieval.terms import Terms, unsigned
from anmi.retrieval.tokenize import Tokenize, for_queries, saved_tokenizer, unaccented

_SETTINGS: Final = "settings.json"
_TERMS: Final = "terms"
_CELLS: Final = 4_000_000
_ARRAYS: Final = ("indptr", "indices", "data")
# Documents that are weighed at a time, which bounds memory.
_DOCUMENTS: Final = 50_000


class BM25Index:
    """An inverted index with the tokeniser that made it.

    Parameters
    ----------
    tokens
        One list of tokens per document, in corpus order.
    language
        ISO 639-1 code of the documents.
    kind
        Tokeniser, see :func:`anmi.retrieval.tokenize.tokenizer`.
    k1, b
        Saturation of term frequency and strength of length normalisation.
    epsilon
        Of rank_bm25: idf of terms in more than half of the documents, as a share of the mean idf.

    Examples
    --------
    >>> index = BM25Index.build(["a red fox", "a blue whale", "the fox den"], language="en")
    >>> documents, scores = index.search(["red fox"], k=2)
    >>> documents.tolist()
    [[0, 2]]
    """

    def __init__(
        self,
        engine: Any,
        settings: dict[str, Any],
        tokenize: Tokenize,
        okapi: tuple[Any, Terms] | None = None,
    ) -> None:
        self._engine = engine
        self.settings = settings
        self.tokenize = for_queries(tokenize)
        self._okapi = okapi

    @property
    def is_okapi(self) -> bool:
        """Whether rank_bm25 scores and orders documents."""
        return self._okapi is not None

    @staticmethod
    def build(
        texts: Sequence[str],
        language: str,
        kind: str = "auto",
        **settings: Any,
    ) -> BM25Index:
        """Cut and index texts; see the class for the parameters."""
        return BM25Index.of_terms(Terms.cut(texts, language, kind), **settings)

    @staticmethod
    def of_terms(
        terms: Terms,
        engine: str = "bm25s",
        k1: float = 0.9,
        b: float = 0.4,
        epsilon: float = 0.0,
    ) -> BM25Index:
        """Index documents that are cut into terms; see the class for the parameters.

        All terms of some documents are weighed at a time; bm25s itself would go document by
        document.
        """
        import bm25s

        counts = terms.counts
        lengths = terms.lengths.astype(np.float64)
        idf = terms.idf
        okapi = None
        if engine == "rank_bm25":
            from rank_bm25 import BM25Okapi

            okapi = BM25Okapi(_words(terms), k1=k1, b=b, epsilon=epsilon)
            okapi_idf = [okapi.idf.get(term, 0.0) for term in terms.vocabulary]
            idf = np.array([(k1 + 1) * term_idf for term_idf in okapi_idf])
        mean_length = max(lengths.mean(), 1e-9)
        scale = k1 * ((1 - b) + b * lengths / mean_length)
        weights = np.empty(len(counts.data), np.float32)
        for start in range(0, len(lengths), _DOCUMENTS):
            ends = counts.indptr[start : start + _DOCUMENTS + 1]
            block = slice(ends[0], ends[-1])
            document_scale = np.repeat(scale[start : start + _DOCUMENTS], np.diff(ends))
            frequency = counts.data[block]
            saturation = frequency / (document_scale + frequency)
            weights[block] = idf[counts.indices[block]] * saturation
        arrays = (weights, counts.indices, counts.indptr)
        postings = sparse.csr_matrix(arrays, counts.shape).tocsc()
        index = bm25s.BM25(method="lucene", k1=k1, b=b)
        index.scores = {name: getattr(postings, name) for name in _ARRAYS}
        index.scores["num_docs"] = len(lengths)
        index.vocab_dict = terms.vocabulary
        index.nonoccurrence_array = None
        index.unique_token_ids_set = set(terms.vocabulary.values())
        formula = {"engine": engine, "k1": k1, "b": b, "epsilon": epsilon}
        settings = {"documents": len(lengths), **terms.settings, **formula}
        return BM25Index(index, settings, terms.tokenize, okapi and (okapi, terms))

    def save(self, path: Path) -> None:
        """Write the index into the folder ``path``."""
        if self._okapi is None:
            self._engine.save(str(path))
        else:
            (path / _TERMS).mkdir(parents=True, exist_ok=True)
            self._okapi[1].save(path / _TERMS)
        write_json(path / _SETTINGS, self.settings)

    @staticmethod
    def load(path: Path) -> BM25Index:
        """Open an index, its arrays memory-mapped; that of rank_bm25 is made again of its terms."""
        import bm25s

        settings = read_json(path / _SETTINGS)
        tokenize = saved_tokenizer(settings, path)
        if settings["engine"] == "rank_bm25":
            formula = {name: settings[name] for name in ("engine", "k1", "b", "epsilon")}
            return BM25Index.of_terms(Terms.load(path / _TERMS), **formula)
        engine = bm25s.BM25.load(path, mmap=True, show_progress=False)
        # Plain arrays are mapped all the same, and other processes share them.
        engine.scores |= {name: np.asarray(engine.scores[name]) for name in _ARRAYS}
        return BM25Index(engine, settings, tokenize)

    def search(self, queries: Sequence[str], k: int) -> tuple[Int32s, Float32s]:
        """Return the best documents of each query.

        Returns
        -------
        documents
            int32 [Q, k], best first, -1 where fewer than k documents share a term with the query;
            equal scores stand in the order of the corpus, by rank_bm25 in that of NumPy's argsort,
            reversed, as its users have it.
        scores
            float32 [Q, k], 0 where there is no document.
        """

        def look_at_nothing(_: slice, full: Float32s) -> Float32s:
            return full[:, :0]

        documents, scores, _ = self._searched(queries, k, look_at_nothing)
        return np.where(scores == 0, np.int32(PADDING), documents), scores

    def search_and_look(
        self,
        queries: Sequence[str],
        k: int,
        documents: Int32s,
    ) -> tuple[Int32s, Float32s, Float32s]:
        """Return what :meth:`search` does, and the scores of documents [Q, M]; NaN of padding, -1.

        By rank_bm25 the list goes on with documents that share no term.
        """

        def look(block: slice, full: Float32s) -> Float32s:
            return in_rows(full, np.maximum(documents[block], 0))

        best_documents, best_scores, scores = self._searched(queries, k, look)
        scores = np.where(documents < 0, np.float32(np.nan), scores)
        return best_documents, best_scores, scores

    def search_of(self, queries: Sequence[str]) -> tuple[Search, Float32s]:
        """Return the search for some queries, and the spread of the scores that it sets.

        The spread is the standard deviation of a query's scores of all documents, float32 [Q].
        """
        spread = np.ones(len(queries), np.float32)

        def look_at_spread(_: slice, full: Float32s) -> Float32s:
            return full.std(axis=1)

        def search(count: int) -> Ranked:
            documents, scores, spread[:] = self._searched(queries, count, look_at_spread)
            documents = np.where(scores == 0, np.int32(PADDING), documents)
            return Ranked(documents, scores)

        return search, spread

    def _searched(
        self,
        queries: Sequence[str],
        k: int,
        look: Callable[[slice, Float32s], Float32s],
    ) -> tuple[Int32s, Float32s, Float32s]:
        k = min(k, self.settings["documents"])
        rank = _first if self.is_okapi else best
        document_blocks = []
        score_blocks = []
        look_blocks = []
        for block, full in self.scored(queries, k):
            documents, scores = rank(full, k)
            document_blocks.append(documents)
            score_blocks.append(scores)
            look_blocks.append(look(block, full))
        looked_up = np.concatenate(look_blocks).astype(np.float32)
        return np.concatenate(document_blocks), np.concatenate(score_blocks), looked_up

    def places(self, queries: Sequence[str], documents: Int32s) -> Float32s:
        """Return the places of documents [Q, M] in rank_bm25's order, from 1; NaN of padding."""
        blocks = []
        for block, full in self.scored(queries, 0):
            ranking, _ = _first(full, None)
            place_of = np.argsort(ranking)
            blocks.append(1 + in_rows(place_of, np.maximum(documents[block], 0)))
        places = np.where(documents < 0, np.nan, np.concatenate(blocks))
        return places.astype(np.float32)

    def scored(self, queries: Sequence[str], width: int) -> Iterator[tuple[slice, Float32s]]:
        """Yield some queries at a time with the scores of all N documents; use before the next.

        They are float32 [block, N]; those of rank_bm25 are float64, as the package gives them.

        Parameters
        ----------
        queries
            Q texts.
        width
            Documents per query that the caller looks at, at most; bounds how many queries come at a
            time.
        """
        from anmi.retrieval.sums import add_postings

        rows = self.tokenize(queries)
        count = self.settings["documents"]
        if self._okapi is not None:
            for row, tokens in enumerate(rows):
                scores = self._okapi[0].get_scores(tokens)
                yield slice(row, row + 1), scores[None, :]
            if rows:
                return
        # Few enough to stay near the processor's caches, which is where the time goes.
        step = max(1, _CELLS // max(count, width, 1))
        room = np.zeros((min(step, len(rows)), count), np.float32)
        for start in range(0, max(len(rows), 1), step):
            block = slice(start, start + step)
            full = room[: len(rows[block])]
            full.fill(0)
            # As bm25s does itself, in the same order, less the scores that it makes anew for each
            # query.
            term_rows, terms = self._terms(rows[block])
            add_postings(term_rows, terms, *self._postings, full)
            yield block, full

    def _terms(self, rows: list[list[str]]) -> tuple[Int64s, Int64s]:
        """Return the row and the number of each known token, accents aside if need be, [T] each."""
        vocabulary = self._engine.vocab_dict
        pairs = []
        for row, tokens in enumerate(rows):
            for token in tokens:
                term = token if token in vocabulary else unaccented(token)
                if term in vocabulary:
                    pairs.append((row, vocabulary[term]))
        table = np.array(pairs, np.int64).reshape(-1, 2)
        term_rows, terms = table.T.copy()
        return term_rows, terms

    def vectors(self) -> tuple[sparse.csr_matrix, list[str]]:
        """Return the weights of terms in documents, float32 [N, V], and the V terms.

        The score of a document is the sum over the terms of a query, as often as each occurs in it.
        """
        starts, documents, weights = self._postings
        terms = sorted(self._engine.vocab_dict, key=self._engine.vocab_dict.__getitem__)
        shape = (self.settings["documents"], len(starts) - 1)
        matrix = sparse.csc_matrix((weights, documents, starts), shape).tocsr()
        return matrix, terms[: shape[1]]

    @property
    def _postings(self) -> tuple[NDArray[Any], NDArray[np.uint32], Float32s]:
        """Where the postings of each term begin, their documents and their weights."""
        arrays = self._engine.scores
        starts, documents, weights = (np.asarray(arrays[name]) for name in _ARRAYS)
        return unsigned(starts), unsigned(documents), weights


def _words(terms: Terms) -> list[NDArray[Any]]:
    """Return the terms of each document, each as often as it occurs."""
    vocabulary = np.array(list(terms.vocabulary), dtype=object)
    occurrences = terms.counts.data.astype(np.int64)
    words = np.repeat(vocabulary[terms.counts.indices], occurrences)
    ends = np.cumsum(terms.lengths.astype(np.int64))
    return np.split(words, ends[:-1])


def _first(full: NDArray[Any], k: int | None) -> tuple[Int32s, Float32s]:
    """Return the first k documents in rank_bm25's order, ties as NumPy's argsort leaves them."""
    documents = np.argsort(full)[:, ::-1][:, :k]
    scores = in_rows(full, documents)
    return documents.astype(np.int32), scores.astype(np.float32)
