"""A search is made of parts: BM25, and retrievers that are trained or taken as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from anmi.ragged import Float32s
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.fusion import Ranked, Search
from anmi.retrieval.index import DenseIndex, SparseIndex, load_index, term_table
from anmi.retrieval.kinds import EncoderSettings

if TYPE_CHECKING:
    from anmi.retrieval.encoders import Encoder

BM25: Final = "bm25"
# The network that comes with a package, and the corpus's own encoder, both untrained.
NETWORK: Final = "network"
CORPUS: Final = "corpus"
# A trained retriever is called by its kind.
TRAINED: Final = ("dense", "sparse")

Kind = Literal["bm25", "dense", "sparse"]
PartIndex: TypeAlias = BM25Index | DenseIndex | SparseIndex
_INDEX: Final = "index"
_MODEL: Final = "model"


@dataclass
class Part:
    """One of the systems that a search fuses.

    Attributes
    ----------
    name
        ``bm25``, ``network``, ``corpus``, or the kind of a trained retriever.
    index
        Of all passages, in the order of the corpus.
    encoder
        Of queries, and of documents that change; None for BM25.
    spread
        What scores are divided by to be compared, see
        :func:`anmi.retrieval.index.spread_of_scores`; BM25's is each query's own.
    """

    name: str
    index: PartIndex
    encoder: Encoder | None = None
    spread: float = 1.0

    @property
    def kind(self) -> Kind:
        """What the part ranks by: terms, directions, or learned weights of terms."""
        if isinstance(self.index, BM25Index):
            return "bm25"
        return "sparse" if isinstance(self.index, SparseIndex) else "dense"

    @property
    def passages(self) -> int:
        """How many passages are indexed."""
        return int(self.index.settings["documents"])

    @property
    def about(self) -> dict[str, Any]:
        """What is noted of the part in the folder of a search."""
        about = {"name": self.name, "kind": self.kind, "spread": self.spread}
        if self.encoder is None:
            return about
        return about | {"encoder": self.encoder.settings.model_dump(exclude={"encoder", "device"})}

    @cached_property
    def encode(self) -> Callable[[Sequence[str]], Any]:
        """Return the vectors of queries, of a sparse retriever their terms, with its own prompt.

        Raises
        ------
        AnmiError
            The folder holds more than data, or no such model.
        """
        from anmi.retrieval.model_folder import check_folder

        assert self.encoder is not None
        check_folder(self.encoder.folder)
        if (terms := term_table(self.encoder.folder)) is not None:
            return terms
        return partial(self.encoder.encode, role="query")

    def search_of(self, queries: Sequence[str]) -> tuple[Search, Float32s]:
        """Return the search for Q queries, and what their scores are divided by, float32 [Q].

        BM25's spread is known once the search has been called.
        """
        index = self.index
        if isinstance(index, BM25Index):
            return index.search_of(queries)
        vectors = self.encode(queries)
        spread = np.full(len(queries), self.spread, np.float32)
        return lambda count: Ranked(*index.search(vectors, count)), spread

    def save(self, folder: Path) -> None:
        """Write index and model into a new folder."""
        from anmi.search.folder import copy_model

        (folder / _INDEX).mkdir(parents=True)
        self.index.save(folder / _INDEX)
        if self.encoder is not None:
            copy_model(self.encoder.folder, folder / _MODEL)

    @staticmethod
    def load(folder: Path, about: Mapping[str, Any]) -> Part:
        """Open what :meth:`save` wrote; models are read when they are needed."""
        if about["kind"] == BM25:
            return Part(about["name"], BM25Index.load(folder / _INDEX))
        from anmi.retrieval.encoders import Encoder

        index = load_index(folder / _INDEX)
        settings = EncoderSettings(encoder=str(folder / _MODEL), **about["encoder"])
        return Part(about["name"], index, Encoder(settings, folder), float(about["spread"]))
