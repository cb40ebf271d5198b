"""Vectors of documents get an index: dense ones exact or by FAISS, weights of terms inverted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from scipy import sparse

from anmi.errors import AnmiError, nearest
from anmi.files import read_json, write_json
from anmi.ragged import Float32s, Float64s, Int32s
from anmi.retrieval import exact

KINDS: Final = ("flat", "hnsw")
_FAISS: Final = "index.faiss"
_VECTORS: Final = "vectors.npy"
_SETTINGS: Final = "settings.json"


class DenseIndex:
    """An inner-product index over document vectors; a document's index is its row.

    Parameters
    ----------
    engine
        The FAISS index; of kind ``flat`` the vectors, float32 [N, D].
    settings
        Kind, number of documents, dimensions, fingerprint of the encoder.
    document_ids
        Identifier of each row.
    """

    def __init__(
        self,
        engine: Any,
        settings: dict[str, Any],
        document_ids: list[str],
    ) -> None:
        self._engine = engine
        self.settings = settings
        self.document_ids = document_ids

    @staticmethod
    def build(
        embeddings: Float32s,
        document_ids: list[str],
        kind: str = "flat",
        fingerprint: str = "",
    ) -> DenseIndex:
        """Index vectors, float32 [N, D]; ``settings`` have their lengths where these are not all 1.

        ``flat`` is exact, and keeps the vectors as they are. ``hnsw`` (32 links) answers in
        logarithmic time with a recall near 1.
        """
        if kind not in KINDS:
            raise AnmiError(f'unknown dense index "{kind}"; {nearest(kind, KINDS)}')
        count, width = embeddings.shape
        if len(document_ids) != count:
            raise ValueError(f"{count} vectors but {len(document_ids)} document ids")
        settings = {
            "kind": kind,
            "documents": count,
            "dimensions": width,
            "fingerprint": fingerprint,
        }
        sizes = exact.lengths(embeddings)
        if not exact.of_one_length(sizes):
            settings |= {"longest": float(sizes.max()), "mean_length": float(sizes.mean())}
        if kind == "flat":
            # What is mapped from a file stays so.
            return DenseIndex(np.asarray(embeddings, np.float32), settings, document_ids)
        import faiss

        engine = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
        engine.hnsw.efConstruction = 200
        engine.hnsw.efSearch = 256
        engine.add(np.ascontiguousarray(embeddings))
        return DenseIndex(engine, settings, document_ids)

    def save(self, path: Path) -> None:
        """Write the index into the folder ``path``."""
        if self.exact is not None:
            _save(path / _VECTORS, self.exact)
        else:
            import faiss

            faiss.write_index(self._engine, str(path / _FAISS))
        write_json(path / _SETTINGS, self.settings)
        (path / "document_ids.json").write_text(json.dumps(self.document_ids))

    @staticmethod
    def load(path: Path) -> DenseIndex:
        """Open an index, the vectors of an exact one memory-mapped."""
        settings = read_json(path / _SETTINGS)
        ids = read_json(path / "document_ids.json")
        if (path / _VECTORS).exists():
            return DenseIndex(np.asarray(np.load(path / _VECTORS, mmap_mode="r")), settings, ids)
        import faiss

        return DenseIndex(faiss.read_index(str(path / _FAISS)), settings, ids)

    def search(self, queries: Float32s, k: int) -> tuple[Int32s, Float32s]:
        """Return the k nearest documents of each query, int32 [Q, k], -1 where none, and scores."""
        k = min(k, self.settings["documents"])
        queries = np.ascontiguousarray(queries, np.float32)
        if self.exact is not None:
            return exact.nearest(queries, self.exact, k, self.longest)
        scores, documents = self._engine.search(queries, k)
        return documents.astype(np.int32), scores.astype(np.float32)

    @property
    def longest(self) -> float:
        """Length of the longest vector, 1 where all have it but for rounding."""
        return float(self.settings.get("longest", 1.0))

    @property
    def exact(self) -> Float32s | None:
        """The vectors themselves, float32 [N, D]; None where FAISS searches in their place."""
        return self._engine if isinstance(self._engine, np.ndarray) else None

    def vectors(self) -> Float32s:
        """Return the vectors that were indexed, float32 [N, D]."""
        if self.exact is not None:
            return self.exact
        return self._engine.reconstruct_n(0, self.settings["documents"])


def _save(path: Path, vectors: Float32s) -> None:
    """Write vectors; those of another artifact, which nobody changes, as a link to its file."""
    mapped = vectors.base
    if isinstance(mapped, np.memmap) and mapped.filename and vectors.flags.c_contiguous:
        source = Path(mapped.filename)
        if source.stat().st_size == mapped.offset + vectors.nbytes:
            # Not on another disk, nor on one without links.
            with suppress(OSError):
                path.hardlink_to(source)
                return
    np.save(path, vectors)


_ARRAYS: Final = ("data", "indices", "indptr")
# Of queries and documents, which bounds memory.
_CELLS: Final = 4_000_000


def pruned(vectors: sparse.csr_matrix, share: float) -> sparse.csr_matrix:
    """Return documents, [N, V], without terms below a share of the document's largest weight.

    Examples
    --------
    >>> pruned(sparse.csr_matrix([[1.0, 4.0], [1.0, 0.0]]), 0.5).toarray().tolist()
    [[0.0, 4.0], [1.0, 0.0]]
    """
    heavy = sparse.csr_matrix(vectors, dtype=np.float32, copy=True)
    largest = heavy.max(axis=1).toarray().ravel()
    heavy.data[heavy.data < share * np.repeat(largest, np.diff(heavy.indptr))] = 0
    heavy.eliminate_zeros()
    return heavy


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
    >>> index = SparseIndex.build(sparse.csr_matrix([[0.0, 2.0], [1.0, 0.5]]), ["a", "b"])
    >>> documents, scores = index.search(sparse.csr_matrix([[0.0, 3.0]]), k=2)
    >>> documents.tolist(), scores.tolist()
    ([[0, 1]], [[6.0, 1.5]])
    """

    def __init__(self, postings: sparse.csr_matrix, document_ids: list[str]) -> None:
        self.postings = postings
        self.document_ids = document_ids
        terms, documents = postings.shape
        self.settings = {"kind": "inverted", "documents": documents, "terms": terms}

    @staticmethod
    def build(
        vectors: sparse.csr_matrix,
        document_ids: Sequence[str],
        share: float = 0.0,
    ) -> SparseIndex:
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
            Every document is empty, which is what too large a penalty on their terms does; ids and
            vectors differ in number; or a weight is negative or not finite.
        """
        if vectors.shape[0] != len(document_ids):
            raise AnmiError(
                f"{vectors.shape[0]} vectors were given for {len(document_ids)} documents"
            )
        if vectors.nnz and not (np.isfinite(vectors.data).all() and vectors.data.min() >= 0):
            raise AnmiError(
                "a term of a document weighs less than 0 or is not finite: train again at a smaller"
                " rate"
            )
        heavy = pruned(vectors, share)
        if not heavy.nnz:
            raise AnmiError(
                "no document has a term, so nothing could be found: train with a smaller penalty on"
                " them"
            )
        return SparseIndex(heavy.T.tocsr(), list(document_ids))

    def search(self, queries: sparse.csr_matrix, k: int) -> tuple[Int32s, Float32s]:
        """Return the best documents of each query by inner product.

        ``queries`` are float32 [Q, V]; documents int32 [Q, k] are padded with -1 where fewer share
        a term.
        """
        k = min(k, len(self.document_ids))
        documents = np.zeros((queries.shape[0], k), np.int32)
        scores = np.zeros(documents.shape, np.float32)
        step = max(1, _CELLS // len(self.document_ids))
        for start in range(0, len(documents), step):
            block = slice(start, start + step)
            products = (queries[block] @ self.postings).toarray()
            documents[block], scores[block] = exact.best(products, k)
        return documents, scores

    def save(self, path: Path) -> None:
        """Write the index into the folder ``path``."""
        for name in _ARRAYS:
            np.save(path / f"{name}.npy", getattr(self.postings, name))
        settings = self.settings | {"document_ids": self.document_ids}
        (path / _SETTINGS).write_text(json.dumps(settings), encoding="utf-8")

    def vectors(self) -> sparse.csr_matrix:
        """Return the documents that were indexed, float32 [N, V]."""
        return self.postings.T.tocsr()

    @staticmethod
    def load(path: Path) -> SparseIndex:
        """Open an index, its arrays memory-mapped."""
        settings = read_json(path / _SETTINGS)
        arrays = tuple(np.load(path / f"{name}.npy", mmap_mode="r") for name in _ARRAYS)
        postings = sparse.csr_matrix(
            arrays,
            shape=(settings["terms"], settings["documents"]),
            copy=False,
        )
        return SparseIndex(postings, settings["document_ids"])


_TABLE: Final = (
    "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding"
)


class TermTable:
    """Looks up the weight of every token of a text; nothing is computed.

    Parameters
    ----------
    tokenizer
        Of the library tokenizers.
    weights
        Of its tokens, float32 [V]: 0 for special ones.
    """

    def __init__(self, tokenizer: Any, weights: Float32s) -> None:
        self.tokenizer = tokenizer
        self.weights = weights

    def __call__(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return float32 [T, V]; a token that stands in the text twice counts once."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        rows = [np.unique(np.asarray(encoding.ids, np.int64)) for encoding in encoded]
        tokens = np.concatenate([np.zeros(0, np.int64), *rows])
        starts = np.cumsum([0, *map(len, rows)])
        shape = (len(rows), len(self.weights))
        terms = sparse.csr_matrix((self.weights[tokens], tokens, starts), shape)
        terms.eliminate_zeros()
        return terms


def term_table(folder: Path) -> TermTable | None:
    """Read the queries' side of an inference-free sparse retriever; None of another folder."""
    try:
        router = read_json(folder / "router_config.json")
        modules = router["structure"]["query"]
        place = folder / next(name for name in modules if router["types"][name] == _TABLE)
    except (FileNotFoundError, KeyError, StopIteration):
        return None
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    weights = load_file(place / "model.safetensors")["weight"].astype(np.float32)
    if (count := tokenizer.get_vocab_size()) != len(weights):
        raise AnmiError(
            f"{place}: the tokenizer has {count:,} tokens and the table {len(weights):,} weights;"
            " take both from one model, or train it again"
        )
    return TermTable(tokenizer, weights)


Vectors: TypeAlias = Float32s | sparse.csr_matrix
Index: TypeAlias = DenseIndex | SparseIndex
# Of a document's largest weight, below which its terms are left out: on SciFact a fifth of them and
# a ninth of the work, for .0004 nDCG@10 (benchmarks/results/sparse.json).
SHARE: Final = 0.1
_MOST: Final = 2000


def build_index(
    vectors: Vectors,
    document_ids: list[str],
    kind: str = "flat",
) -> Index:
    """Index the vectors of documents, [N, D] or, of a sparse retriever, [N, V].

    ``kind`` is that of a dense index. Of sparse documents the lightest terms are left out, see
    :data:`SHARE`.
    """
    if isinstance(vectors, sparse.spmatrix):
        return SparseIndex.build(vectors, document_ids, SHARE)
    return DenseIndex.build(vectors, document_ids, kind)


def load_index(path: Path) -> Index:
    """Open what an index wrote into a folder."""
    return (SparseIndex if (path / "indptr.npy").is_file() else DenseIndex).load(path)


def row_products(left: Vectors, right: Vectors) -> Float64s:
    """Return the inner product of each row with the row beside it, float64 [R], of two [R, D]."""
    if isinstance(left, sparse.spmatrix):
        return np.asarray(left.multiply(right).sum(axis=1), np.float64).ravel()
    return np.asarray(np.einsum("rd,rd->r", left, right, dtype=np.float64))


def spread_of_scores(queries: Vectors, documents: Vectors) -> float:
    """Return the standard deviation of inner products with all documents, the mean over queries.

    Parameters
    ----------
    queries, documents
        [Q, D] and [N, D]. Without queries the first 2,000 documents ask.

    Examples
    --------
    >>> documents = np.array([[1, 0], [0, 1]], np.float32)
    >>> spread_of_scores(documents[:1], documents)
    0.5
    >>> spread_of_scores(documents[:0], sparse.csr_matrix(documents))
    0.5
    """
    sample = (queries if queries.shape[0] else documents)[:_MOST].astype(np.float64)
    count = max(documents.shape[0], 1)
    if isinstance(documents, sparse.spmatrix):
        products = sample @ documents.T.tocsr().astype(np.float64)
        mean = np.asarray(products.sum(axis=1)).ravel() / count
        square = np.asarray(products.multiply(products).sum(axis=1)).ravel() / count
        variance = square - mean**2
    else:
        # By moments of the documents, so that no matrix of all cosines is made.
        centre = documents.mean(axis=0, dtype=np.float64)
        moments = (documents.T @ documents).astype(np.float64) / count
        variance = (
            np.einsum("qd,de,qe->q", sample, moments, sample, optimize=True)
            - (sample @ centre) ** 2
        )
    spread = float(np.sqrt(np.maximum(variance, 0)).mean()) if sample.shape[0] else 0.0
    # Of one document, or of documents that are all alike, nothing is put in order by the encoder
    # anyway.
    return round(spread, 6) if spread > 1e-6 else 1.0
