"""Encoding in other processes: each opens the encoder for itself and keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from anmi.engine.threads import OF_A_NETWORK, for_threads
from anmi.retrieval.encoders import Role, embed, load_encoder, load_table
from anmi.retrieval.kinds import device, is_static
from anmi.retrieval.prompts import Prompts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.retrieval.token_table import TokenTable


@lru_cache(maxsize=1)
def opened(encoder: str, models: Path, max_length: int | None, prompts: Prompts) -> SentenceTransformer | TokenTable:
    """Return an encoder of :func:`anmi.retrieval.encoders.load_encoder`, as a table if it is one; the last is kept."""
    table = load_table(encoder, models, prompts)
    return table if table is not None else for_threads(load_encoder(encoder, models, max_length, prompts))


@dataclass(frozen=True)
class Encoding:
    """Encodes batches of texts to unit vectors, as :func:`anmi.retrieval.encoders.encode` does.

    Attributes
    ----------
    encoder, models, max_length, prompts
        See :func:`anmi.retrieval.encoders.load_encoder`; other machines must find the same files there.
    precision, batch_size, role
        See :func:`anmi.retrieval.encoders.encode`.
    """

    in_threads_below: ClassVar[int] = OF_A_NETWORK

    encoder: str
    models: Path
    max_length: int | None
    prompts: Prompts
    precision: str
    batch_size: int
    role: Role

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of a batch, float32 [T, D]."""
        return embed(self._model, texts, self.precision, self.batch_size, self.role)

    @property
    def worth_sending(self) -> bool:
        """Whether it pays to encode in other processes: not a table look-up, nor where one process has the GPU."""
        return not is_static(self._model) and device() == "cpu"

    @property
    def _model(self) -> SentenceTransformer | TokenTable:
        return opened(self.encoder, self.models, self.max_length, self.prompts)
