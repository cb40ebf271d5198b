"""SciPy searches an inverted index of sparse vectors exactly, with its arrays memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.retrieval.exact import best

_SETTINGS: Final = "settings.json"
_KIND: Final = "inverted"
_ARRAYS: Final = ("data", "indices", "indptr")
_CELLS: Final = 4_000_000


def pruned(vectors: scipy.sparse.csr_matrix, share: float) -> scipy.sparse.csr_matrix:
    """Return documents, [N, V], without terms that weigh less than a share of the document's largest weight.

    Examples
    --------
    >>> pruned(scipy.sparse.csr_matrix([[1.0, 4.0], [1.0, 0.0]]), 0.5).toarray().tolist()
    [[0.0, 4.0], [1.0, 0.0]]
    """
    kept = scipy.sparse.csr_matrix(vectors, dtype=np.float32, copy=True)
    if share > 0:
        row = np.repeat(np.arange(kept.shape[0]), np.diff(kept.indptr))
        largest = kept.max(axis=1).toarray().ravel()
        kept.data[kept.data < share * largest[row]] = 0
    kept.eliminate_zeros()
    return kept


class SparseIndex:
    """Documents by term.

    Attributes
    ----------
    postings
        float32 [V, N], a row per term: which documents hold it, and what it weighs there.
    document_ids
        Of the N documents.
    settings
        ``kind`` (always "inverted"), ``documents`` (N) and ``terms`` (V).

    Examples
    --------
    >>> index = SparseIndex.build(scipy.sparse.csr_matrix([[0.0, 2.0], [1.0, 0.5]]), ["a", "b"])
    >>> documents, scores = index.search(scipy.sparse.csr_matrix([[0.0, 3.0]]), k=2)
    >>> documents.tolist(), scores.tolist()
    ([[0, 1]], [[6.0, 1.5]])
    """

    def __init__(self, postings: scipy.sparse.csr_matrix, document_ids: list[str]) -> None:
        self.postings = postings
        self.document_ids = document_ids
        self.settings = {"kind": _KIND, "documents": postings.shape[1], "terms": postings.shape[0]}

    @staticmethod
    def build(vectors: scipy.sparse.csr_matrix, document_ids: Sequence[str], share: float = 0.0) -> SparseIndex:
        """Invert documents.

        Parameters
        ----------
        vectors
            float32 [N, V], no weight below 0.
        document_ids
            N ids.
        share
            Terms that weigh less than this share of the document's largest weight are left out.

        Raises
        ------
        AnmiError
            Every document is empty, which is what too large a penalty on their terms does; ids and vectors differ in
            number; or a weight is negative or not finite.
        """
        if vectors.shape[0] != len(document_ids):
            raise AnmiError(f"{vectors.shape[0]} vectors were given for {len(document_ids)} documents")
        if vectors.nnz and not (np.isfinite(vectors.data).all() and vectors.data.min() >= 0):
            raise AnmiError("a term of a document weighs less than 0 or is not finite: train again at a smaller rate")
        kept = pruned(vectors, share)
        if not kept.nnz:
            raise AnmiError(
                "no document has a term, so nothing could be found: train with a smaller penalty on documents' terms"
            )
        return SparseIndex(kept.T.tocsr(), list(document_ids))

    @property
    def terms_per_document(self) -> float:
        """Mean number of terms of a document."""
        return float(self.postings.nnz / self.postings.shape[1])

    def search(self, queries: scipy.sparse.csr_matrix, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best documents of each query by inner product, as :meth:`anmi.retrieval.bm25.BM25Index.search`.

        ``queries`` are float32 [Q, V]; documents int32 [Q, k] are padded with -1 where fewer share a term.
        """
        k = min(k, len(self.document_ids))
        parts = [best(scores, k) for scores in self._scored(queries)]
        if not parts:
            return np.zeros((0, k), np.int32), np.zeros((0, k), np.float32)
        documents, scores = zip(*parts, strict=True)
        return np.concatenate(documents), np.concatenate(scores)

    def _scored(self, queries: scipy.sparse.csr_matrix) -> Iterator[NDArray[np.float32]]:
        step = max(1, _CELLS // len(self.document_ids))
        for start in range(0, queries.shape[0], step):
            yield (queries[start : start + step] @ self.postings).toarray().astype(np.float32, copy=False)

    def save(self, path: Path) -> None:
        """Write the index into the folder ``path``."""
        for name in _ARRAYS:
            np.save(path / f"{name}.npy", getattr(self.postings, name))
        settings = self.settings | {"document_ids": self.document_ids}
        (path / _SETTINGS).write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")

    @staticmethod
    def is_one(path: Path) -> bool:
        """Tell whether a folder holds such an index."""
        return all((path / f"{name}.npy").is_file() for name in _ARRAYS)

    def vectors(self) -> scipy.sparse.csr_matrix:
        """Return the documents that were indexed, float32 [N, V]."""
        return self.postings.T.tocsr()

    @staticmethod
    def load(path: Path) -> SparseIndex:
        """Open an index, its arrays memory-mapped."""
        settings = json.loads((path / _SETTINGS).read_text(encoding="utf-8"))
        arrays = tuple(np.load(path / f"{name}.npy", mmap_mode="r") for name in _ARRAYS)
        postings = scipy.sparse.csr_matrix(arrays, shape=(settings["terms"], settings["documents"]), copy=False)
        return SparseIndex(postings, settings["document_ids"])


_TABLE: Final = "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding"
_WEIGHTS: Final = "weight"


class TermTable:
    """Looks up the weight of every token of a text; nothing is computed.

    Parameters
    ----------
    tokenizer
        Of the library tokenizers.
    weights
        Of its tokens, float32 [V]: 0 for special ones.
    """

    def __init__(self, tokenizer: Any, weights: NDArray[np.float32]) -> None:
        self.tokenizer = tokenizer
        self.weights = weights

    def __call__(self, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
        """Return float32 [T, V]; a token that stands in the text twice counts once."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        rows = [np.unique(np.asarray(encoding.ids, np.int64)) for encoding in encoded]
        tokens = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        shape = len(rows), len(self.weights)
        found = scipy.sparse.csr_matrix((self.weights[tokens], tokens, starts), shape=shape, dtype=np.float32)
        found.eliminate_zeros()
        return found

    def by_token(self) -> dict[str, float]:
        """Return the weight of every token by its name, those of weight 0 left out."""
        return {
            self.tokenizer.id_to_token(int(token)): round(float(self.weights[token]), 5)
            for token in np.flatnonzero(self.weights)
        }


def term_table(folder: Path) -> TermTable | None:
    """Read the queries' side of the folder of an inference-free sparse retriever; None where it is anything else."""
    try:
        types = json.loads((folder / "router_config.json").read_text(encoding="utf-8"))
        place = folder / next(name for name in types["structure"]["query"] if types["types"][name] == _TABLE)
    except (FileNotFoundError, KeyError, StopIteration):
        return None
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    weights = load_file(place / "model.safetensors")[_WEIGHTS].astype(np.float32)
    if tokenizer.get_vocab_size() != len(weights):
        raise AnmiError(
            f"{place}: the tokenizer has {tokenizer.get_vocab_size():,} tokens and the table {len(weights):,} weights; "
            "take both from one model, or train it again"
        )
    return TermTable(tokenizer, weights)
