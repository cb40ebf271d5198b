"""Candidates drawn at random from the whole corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anmi import seeds
from anmi.candidates import PADDING
from anmi.retrieval.pool import compacted, without

_STEP: Final = "dense/random"
# Up to so many documents per wanted one, numbering all of them costs less than drawing until enough are different.
_SMALL: Final = 16


def draw(
    seed: int,
    query_ids: Sequence[str] | NDArray[np.str_],
    excluded: NDArray[np.int32],
    documents: int,
    count: int,
) -> NDArray[np.int32]:
    """Draw documents uniformly without replacement for every query.

    A query's draw depends on the seed, its identifier, its excluded documents and the size of the corpus only. Small
    corpora are put in random order; from large ones documents are drawn until ``count`` different ones remain, so
    that memory does not grow with the corpus.

    Parameters
    ----------
    seed
        Of the run.
    query_ids
        Q identifiers.
    excluded
        Documents that are never drawn, int32 [Q, P], padded with -1.
    documents
        Number of documents in the corpus, N.
    count
        Documents per query.

    Returns
    -------
    numpy.ndarray
        int32 [Q, up to ``count``], padded with -1 where fewer documents are left.

    Examples
    --------
    >>> sorted(draw(1, ["q"], np.array([[1]], np.int32), documents=4, count=9)[0].tolist())
    [0, 2, 3]
    """
    if count == 0 or len(query_ids) == 0:
        return np.zeros((len(query_ids), 0), np.int32)
    if documents <= _SMALL * count:
        everything = np.tile(np.arange(documents, dtype=np.int32), (len(query_ids), 1))
        order = np.argsort(seeds.uniform(seed, _STEP, query_ids, everything), axis=1).astype(np.int32)
        return _first(without(order, excluded), count)
    barred = np.sort(excluded, axis=1)
    distinct = (barred != PADDING).sum(axis=1) - ((barred[:, 1:] == barred[:, :-1]) & (barred[:, 1:] != PADDING)).sum(1)
    wanted = np.minimum(count, documents - distinct)
    width = count + excluded.shape[1] + _SMALL
    while True:
        slots = np.tile(np.arange(width, dtype=np.int32), (len(query_ids), 1))
        # More draws only go on from the earlier ones, so rows that need them change nothing for the others.
        drawn = (seeds.uniform(seed, _STEP, query_ids, slots) * documents).astype(np.int32)
        found = _first(without(_once(drawn), excluded), count)
        if ((found != PADDING).sum(axis=1) >= wanted).all():
            return found
        width *= 2


def _first(documents: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """The first ``count`` documents of each row that are no padding."""
    return compacted(documents)[0][:, :count].astype(np.int32)


def _once(documents: NDArray[np.int32]) -> NDArray[np.int32]:
    """Blank what has stood in the row before."""
    order = np.argsort(documents, axis=1, kind="stable")
    ascending = np.take_along_axis(documents, order, axis=1)
    ascending[:, 1:][ascending[:, 1:] == ascending[:, :-1]] = PADDING
    result = np.empty_like(documents)
    np.put_along_axis(result, order, ascending, axis=1)
    return result
