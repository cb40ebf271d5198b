"""Which negatives a training drew, counted by query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pandas as pd

from anmi.corpus.splits import choose
from anmi.training.batch import Row

# A share of the negatives of so many queries is known to half a per cent, and memory does not grow with the training.
MOST_QUERIES: Final = 2_000
COLUMNS: Final = ("query_id", "document_id", "count")


class DrawnNegatives:
    """Counts how often each document was drawn as a negative of each query.

    Negatives that a row gets from the other rows of its batch are not drawn for it and do not count.

    Parameters
    ----------
    query_ids
        Of the training rows.
    seed
        Keys which queries are counted where there are more than ``most``.
    most
        Queries counted at most, chosen by a hash of their ids.

    Examples
    --------
    >>> drawn = DrawnNegatives(["q"], seed=1)
    >>> drawn.add([Row("q", "?", "p", "yes", ("a", "b"), ("no", "not"), (1.0, 1.0), 1.0, frozenset("p"))])
    >>> drawn.table().values.tolist()
    [['q', 'a', 1], ['q', 'b', 1]]
    """

    def __init__(self, query_ids: Iterable[str], seed: int, most: int = MOST_QUERIES) -> None:
        names = sorted(set(query_ids))
        counted = choose(names, most, seed)
        self._counts = {name: Counter[str]() for name, chosen in zip(names, counted, strict=True) if chosen}

    def add(self, rows: Sequence[Row]) -> None:
        """Count the negatives of a step."""
        for row in rows:
            if row.query_id in self._counts:
                self._counts[row.query_id].update(row.negative_ids)

    def table(self) -> pd.DataFrame:
        """Return ``query_id, document_id, count``, sorted."""
        made = [(query, *pair) for query, found in sorted(self._counts.items()) for pair in sorted(found.items())]
        return pd.DataFrame(made, columns=list(COLUMNS)).astype({"query_id": str, "document_id": str, "count": "int64"})

    def state_dict(self) -> dict[str, dict[str, int]]:
        """Return all it needs to go on elsewhere, as plain JSON values."""
        return {query: dict(found) for query, found in self._counts.items() if found}

    def load_state_dict(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        for query, found in state.items():
            self._counts[query] = Counter(found)
