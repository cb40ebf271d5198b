"""BM25 over the whole corpus, by bm25s (default) or rank_bm25 (slow, for comparison)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.errors import AnmiError, nearest
from anmi.retrieval.tokenize import Tokenize, resolve, tokenizer

ENGINES: Final = ("bm25s", "rank_bm25")
_SETTINGS: Final = "settings.json"


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
    method
        Variant of the formula, by bm25s' name (``lucene``, ``robertson``, …); rank_bm25 is always ``robertson``.

    Examples
    --------
    >>> index = BM25Index.build(["a red fox", "a blue whale", "the fox den"], language="en")
    >>> documents, scores = index.search(["red fox"], k=2)
    >>> documents.tolist()
    [[0, 2]]
    """

    def __init__(self, engine: Any, settings: dict[str, Any], tokenize: Tokenize) -> None:
        self._engine = engine
        self.settings = settings
        self._tokenize = tokenize

    @staticmethod
    def build(
        texts: Sequence[str],
        language: str,
        kind: str = "auto",
        engine: str = "bm25s",
        k1: float = 0.9,
        b: float = 0.4,
        method: str = "lucene",
    ) -> BM25Index:
        """Index texts; see the class for the parameters."""
        if engine not in ENGINES:
            raise AnmiError(f'unknown BM25 engine "{engine}"; {nearest(engine, ENGINES)}')
        settings: dict[str, Any] = {
            "documents": len(texts), "language": language, "tokenizer": resolve(kind, language),
            "engine": engine, "k1": k1, "b": b, "method": method,
        }  # fmt: skip
        tokenize = tokenizer(settings["tokenizer"], language)
        tokens = tokenize(texts)
        if not any(tokens):
            raise AnmiError(f'the tokenizer "{settings["tokenizer"]}" found no token in {len(texts)} documents')
        return (
            BM25Index(_index(tokens, settings), settings, tokenize)
            if engine == "bm25s"
            else BM25Index(_RankBM25(tokens, k1, b), settings, tokenize)
        )

    @property
    def tokenize(self) -> Tokenize:
        """The tokeniser of the index, from texts to lists of terms."""
        return self._tokenize

    def save(self, path: Path) -> None:
        """Write the index into the folder ``path``."""
        self._engine.save(str(path))
        (path / _SETTINGS).write_text(json.dumps(self.settings, indent=1))

    @staticmethod
    def load(path: Path) -> BM25Index:
        """Open an index, its arrays memory-mapped."""
        settings = json.loads((path / _SETTINGS).read_text())
        tokenize = tokenizer(settings["tokenizer"], settings["language"])
        if settings["engine"] == "rank_bm25":
            return BM25Index(_RankBM25.load(path, settings["k1"], settings["b"]), settings, tokenize)
        import bm25s

        return BM25Index(bm25s.BM25.load(path, mmap=True, show_progress=False), settings, tokenize)

    def search(self, queries: Sequence[str], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best documents of each query.

        Returns
        -------
        documents
            int32 [Q, k], best first, -1 where fewer than k documents share a term with the query.
        scores
            float32 [Q, k], 0 where there is no document.
        """
        k = min(k, self.settings["documents"])
        rows = self._tokenize(queries)
        if isinstance(self._engine, _RankBM25):
            full = self._engine.scores(rows)
            documents = np.argsort(-full, axis=1, kind="stable")[:, :k].astype(np.int32)
            scores = np.take_along_axis(full, documents, axis=1)
        else:
            documents, scores = self._retrieve(rows, k)
        matched = scores > 0
        return (
            np.where(matched, documents, -1).astype(np.int32),
            np.where(matched, scores, 0).astype(np.float32),
        )

    def _retrieve(self, rows: list[list[str]], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Best documents and scores by bm25s, equal scores in order of document index."""
        documents, scores = np.zeros((len(rows), k), np.int32), np.zeros((len(rows), k), np.float32)
        # bm25s takes the type of all queries from the first one, and fails on an empty list.
        filled = [place for place, row in enumerate(rows) if row]
        if filled:
            found = self._engine.retrieve(
                [rows[place] for place in filled], k=k, show_progress=False, n_threads=_threads()
            )
            order = np.lexsort((found.documents, -found.scores), axis=1)
            documents[filled] = np.take_along_axis(np.asarray(found.documents), order, axis=1)
            scores[filled] = np.take_along_axis(np.asarray(found.scores), order, axis=1)
        return documents, scores

    def scores_and_ranks(
        self, queries: Sequence[str], documents: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Score given documents and rank them within the whole corpus.

        Parameters
        ----------
        queries
            Q texts.
        documents
            int32 [Q, M], padded with -1.

        Returns
        -------
        scores, ranks
            float32 [Q, M]; a rank is 1 + the number of documents with a higher score; NaN in padding.
        """
        rows = self._tokenize(queries)
        scores = np.full(documents.shape, np.nan, np.float32)
        ranks = np.full(documents.shape, np.nan, np.float32)
        step = max(1, 32_000_000 // max(self.settings["documents"], 1))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            full = self._engine.scores(rows[part]) if isinstance(self._engine, _RankBM25) else self._full(rows[part])
            scores[part], ranks[part] = score_and_rank(full, documents[part])
        return scores, ranks

    def _full(self, rows: list[list[str]]) -> NDArray[np.float32]:
        """Scores of all documents, [Q, N], as a product of sparse matrices."""
        from scipy.sparse import csr_matrix

        vocabulary, stored = self._engine.vocab_dict, self._engine.scores
        terms = [[vocabulary[token] for token in row if token in vocabulary] for row in rows]
        lengths = np.cumsum([0, *map(len, terms)])
        columns = np.fromiter((t for row in terms for t in row), np.int64, lengths[-1])
        width = len(stored["indptr"]) - 1
        queries = csr_matrix((np.ones(len(columns), np.float32), columns, lengths), shape=(len(rows), width))
        weights = csr_matrix(
            (stored["data"], stored["indices"], stored["indptr"]), shape=(width, self.settings["documents"])
        )
        result: NDArray[np.float32] = (queries @ weights).toarray()
        return result


def score_and_rank(
    full: NDArray[np.float32], documents: NDArray[np.int32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Look up scores and ranks of given documents in a full score matrix.

    Parameters
    ----------
    full
        Scores of all documents, [Q, N].
    documents
        int32 [Q, M], padded with -1.

    Returns
    -------
    scores, ranks
        float32 [Q, M]; rank = 1 + number of documents that score higher; NaN in padding.

    Examples
    --------
    >>> scores, ranks = score_and_rank(np.array([[3.0, 1.0, 2.0]], np.float32), np.array([[1, -1]], np.int32))
    >>> ranks.tolist()
    [[3.0, nan]]
    """
    scores = np.take_along_axis(full, np.maximum(documents, 0), axis=1)
    ascending = np.sort(full, axis=1)
    above = [full.shape[1] - np.searchsorted(a, s, side="right") for a, s in zip(ascending, scores, strict=True)]
    ranks = (np.array(above).reshape(documents.shape) + 1).astype(np.float32)
    hidden = documents < 0
    return np.where(hidden, np.nan, scores).astype(np.float32), np.where(hidden, np.nan, ranks).astype(np.float32)


def _index(tokens: list[list[str]], settings: dict[str, Any]) -> Any:
    import bm25s

    engine = bm25s.BM25(method=settings["method"], k1=settings["k1"], b=settings["b"], backend="numba")
    engine.index(tokens, show_progress=False)
    # BM25L and BM25+ give every document a share for the terms it lacks. It is the same for all documents, so the
    # order stands without it, and a score of 0 means in every variant that nothing is shared.
    engine.nonoccurrence_array = None
    engine.method = "lucene"
    return engine


def _threads() -> int:
    """Threads of a search: two, or the one there is."""
    import numba

    return min(2, int(numba.get_num_threads()))


class _RankBM25:
    """rank_bm25 behind the few calls the index needs; its tokens are kept, since it cannot be saved."""

    def __init__(self, tokens: list[list[str]], k1: float, b: float) -> None:
        from rank_bm25 import BM25Okapi

        self._tokens = tokens
        # Terms in more than half of the documents have a negative idf; 0 is what the other engine gives them.
        self._engine = BM25Okapi(tokens, k1=k1, b=b, epsilon=0.0)

    def scores(self, rows: list[list[str]]) -> NDArray[np.float32]:
        full = [self._engine.get_scores(row) for row in rows]
        return np.array(full, np.float32).reshape(len(rows), len(self._tokens))

    def save(self, path: str) -> None:
        pd.DataFrame({"tokens": self._tokens}).to_parquet(Path(path) / "tokens.parquet")

    @staticmethod
    def load(path: Path, k1: float, b: float) -> _RankBM25:
        return _RankBM25([list(row) for row in pd.read_parquet(path / "tokens.parquet").tokens], k1, b)
