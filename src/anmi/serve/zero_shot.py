"""What the encoder found before it was trained, to be seen beside what it finds now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anmi.candidates import PADDING
from anmi.retrieval.dense import DenseIndex
from anmi.retrieval.prompts import OWN, Prompts
from anmi.search import Hit, HybridSearch


@dataclass(frozen=True)
class ZeroShot:
    """A search by the encoder that training began with.

    Attributes
    ----------
    index
        Of the documents' vectors by this encoder, in the order of the corpus.
    encode
        From queries to their vectors by it.
    """

    index: DenseIndex
    encode: Callable[[Sequence[str]], NDArray[np.float32]]

    @staticmethod
    def by(
        index: DenseIndex, encoder: str, models: Path, max_length: int | None = None, prompts: Prompts = OWN,
        precision: str = "auto", batch_size: int = 64,
    ) -> ZeroShot:  # fmt: skip
        """Return the search of an encoder, which is opened when it is asked first.

        Parameters
        ----------
        index
            Made with this encoder.
        encoder, models, max_length, prompts
            See :func:`anmi.retrieval.encoders.load_encoder`.
        precision, batch_size
            See :func:`anmi.retrieval.encoders.encode`.
        """

        def encode(texts: Sequence[str]) -> NDArray[np.float32]:
            from anmi.retrieval.encoding import Encoding

            return Encoding(encoder, models, max_length, prompts, precision, batch_size, "query")(list(texts))

        return ZeroShot(index, encode)

    def hits(self, question: str, k: int, search: HybridSearch) -> list[Hit]:
        """Return the best documents of a question, with their texts out of another search of the same corpus."""
        rows, scores = (found[0].tolist() for found in self.index.search(self.encode([question]), k))
        found = [(row, score) for row, score in zip(rows, scores, strict=True) if row != PADDING]
        texts: dict[int, dict[str, Any]] = search.texts([row for row, _ in found])
        return [
            Hit(rank=rank, score=score, dense_rank=rank, dense_score=score, **texts[row])
            for rank, (row, score) in enumerate(found, start=1)
        ]
