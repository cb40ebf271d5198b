"""Documents that state some facts of another one and not all: its neighbours on the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from scipy import sparse

from anmi import seeds
from anmi.retrieval.variants.context import Context, documents_as_variants, first_of_each

_BLOCK: Final = 1024


def make_neighbours(context: Context, ids: Sequence[str], texts: Sequence[str], count: int, seed: int) -> pd.DataFrame:
    """Return up to ``count`` documents of the corpus for each document that share facts with it and lack some.

    Those that share most come first, by the mean of the two documents' shares of common facts; equals are drawn at
    random. What lacks a fact is no answer to a query for all of them, however much it looks like one, and nothing but
    the graph tells it from a document that states all of them.

    Parameters
    ----------
    context
        N documents.
    ids, texts
        Of all documents of the corpus.
    count
        Neighbours per document, at most.
    seed
        Of the run; with the document's id it names the random stream.

    Returns
    -------
    pandas.DataFrame
        ``place, kind, text, old, new, relation, variant_id``: place of the document in the context, the entities that
        the two are about (empty where a document is about none), no relation, and the id of the neighbour.
    """
    stated = context.graph.stated.astype(np.int32)
    transposed, size = sparse.csc_array(stated.T), np.asarray(stated.sum(axis=1)).ravel()
    places, others = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, len(context.documents) if count else 0, _BLOCK):
        documents = context.documents[start : start + _BLOCK]
        shared = sparse.csr_array(stated[documents] @ transposed)
        row = np.repeat(np.arange(len(documents)), np.diff(shared.indptr))
        own, other = size[documents][row], size[shared.indices]
        likeness = shared.data / own + shared.data / other
        tie = _uniform(context, shared, start, seed)
        order = np.lexsort((tie, -likeness, row))
        order = order[(shared.data < own)[order]]
        order = order[first_of_each(row[order], count)]
        places.append(row[order] + start)
        others.append(shared.indices[order].astype(np.int64))
    place, found = np.concatenate(places), np.concatenate(others)
    return documents_as_variants(context, "neighbour", place, found, [""] * len(found), ids, texts)


def _uniform(context: Context, shared: sparse.csr_array, start: int, seed: int) -> np.ndarray:
    """A random number for every pair of documents, the same in whichever block the first one is."""
    lengths = np.diff(shared.indptr)
    width = int(lengths.max(initial=0))
    slots = np.zeros((len(lengths), width), np.int32)
    there = np.arange(width) < lengths[:, None]
    slots[there] = shared.indices
    names = context.ids[start : start + len(lengths)]
    return seeds.uniform(seed, "variants/neighbour", names, slots)[there]
