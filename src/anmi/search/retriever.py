"""A retriever of a search consists of a trained model and an index of its vectors of the documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from anmi.retrieval.fusion import Ranked
from anmi.retrieval.index import Index, SparseIndex, Vectors
from anmi.search.folder import COMPANION

Encode = Callable[[Sequence[str]], Any]


def open_encoder(
    folder: Path, max_length: int | None, precision: Literal["auto", "float32", "bfloat16"], batch_size: int = 64
) -> Encode:
    """Return a function from queries to unit vectors, with the model's own prompt; for a sparse retriever to terms.

    Parameters
    ----------
    folder
        A sentence-transformers model.
    max_length, precision, batch_size
        As in :func:`anmi.retrieval.encoders.load_encoder` and :func:`anmi.retrieval.encoders.encode`.

    Raises
    ------
    AnmiError
        The folder holds more than data, or no such model.
    """
    from anmi.retrieval.encoders import cached_encoder, encode
    from anmi.retrieval.index import term_table
    from anmi.retrieval.model_folder import check_folder

    check_folder(folder)
    if (terms := term_table(folder)) is not None:
        return terms
    model = cached_encoder(str(folder), folder.parent, max_length)
    return lambda texts: encode(model, texts, precision=precision, batch_size=batch_size, role="query")


Kind = Literal["dense", "sparse"]
# Where models lie in the folder of a search.
MODELS: Final = ("model", COMPANION)


class Encoded(NamedTuple):
    """What a search is made of, of each retriever.

    Attributes
    ----------
    model
        Folder of the trained sentence-transformers model.
    embeddings
        Of the documents by the model: unit vectors, float32 [N, D], or a sparse retriever's, [N, V].
    spread
        What its scores are divided by to be compared, see :func:`anmi.retrieval.index.spread_of_scores`.
    """

    model: Path
    embeddings: Vectors
    spread: float


@dataclass
class Retriever:
    """A trained retriever and its index.

    Attributes
    ----------
    model
        Folder of the sentence-transformers model.
    index
        Of its vectors, of either :attr:`kind`.
    how
        ``max_length``, ``precision`` and ``batch_size`` that texts are encoded with.
    """

    model: Path
    index: Index
    how: Mapping[str, Any] = field(repr=False)

    @property
    def kind(self) -> Kind:
        """What the model gives: a direction, or weights of terms."""
        return "sparse" if isinstance(self.index, SparseIndex) else "dense"

    @cached_property
    def encode(self) -> Encode:
        """From queries to their vectors, with the prompt that the model was trained with."""
        return open_encoder(self.model, self.how["max_length"], self.how["precision"], self.how["batch_size"])

    def search(self, queries: Sequence[str], k: int) -> Ranked:
        """Return the rows of the best documents in the corpus, [Q, k], with their scores."""
        return Ranked(*self.index.search(self.encode(queries), k))


def companion_of(model: Path) -> list[Path]:
    """Return the folder of the retriever that was trained beside a model, none where there is none."""
    folder = model / COMPANION
    return [folder] if folder.is_dir() else []
