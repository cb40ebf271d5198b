"""BM25 and a trained encoder as one search, saved as a folder that needs nothing else."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING
from anmi.errors import AnmiError, nearest
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import DEPTH, Fused, Method, Ranked, Spreads, fuse
from anmi.retrieval.index import Index, Vectors, build_index, load_index
from anmi.retrieval.sparse import SparseIndex
from anmi.search.documents import Documents, write
from anmi.search.encoder import Encode, open_encoder
from anmi.search.folder import README, copy_model, opened, seal
from anmi.search.hits import Hit
from anmi.search.readme import text_of

if TYPE_CHECKING:
    import pandas as pd

System = Literal["hybrid", "bm25", "dense", "sparse"]
SYSTEMS: Final = ("hybrid", "bm25", "dense", "sparse")
_PACKAGES: Final = ("anmi", "sentence-transformers", "bm25s", "faiss-cpu")
_PLACES: Final = {"model": "model", "bm25": "bm25", "dense": "dense", "documents": "documents.parquet"}


class HybridSearch:
    """A search over a corpus by BM25, by a trained encoder, and by both.

    Made by :meth:`build`, or :meth:`load` of a folder that :meth:`save` wrote.

    Attributes
    ----------
    dense
        Index of the encoder's vectors, of either :attr:`kind`.
    settings
        ``method``, ``weight`` and ``depth`` of :func:`anmi.retrieval.fusion.fuse`, ``dense_spread``, ``encoder`` (how
        the model is run), ``versions``, and what :meth:`build` was told of the collection and the fit.
    """

    def __init__(
        self, bm25: BM25Index, dense: Index, documents: Documents | pd.DataFrame, model: Path,
        settings: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.bm25 = bm25
        self.dense = dense
        self.model = model
        self.settings = dict(settings)
        self._documents = documents
        if not (count := len(documents)) == bm25.settings["documents"] == dense.settings["documents"]:
            raise AnmiError(
                f"the parts of the search do not belong together: BM25 knows {bm25.settings['documents']} documents, "
                f"the dense index {dense.settings['documents']}, and {count} have a text; export the search again"
            )

    @staticmethod
    def build(
        model: Path,
        bm25: BM25Index,
        corpus: pd.DataFrame,
        embeddings: Vectors,
        *,
        encoder: Mapping[str, Any],
        dense_spread: float,
        weight: float = 0.5,
        method: Method = "convex",
        depth: int = DEPTH,
        index: str = "flat",
        about: Mapping[str, Any] | None = None,
    ) -> HybridSearch:
        """Put a search together.

        Parameters
        ----------
        model
            Folder of the trained sentence-transformers model.
        bm25
            Of the corpus.
        corpus
            ``document_id, title, text`` of N documents.
        embeddings
            Of the documents by the model: unit vectors, float32 [N, D], or a sparse retriever's, [N, V].
        encoder
            ``max_length``, ``precision`` and ``batch_size`` that the documents were encoded with.
        dense_spread, weight, method, depth
            See :func:`anmi.retrieval.fusion.fuse`; ``depth`` documents of each part are fused.
        index
            Kind of the dense index, see :meth:`anmi.retrieval.dense.DenseIndex.build`.
        about
            Noted in the folder.
        """
        settings = {
            **(about or {}), "method": method, "weight": weight, "depth": depth, "dense_spread": dense_spread,
            "documents": len(corpus), "encoder": dict(encoder),
            "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        }  # fmt: skip
        dense = build_index(embeddings, corpus.document_id.tolist(), index)
        return HybridSearch(bm25, dense, corpus, model, settings)

    def save(self, path: Path) -> None:
        """Write the search into the folder ``path``, which is empty or not there; its README says how to use it."""
        path.mkdir(parents=True, exist_ok=True)
        for part in (self.bm25, self.dense):
            place = path / _PLACES["bm25" if part is self.bm25 else "dense"]
            place.mkdir()
            part.save(place)
        if isinstance(self._documents, Documents):
            (path / _PLACES["documents"]).write_bytes(self._documents.path.read_bytes())
        else:
            write(self._documents, path / _PLACES["documents"])
        copy_model(self.model, path / _PLACES["model"])
        (path / README).write_text(text_of(self.settings, self.kind), encoding="utf-8")
        seal(path, {name: value for name, value in self.settings.items() if name not in ("files", "format")})

    @staticmethod
    def load(path: Path | str) -> HybridSearch:
        """Open a folder; the encoder and the texts of documents are read when they are needed.

        Raises
        ------
        AnmiError
            The folder is not whole, or is damaged.
        """
        folder = Path(path)
        settings = opened(folder)
        places = {name: folder / place for name, place in _PLACES.items()}
        bm25, dense = BM25Index.load(places["bm25"]), load_index(places["dense"])
        return HybridSearch(bm25, dense, Documents(places["documents"]), places["model"], settings)

    @property
    def kind(self) -> Literal["dense", "sparse"]:
        """What the encoder gives: a direction, or weights of terms."""
        return "sparse" if isinstance(self.dense, SparseIndex) else "dense"

    @cached_property
    def encode(self) -> Encode:
        """From queries to their unit vectors, with the prompt that the model was trained with."""
        how = self.settings["encoder"]
        return open_encoder(self.model, how["max_length"], how["precision"], how["batch_size"])

    @property
    def document_ids(self) -> list[str]:
        """Of the corpus, in its order."""
        return self.dense.document_ids

    def search(self, queries: Sequence[str] | str, k: int = 10, system: System = "hybrid") -> list[list[Hit]]:
        """Return the best documents of each query.

        Parameters
        ----------
        queries
            Questions; a single text is one.
        k
            Documents per query, at most. ``hybrid`` fuses lists of :attr:`settings` ``depth`` and has no more.
        system
            ``hybrid``, ``bm25``, or what the encoder is: :attr:`kind`.

        Raises
        ------
        AnmiError
            An empty question, k below 1, or an unknown system.
        """
        asked = [queries] if isinstance(queries, str) else list(queries)
        if system not in (known := ("hybrid", "bm25", self.kind)):
            raise AnmiError(f'unknown system "{system}"; {nearest(system, known)}')
        if k < 1:
            raise AnmiError(f"k is {k}, and a search returns at least 1 document")
        if blank := [place for place, text in enumerate(asked, start=1) if not text.strip()]:
            raise AnmiError(f"question {blank[0]} is empty: ask something")
        if not asked:
            return []
        return self._hits(self.ranked(asked, k, system))

    def ranked(self, queries: Sequence[str], k: int, system: System = "hybrid") -> Fused:
        """Return the rows of the best documents in the corpus, [Q, k], as :func:`anmi.retrieval.fusion.fuse` does."""
        depth = max(self.settings["depth"], 1) if system == "hybrid" else k
        none = Ranked(np.full((len(queries), 0), PADDING, np.int32), np.zeros((len(queries), 0), np.float32))
        sparse, spread, dense = none, np.ones(len(queries), np.float32), none
        if system in ("hybrid", "bm25"):
            documents, scores, spread = self.bm25.search_and_spread(queries, depth)
            sparse = Ranked(documents, scores)
        if system != "bm25":
            dense = Ranked(*self.dense.search(self.encode(queries), depth))
        if system == "hybrid":
            return self.fused(sparse, dense, spread, k)
        return fuse(sparse, dense, k, Spreads(np.ones(len(queries)), 1.0), weight=float(system != "bm25"))

    def fused(self, bm25: Ranked, dense: Ranked, bm25_spread: NDArray[np.float32], k: int) -> Fused:
        """Fuse lists for the same queries, as this search does it."""
        how = self.settings
        return fuse(bm25, dense, k, Spreads(bm25_spread, how["dense_spread"]), how["method"], how["weight"])

    def vectors(self) -> Vectors | None:
        """Return the vectors of all documents, [N, D]; None where the index keeps them only approximately."""
        return self.dense.vectors()

    def _hits(self, found: Fused) -> list[list[Hit]]:
        texts = self.texts(np.unique(found.documents[found.documents != PADDING]).tolist())
        results = []
        for rows in zip(*found, strict=True):
            hits = []
            for rank, (document, score, *parts) in enumerate(zip(*rows, strict=True), start=1):
                if document == PADDING:
                    break
                said = [None if np.isnan(value) else float(value) for value in parts]
                ranks = [None if said[place] is None else int(said[place]) for place in (0, 2)]  # type: ignore[arg-type]
                hits.append(Hit(rank=rank, **texts[int(document)], score=float(score), bm25_rank=ranks[0],
                                bm25_score=said[1], dense_rank=ranks[1], dense_score=said[3]))  # fmt: skip
            results.append(hits)
        return results

    def texts(self, rows: list[int]) -> dict[int, dict[str, str]]:
        """Return ``document_id``, ``title`` and ``text`` of documents, by their rows in the corpus."""
        if isinstance(self._documents, Documents):
            return self._documents[rows]
        found = self._documents.iloc[rows][["document_id", "title", "text"]].to_dict("records")
        return dict(zip(rows, found, strict=True))  # type: ignore[arg-type]
