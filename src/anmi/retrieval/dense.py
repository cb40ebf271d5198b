"""Nearest neighbours of unit vectors by FAISS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError, nearest
from anmi.retrieval.bm25 import score_and_rank

KINDS: Final = ("flat", "hnsw", "ivfpq")


class DenseIndex:
    """An inner-product index over document vectors; a document's index is its row.

    Parameters
    ----------
    engine
        The FAISS index.
    settings
        Kind, number of documents, dimensions, fingerprint of the encoder.
    document_ids
        Identifier of each row.
    """

    def __init__(self, engine: Any, settings: dict[str, Any], document_ids: list[str]) -> None:
        self._engine = engine
        self.settings = settings
        self.document_ids = document_ids

    def __getstate__(self) -> dict[str, Any]:
        """Write the index as an array, which the processes of a machine can share."""
        import faiss

        return {**vars(self), "_engine": faiss.serialize_index(self._engine)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the index from that array."""
        import faiss

        vars(self).update({**state, "_engine": faiss.deserialize_index(state["_engine"])})

    @staticmethod
    def build(
        embeddings: NDArray[np.float32], document_ids: list[str], kind: str = "flat", fingerprint: str = ""
    ) -> DenseIndex:
        """Index unit vectors, float32 [N, D].

        ``flat`` is exact. ``hnsw`` (32 links) answers in logarithmic time with a recall near 1; ``ivfpq`` also
        compresses the vectors to D/4 bytes, for corpora that do not fit memory.
        """
        import faiss

        if kind not in KINDS:
            raise AnmiError(f'unknown dense index "{kind}"; {nearest(kind, KINDS)}')
        count, width = embeddings.shape
        if len(document_ids) != count:
            raise ValueError(f"{count} vectors but {len(document_ids)} document ids")
        if kind == "flat":
            engine: Any = faiss.IndexFlatIP(width)
        elif kind == "hnsw":
            engine = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
            engine.hnsw.efConstruction = 200
            engine.hnsw.efSearch = 256
        else:
            cells = int(np.clip(4 * np.sqrt(count), 1, max(count // 39, 1)))
            pieces = next(p for p in (width // 4, width // 8, 1) if p and width % p == 0)
            bits = int(np.clip(np.log2(max(count // 39, 2)), 1, 8))
            engine = faiss.index_factory(width, f"IVF{cells},PQ{pieces}x{bits}", faiss.METRIC_INNER_PRODUCT)
            engine.train(embeddings)
            engine.nprobe = max(1, cells // 8)
        engine.add(np.ascontiguousarray(embeddings))
        settings = {"kind": kind, "documents": count, "dimensions": width, "fingerprint": fingerprint}
        return DenseIndex(engine, settings, document_ids)

    def save(self, path: Path) -> None:
        """Write the index into the folder ``path``."""
        import faiss

        faiss.write_index(self._engine, str(path / "index.faiss"))
        (path / "settings.json").write_text(json.dumps(self.settings, indent=1))
        (path / "document_ids.json").write_text(json.dumps(self.document_ids))

    @staticmethod
    def load(path: Path) -> DenseIndex:
        """Open an index."""
        import faiss

        return DenseIndex(
            faiss.read_index(str(path / "index.faiss")),
            json.loads((path / "settings.json").read_text()),
            json.loads((path / "document_ids.json").read_text()),
        )

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the k nearest documents of each query vector: int32 [Q, k] best first (-1 where none) and scores."""
        k = min(k, self.settings["documents"])
        scores, documents = self._engine.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        return documents.astype(np.int32), scores.astype(np.float32)

    def vectors(self) -> NDArray[np.float32] | None:
        """Return the vectors that were indexed, float32 [N, D]; None where only approximations of them are kept."""
        if self.settings["kind"] == "ivfpq":
            return None
        found: NDArray[np.float32] = self._engine.reconstruct_n(0, self.settings["documents"])
        return found


def similarities(
    queries: NDArray[np.float32], embeddings: NDArray[np.float32], documents: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Cosines of each query with its own documents: float32 [Q, M] from vectors [Q, D] and [N, D]; NaN in padding."""
    values = np.empty(documents.shape, np.float32)
    step = max(1, 16_000_000 // max(documents.shape[1] * queries.shape[1], 1))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        values[part] = np.einsum("qd,qmd->qm", queries[part], embeddings[np.maximum(documents[part], 0)])
    return np.where(documents < 0, np.nan, values).astype(np.float32)


def similarities_and_ranks(
    queries: NDArray[np.float32],
    embeddings: NDArray[np.float32],
    documents: NDArray[np.int32],
    retrieved: NDArray[np.int32] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Score given documents by cosine and rank them in the corpus.

    Parameters
    ----------
    queries, embeddings
        Unit vectors [Q, D] and [N, D].
    documents
        int32 [Q, M], padded with -1.
    retrieved
        The result lists [Q, K] of an approximate index. With them, ranks are places in the list and NaN beyond it;
        without, they are exact, at the cost of one product with the whole corpus.

    Returns
    -------
    scores, ranks
        float32 [Q, M].
    """
    if retrieved is not None:
        return similarities(queries, embeddings, documents), _places(documents, retrieved)
    scores = np.empty(documents.shape, np.float32)
    ranks = np.empty(documents.shape, np.float32)
    step = max(1, 32_000_000 // max(len(embeddings), 1))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        scores[part], ranks[part] = score_and_rank(queries[part] @ embeddings.T, documents[part])
    return scores, ranks


def _places(documents: NDArray[np.int32], retrieved: NDArray[np.int32]) -> NDArray[np.float32]:
    """Place of each document in its query's result list, from 1; NaN where it is not in the list. float32 [Q, M]."""
    order = np.argsort(retrieved, axis=1)
    ascending = np.take_along_axis(retrieved, order, axis=1)
    slot = [np.searchsorted(a, d) for a, d in zip(ascending, documents, strict=True)]
    found = np.minimum(np.array(slot, np.int64).reshape(documents.shape), max(retrieved.shape[1] - 1, 0))
    hit = (np.take_along_axis(ascending, found, axis=1) == documents) & (documents >= 0)
    return np.where(hit, np.take_along_axis(order, found, axis=1) + 1.0, np.nan).astype(np.float32)
