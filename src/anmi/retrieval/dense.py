"""Dense indexes find nearest neighbours of unit vectors, exactly by matrix products or approximately by FAISS."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anmi.errors import AnmiError, nearest
from anmi.retrieval import exact

KINDS: Final = ("flat", "hnsw")
_FAISS: Final = "index.faiss"
_VECTORS: Final = "vectors.npy"


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

    def __init__(self, engine: Any, settings: dict[str, Any], document_ids: list[str]) -> None:
        self._engine = engine
        self.settings = settings
        self.document_ids = document_ids

    def __getstate__(self) -> dict[str, Any]:
        """Write the index as an array, which the processes of a machine can share."""
        if self.settings["kind"] == "flat":
            # Not as the mapping of a file, which would be copied for each.
            return {**vars(self), "_engine": np.asarray(self._engine)}
        import faiss

        return {**vars(self), "_engine": faiss.serialize_index(self._engine)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the index from that array."""
        vars(self).update(state)
        if self.settings["kind"] != "flat":
            import faiss

            self._engine = faiss.deserialize_index(state["_engine"])

    @staticmethod
    def build(
        embeddings: NDArray[np.float32], document_ids: list[str], kind: str = "flat", fingerprint: str = ""
    ) -> DenseIndex:
        """Index unit vectors, float32 [N, D].

        ``flat`` is exact, and keeps the vectors as they are. ``hnsw`` (32 links) answers in logarithmic time with a
        recall near 1.
        """
        if kind not in KINDS:
            raise AnmiError(f'unknown dense index "{kind}"; {nearest(kind, KINDS)}')
        count, width = embeddings.shape
        if len(document_ids) != count:
            raise ValueError(f"{count} vectors but {len(document_ids)} document ids")
        settings = {"kind": kind, "documents": count, "dimensions": width, "fingerprint": fingerprint}
        if kind == "flat":
            # What is mapped from a file stays so.
            return DenseIndex(np.asanyarray(embeddings, np.float32), settings, document_ids)
        import faiss

        engine = faiss.IndexHNSWFlat(width, 32, faiss.METRIC_INNER_PRODUCT)
        engine.hnsw.efConstruction, engine.hnsw.efSearch = 200, 256
        engine.add(np.ascontiguousarray(embeddings))
        return DenseIndex(engine, settings, document_ids)

    def save(self, path: Path) -> None:
        """Write the index into the folder ``path``."""
        if self.settings["kind"] == "flat":
            _save(path / _VECTORS, self._engine)
        else:
            import faiss

            faiss.write_index(self._engine, str(path / _FAISS))
        (path / "settings.json").write_text(json.dumps(self.settings, indent=1))
        (path / "document_ids.json").write_text(json.dumps(self.document_ids))

    @staticmethod
    def load(path: Path) -> DenseIndex:
        """Open an index, the vectors of an exact one memory-mapped."""
        settings, ids = (json.loads((path / f"{name}.json").read_text()) for name in ("settings", "document_ids"))
        if (path / _VECTORS).exists():
            return DenseIndex(np.load(path / _VECTORS, mmap_mode="r"), settings, ids)
        import faiss

        return DenseIndex(faiss.read_index(str(path / _FAISS)), settings, ids)

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the k nearest documents of each query vector: int32 [Q, k] best first (-1 where none) and scores."""
        k = min(k, self.settings["documents"])
        if self.settings["kind"] == "flat":
            return exact.nearest(np.asarray(queries, np.float32), self._engine, k)
        scores, documents = self._engine.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        return documents.astype(np.int32), scores.astype(np.float32)

    @property
    def exact(self) -> NDArray[np.float32] | None:
        """The vectors that are searched, float32 [N, D], not copied; None where they are not searched as they are."""
        return np.asarray(self._engine) if self.settings["kind"] == "flat" else None

    def vectors(self) -> NDArray[np.float32]:
        """Return the vectors that were indexed, float32 [N, D]."""
        if self.settings["kind"] == "flat":
            return np.array(self._engine)
        found: NDArray[np.float32] = self._engine.reconstruct_n(0, self.settings["documents"])
        return found


def _save(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write vectors; where they are all of another artifact, which nobody changes, as a second name of its file."""
    if isinstance(vectors, np.memmap) and vectors.filename and vectors.flags.c_contiguous:
        source = Path(vectors.filename)
        if source.stat().st_size == vectors.offset + vectors.nbytes:
            # Not on another disk, nor on one without links.
            with suppress(OSError):
                path.hardlink_to(source)
                return
    np.save(path, vectors)
