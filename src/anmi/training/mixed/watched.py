"""What the index of latent negatives shows in training: neighbours of a few queries, and clusters of entities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.corpus.splits import choose
from anmi.training.batch import Row
from anmi.training.mixed.latent import Snapshot
from anmi.training.mixed.stock import Stock

# As many neighbours of a query as the report of DNH shows, of as many queries as people look at.
DEPTH: Final = 5
MOST_QUERIES: Final = 20
COLUMNS: Final = ("step", "query_id", "rank", "document_id", "uri", "own_uri", "usable")


class WatchedQueries:
    """Notes the nearest documents of a few queries, with the entities they are about, each time the index is made.

    Parameters
    ----------
    rows
        All training rows; at most 20 of different queries are watched, chosen by a hash of their ids.
    stock
        Names documents and entities.
    seed
        Of the training.

    Attributes
    ----------
    rows
        Numbers of the rows that are watched, int64 [W].
    """

    def __init__(self, rows: Iterable[Row], stock: Stock, seed: int) -> None:
        first: dict[str, int] = {}
        for number, row in enumerate(rows):
            first.setdefault(row.query_id, number)
        names = sorted(first)
        chosen = [name for name, kept in zip(names, choose(names, MOST_QUERIES, seed), strict=True) if kept]
        self.rows = np.array([first[name] for name in chosen], np.int64)
        self._names, self._stock = chosen, stock
        self._noted: list[list[Any]] = []

    def note(
        self, step: int, watched: NDArray[np.int64], own: NDArray[np.int64], documents: NDArray[np.int64],
        usable: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Write down the neighbours of some of the watched queries.

        Parameters
        ----------
        step
            Steps made so far.
        watched
            Their places among :attr:`rows`, int64 [n].
        own
            Numbers of the entities that their positives are about, int64 [n]; -1 for none.
        documents, usable
            Nearest first, int64 [n, 5] padded with -1; and whether each may be a negative, bool [n, 5].
        """
        for line, place in enumerate(watched.tolist()):
            for rank in np.flatnonzero(documents[line] >= 0).tolist():
                document = int(documents[line, rank])
                entities = (int(self._stock.about[document]), int(own[line]))
                uris = [self._stock.uris[entity] if entity >= 0 else "" for entity in entities]
                name = self._stock.ids[document]
                self._noted.append([step, self._names[place], rank + 1, name, *uris, bool(usable[line, rank])])

    def table(self) -> pd.DataFrame:
        """Return what was noted, in that order; see :func:`neighbour_table`."""
        return neighbour_table(self._noted)

    def state(self) -> list[list[Any]]:
        """Return what was noted, as plain JSON values."""
        return self._noted

    def load(self, values: list[list[Any]]) -> None:
        """Go on from what :meth:`state` gave."""
        self._noted = [list(line) for line in values]


def neighbour_table(noted: Iterable[Sequence[Any]] = ()) -> pd.DataFrame:
    """Return ``step, query_id, rank, document_id, uri, own_uri, usable`` of lines in this order."""
    types: dict[str, Any] = {"step": "int64", "rank": "int64", "usable": bool}
    types |= dict.fromkeys(("query_id", "document_id", "uri", "own_uri"), "str")
    return pd.DataFrame(list(noted), columns=list(COLUMNS)).astype(types)


def scattered(snapshot: Snapshot | None, about: NDArray[np.int32]) -> float:
    """Return the share of documents whose nearest other document is about another entity.

    Counted are those that share their entity with another document of the index; 0 means that every entity is a
    cluster of its own. It is one less the nearest-neighbour purity of the clusters.

    Parameters
    ----------
    snapshot
        Documents of the index and their unit vectors, n of them; None gives NaN, as does an index without two documents
        about one entity.
    about
        Number of the entity that each document of the corpus is about, int32 [D]; -1 for none.

    Examples
    --------
    >>> vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [0.28, 0.96]], np.float32)
    >>> snapshot = Snapshot(np.arange(4), np.zeros(4, np.int64), vectors)
    >>> scattered(snapshot, np.array([0, 0, 1, 0], np.int32)), scattered(snapshot, np.array([0, 1, 2, 3], np.int32))
    (0.3333333333333333, nan)
    """
    if snapshot is None:
        return float("nan")
    entity = about[snapshot.documents]
    known = np.flatnonzero(entity >= 0)
    entity, vectors = entity[known], snapshot.vectors[known]
    _, kind, count = np.unique(entity, return_inverse=True, return_counts=True)
    counted = count[kind] > 1 if len(kind) else np.zeros(0, bool)
    if not counted.any():
        return float("nan")
    near = vectors[counted] @ vectors.T
    near[np.arange(len(near)), np.flatnonzero(counted)] = -np.inf
    return float((entity[near.argmax(axis=1)] != entity[counted]).mean())
