"""Negatives of labelled rows mined again and again by the encoder that is being trained (ANCE)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anmi.candidates import PADDING
from anmi.errors import AnmiError
from anmi.retrieval.encoders import Role
from anmi.training.batch import Row
from anmi.training.mixed.uniform import RowNumbers
from anmi.training.options.sources import RefreshedSources

log = logging.getLogger(__name__)
STREAM: Final = "training/refreshed"
# Similarities held at once, 64 MB.
_AT_ONCE: Final = 16_000_000


@dataclass(frozen=True)
class Documents:
    """All documents that negatives are mined from: ids and texts, D each."""

    ids: Sequence[str]
    texts: Sequence[str]


class RefreshedSampler:
    """Draws the negatives of a step from the nearest documents of each query, found anew every so many steps.

    Until the first time a row brings the negatives that were mined for it. The row's positives, what mining barred for
    it (copies and near-duplicates of its positives, what a judge found unsafe), all that of other rows of its query,
    and documents with the text of one of its positives are never drawn. What is drawn depends on the seed, the step,
    the row, and the weights when it was mined.

    Parameters
    ----------
    rows
        All training rows.
    count
        Negatives of a row in a step.
    seed
        Of the training.
    documents
        What is mined from.
    options
        How deep, and what is too near.
    every
        Steps between two minings.
    encode
        Unit vectors of texts in a role, float32 [n, d], by the encoder as it is at that moment.

    Raises
    ------
    AnmiError
        A positive of a row is not among the documents.

    References
    ----------
    Xiong et al., "Approximate Nearest Neighbor Negative Contrastive Learning for Dense Text Retrieval", ICLR 2021,
    arXiv 2007.00808; there the index is made beside the training and lags behind it, here training waits.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        count: int,
        seed: int,
        documents: Documents,
        options: RefreshedSources,
        every: int,
        encode: Callable[[list[str], Role], NDArray[np.float32]],
    ) -> None:
        self._rows, self._count, self._documents, self._options = rows, count, documents, options
        self._every, self._encode = every, encode
        self._first = [row.pick(range(min(count, len(row.negatives)))) for row in rows]
        self._uniform = RowNumbers(seed, STREAM, [f"{row.query_id}\x1f{row.positive_id}" for row in rows])
        number = {name: place for place, name in enumerate(documents.ids)}
        for row in rows:
            if row.positive_id not in number:
                raise AnmiError(
                    f'Training row of query "{row.query_id}" has the positive "{row.positive_id}", which is not in the '
                    "corpus that negatives are mined from; run ingestion and selection again."
                )
        self._own = np.array([number[row.positive_id] for row in rows], np.int64)
        self._barred = _barred(rows, documents, number)
        self._mined: NDArray[np.int64] | None = None
        self._at, self._renewed = 0, math.nan
        self.seconds = 0.0

    def __call__(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        """Return the rows of the given numbers with the negatives of this step (from 0)."""
        begun = time.perf_counter()
        if step != self._at and step % self._every == 0:
            self._mine(step)
        made = [self._first[number] for number in rows] if self._mined is None else self._draw(rows, step)
        self.seconds += time.perf_counter() - begun
        return made

    def report(self) -> dict[str, float]:
        """Return after how many steps was mined last, and the share of neighbours that were none the time before."""
        return {"mined_at": float(self._at), "renewed": self._renewed}

    def state_dict(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return all it needs to go on elsewhere, as plain JSON values and tensors."""
        tensors = {} if self._mined is None else {"mined": torch.from_numpy(self._mined)}
        return {"at": self._at, "renewed": self._renewed, "seconds": self.seconds}, tensors

    def load_state_dict(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self._at, self._renewed, self.seconds = values["at"], values["renewed"], values["seconds"]
        self._mined = tensors["mined"].numpy().copy() if tensors else None

    def _draw(self, rows: NDArray[np.int64], step: int) -> list[Row]:
        if self._mined is None:
            raise ValueError("nothing was mined yet")
        near = self._mined[rows]
        uniform = np.where(near == PADDING, np.inf, self._uniform(rows, step, near.shape[1]))
        drawn = np.take_along_axis(near, np.argsort(uniform, axis=1)[:, : self._count], axis=1)
        ids, texts = self._documents.ids, self._documents.texts
        return [
            replace(
                self._rows[number],
                negative_ids=tuple(ids[place] for place in line),
                negatives=tuple(texts[place] for place in line),
                weights=(1.0,) * len(line),
                judged={},
            )
            for number, line in zip(
                rows.tolist(), ([place for place in line if place != PADDING] for line in drawn.tolist()), strict=True
            )
        ]

    def _mine(self, step: int) -> None:
        """Find the nearest documents of every row that may be its negatives, int64 [rows, top], padded with -1."""
        texts = list(dict.fromkeys(row.query for row in self._rows))
        place = {text: number for number, text in enumerate(texts)}
        of_row = np.array([place[row.query] for row in self._rows], np.int64)
        queries, documents = self._encode(texts, "query"), self._encode(list(self._documents.texts), "document")
        top = min(self._options.top, len(documents))
        found = np.full((len(self._rows), top), PADDING, np.int64)
        size = max(_AT_ONCE // len(documents), 1)
        for start in range(0, len(found), size):
            part = slice(start, start + size)
            near = torch.from_numpy(self._near(queries[of_row[part]] @ documents.T, part))
            values, places = torch.topk(near, top, dim=1)
            found[part] = torch.where(values.isfinite(), places, PADDING).numpy()
        self._renewed = math.nan if self._mined is None else _renewed(self._mined, found)
        self._mined, self._at = found, step
        log.debug("Negatives were mined anew after %d steps; %.0f %% are new", step, 100 * self._renewed)

    def _near(self, similarity: NDArray[np.float32], part: slice) -> NDArray[np.float32]:
        """Return similarities [b, D] with −∞ in place of those of what may not be drawn."""
        own = np.take_along_axis(similarity, self._own[part, None], axis=1)
        for line, barred in zip(similarity, self._barred[part], strict=True):
            line[barred] = -np.inf
        if self._options.max_ratio is not None:
            similarity[similarity >= own - np.abs(own) * (1 - self._options.max_ratio)] = -np.inf
        return similarity


def _barred(rows: Sequence[Row], documents: Documents, number: dict[str, int]) -> list[NDArray[np.int64]]:
    """Documents that are never drawn for each row; rows of one query have the same."""
    of_text: dict[str, list[int]] = {}
    for place, text in enumerate(documents.texts):
        of_text.setdefault(text, []).append(place)
    known: dict[str, set[int]] = {}
    for row in rows:
        names = row.positive_ids | row.excluded_ids | {row.positive_id}
        places = {number[name] for name in names if name in number}
        relevant = [number[name] for name in (row.positive_id, *row.positive_ids) if name in number]
        places.update(copy for place in relevant for copy in of_text[documents.texts[place]])
        known.setdefault(row.query_id, set()).update(places)
    arrays = {query: np.array(sorted(places), np.int64) for query, places in known.items()}
    return [arrays[row.query_id] for row in rows]


def _renewed(before: NDArray[np.int64], now: NDArray[np.int64]) -> float:
    """Return the share of what is there now that was not before, over all rows."""
    width = int(max(before.max(), now.max())) + 2
    row = np.arange(len(now), dtype=np.int64)[:, None] * width
    fresh = ~np.isin(row + now, row + before) & (now != PADDING)
    return float(fresh.sum() / max(int((now != PADDING).sum()), 1))
