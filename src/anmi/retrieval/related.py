"""Tells which documents must not be negatives of a query, given its positives."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import PADDING
from anmi.retrieval.pool import duplicate_groups

# Values of the column `related` of a block of candidates; a near-duplicate that is a sibling too counts as the former.
KINDS: Final = {"near": 1, "sibling": 2}


class RelatedDocuments:
    """Near-duplicates and siblings of every document, with all documents of the same text counted as one.

    Parameters
    ----------
    group
        For every document the index of the first one with the same text, int32 [N].
    starts
        Where the related ones of each group begin in ``others``, int64 [N + 1].
    others
        Groups of their near-duplicates, int32 [E], in order within a group.
    family
        For every document the index of the first one of the same parent, int32 [N].

    Examples
    --------
    >>> table = pd.DataFrame({"document_id": ["a", "d"], "other_id": ["c", "c"], "kind": ["near", "copy"]})
    >>> related = RelatedDocuments.from_table(table, ["a", "b", "c", "d"])
    >>> related.barred(np.array([[0, -1], [1, 3]], np.int32)).tolist()
    [[0, 2, 3, -1], [0, 1, 2, 3]]
    >>> related.kinds(np.array([[0]], np.int32), np.array([[1, 3, -1]], np.int32)).tolist()
    [[0, 1, 0]]
    """

    def __init__(
        self, group: NDArray[np.int32], starts: NDArray[np.int64], others: NDArray[np.int32], family: NDArray[np.int32]
    ) -> None:
        self._group, self._starts, self._others, self._family = group, starts, others, family
        self._members, self._first_member = _listed(group)
        self._parts, self._first_part = _listed(family)

    @staticmethod
    def unrelated(documents: int) -> RelatedDocuments:
        """Return the lookup of N documents of which none is related to another."""
        each = np.arange(documents, dtype=np.int32)
        return RelatedDocuments(each, np.zeros(documents + 1, np.int64), np.zeros(0, np.int32), each)

    @staticmethod
    def from_table(table: pd.DataFrame, document_ids: list[str]) -> RelatedDocuments:
        """Build the lookup from what ingestion made.

        Parameters
        ----------
        table
            ``document_id, other_id, kind``, each near pair in one direction, siblings with the first of them; see
            :func:`anmi.corpus.related.find_related`.
        document_ids
            In corpus order.
        """
        group = duplicate_groups(document_ids, table)
        count, family = len(group), np.arange(len(group), dtype=np.int32)
        table = table[table["kind"].isin(KINDS)]
        position = pd.Series(np.arange(count), index=document_ids) if len(table) else pd.Series(dtype="int64")
        place = [position.loc[table[name]].to_numpy(np.int64) for name in ("document_id", "other_id")]
        near = (table["kind"] == "near").to_numpy()
        family[place[1][~near]] = place[0][~near]
        first, second = (group[rows[near]].astype(np.int64) for rows in place)
        one, other = np.concatenate([first, second]), np.concatenate([second, first])
        edges = np.unique((one * count + other)[one != other])
        starts = np.searchsorted(edges // max(count, 1), np.arange(count + 1))
        return RelatedDocuments(group, starts, (edges % max(count, 1)).astype(np.int32), family)

    def __len__(self) -> int:
        return len(self._group)

    def same_text(self, documents: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the documents of each row and all of the same text: int32 [Q, P'] from [Q, P], padded with -1.

        Examples
        --------
        >>> table = pd.DataFrame({"document_id": ["c"], "other_id": ["a"], "kind": ["copy"]})
        >>> RelatedDocuments.from_table(table, ["a", "b", "c"]).same_text(np.array([[2], [1]], np.int32)).tolist()
        [[0, 2], [1, -1]]
        """
        row, slot = np.nonzero(documents != PADDING)
        return self._texts(row * len(self._group) + self._group[documents[row, slot]], len(documents))

    def kinds(self, positives: NDArray[np.int32], documents: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Say of each document whether it is related to a positive of its row.

        Parameters
        ----------
        positives, documents
            int32 [Q, P] and [Q, M], padded with -1.

        Returns
        -------
        numpy.ndarray
            uint8 [Q, M]: 0 none, 1 near-duplicate, 2 sibling of a positive (1 where both); 0 in padding.
        """
        keys, kinds = self._of_rows(positives)
        if not len(keys):
            return np.zeros(documents.shape, np.uint8)
        row = np.arange(len(documents))[:, None]
        wanted = np.where(documents == PADDING, -1, row * len(self._group) + self._group[documents])
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, kinds[place], 0).astype(np.uint8)

    def barred(self, positives: NDArray[np.int32], own: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """Return what must not be a negative in each row: positives, what is related to them, and copies of these.

        Parameters
        ----------
        positives
            int32 [Q, P], padded with -1.
        own
            Documents that the query itself is, int32 [Q, S], padded with -1; they and those of the same text are barred
            as well, and what is related to them is not, since these may be what the query asks against.

        Returns
        -------
        numpy.ndarray
            int32 [Q, K], each row in order of document index and padded with -1; K is at least 1.
        """
        same = positives if own is None else np.concatenate([positives, own], axis=1)
        place, slot = np.nonzero(same != PADDING)
        keys = place * len(self._group) + self._group[same[place, slot]]
        return self._texts(np.concatenate([self._of_rows(positives)[0], keys]), len(positives))

    def _texts(self, keys: NDArray[np.int64], rows: int) -> NDArray[np.int32]:
        """Return the documents of groups, given by keys ``row · N + group``: int32 [Q, K ≥ 1], in order, padded."""
        row, group = np.divmod(np.unique(keys), max(len(self._group), 1))
        owner, place = _spread(self._first_member[group], self._first_member[group + 1])
        row, documents = np.divmod(np.sort(row[owner] * len(self._group) + self._members[place]), len(self._group))
        counts = np.bincount(row, minlength=rows)
        result = np.full((rows, max(int(counts.max(initial=0)), 1)), PADDING, np.int32)
        result[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = documents
        return result

    def _of_rows(self, positives: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return keys ``row · N + group`` of what is related to each row's positives, ascending, and their kinds."""
        row, slot = np.nonzero(positives != PADDING)
        group, count = self._group[positives[row, slot]], len(self._group)
        near, place = _spread(self._starts[group], self._starts[group + 1])
        # The parents of all documents of a text, their parts, and what has the same text as those.
        copy, member = _spread(self._first_member[group], self._first_member[group + 1])
        family = self._family[self._members[member]]
        part, listed = _spread(self._first_part[family], self._first_part[family + 1])
        sibling, other = copy[part], self._group[self._parts[listed]]
        apart = other != group[sibling]
        keys = np.concatenate([row[near] * count + self._others[place], (row[sibling] * count + other)[apart]])
        # Near ones stand first, so that they win.
        keys, first = np.unique(keys, return_index=True)
        return keys, np.where(first < len(near), KINDS["near"], KINDS["sibling"])


def _listed(group: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the documents group by group, and where each group begins in that list, [N + 1]."""
    members = np.argsort(group, kind="stable")
    return members, np.searchsorted(group[members], np.arange(len(group) + 1))


def _spread(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of the range that each place belongs to, and the places of all ranges one after the other."""
    lengths = ends - starts
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner] + starts[owner]
