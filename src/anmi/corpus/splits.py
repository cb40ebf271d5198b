"""The module cuts splits that depend on the seed and the text of the query alone.

An id says nothing of what is asked: were it hashed, queries of one text could fall into two splits, or a query move to
another one when its text comes again under another id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from anmi.corpus.related import parents_of
from anmi.corpus.texts import column, document_texts, normalised


def position(seed: int, purpose: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every text, the same in every process and for every order.

    Examples
    --------
    >>> bool((position(1, "split", ["a", "b"]) == position(1, "split", ["b", "a"])[::-1]).all())
    True
    """
    words = b"".join(
        hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{text}".encode(), digest_size=8).digest() for text in texts
    )
    # The top 53 bits fit a float exactly, so 1.0 cannot come out by rounding.
    return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


def cut(texts: Sequence[str], seed: int, *, dev_share: float = 0.0, test_share: float = 0.0) -> NDArray[np.str_]:
    """Cut dev and test from training queries.

    Parameters
    ----------
    texts
        Normalised texts of the queries, see :func:`anmi.corpus.texts.normalised`.
    seed
        Keys the hash.
    dev_share, test_share
        Expected shares in [0, 1); 0 cuts nothing.

    Returns
    -------
    numpy.ndarray
        ``train``, ``dev`` or ``test`` for every text; equal texts get the same.
    """
    place = position(seed, "split", texts)
    return np.select([place < test_share, place < test_share + dev_share], ["test", "dev"], default="train")


def choose(texts: Sequence[str], count: int, seed: int) -> NDArray[np.bool_]:
    """Choose ``count`` texts by their hash; a larger count contains every smaller one, and of equal texts the first."""
    order = np.argsort(position(seed, "subset", texts), kind="stable")
    chosen = np.zeros(len(texts), bool)
    chosen[order[:count]] = True
    return chosen


# Fewer dev queries with a label choose little, so pseudo-queries stand in.
FEWEST_DEV: Final = 20
# At most this share of the documents is new for each of dev and test, so that enough are left to learn from.
_MOST_NEW: Final = 0.1
# In small collections up to ten documents are new, which ask several pseudo-queries each, but no more than a fifth of
# all. With fewer than twenty passages nothing could be measured, and training gets them all.
_NEW_OF_FEW: Final = 10


def new_documents(
    corpus: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame, related: pd.DataFrame, *, wanted: int, seed: int
) -> pd.DataFrame:
    """Choose documents that mining and training must not see, so that they stand for those that come later.

    They answer queries of dev or test, and no training query names them. Half of the queries that nobody's training
    label gives away get new documents, and no more than are wanted; a tenth of all documents is new for a split at
    most. Where a split has too few labels, any documents are chosen, a twentieth of all where that is more, and
    pseudo-queries are made of them; of few documents ten are new, or a fifth where that is less, and of fewer than
    twenty passages none. The new documents of a split have at most a fifth of all passages.

    Parameters
    ----------
    corpus, queries, qrels
        As in :class:`anmi.corpus.types.Collection`.
    related
        ``document_id, other_id``: copies and near-duplicates, which are new together, as are the parts of one text.
    wanted
        Queries of each split, all of whose relevant documents are new; 0 chooses none.
    seed
        Keys the hash of the texts that chooses.

    Returns
    -------
    pandas.DataFrame
        ``document_id, split``: ``dev`` or ``test``, the split whose queries ask for them.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": list("abcd"), "title": "", "text": list("abcd"), "metadata": "{}"})
    >>> queries = pd.DataFrame({"query_id": ["q", "r"], "text": ["q", "r"], "split": ["train", "test"]})
    >>> qrels = pd.DataFrame({"query_id": ["q", "r"], "document_id": ["a", "b"], "relevance": 1})
    >>> related = pd.DataFrame({"document_id": [], "other_id": []}, dtype=str)
    >>> found = new_documents(corpus, queries, qrels, related, wanted=100, seed=1)
    >>> found[found.split == "test"].document_id.tolist()
    ['b']
    """
    corpus, qrels, passages = corpus.reset_index(drop=True), qrels.reset_index(drop=True), len(corpus)
    place = pd.Series(np.arange(passages), index=corpus.document_id)
    # Pairs of what is related, and every part of a text with the first one.
    parts = pd.factorize(parents_of(corpus))[0]
    firsts = np.unique(parts, return_index=True)[1]
    count, own = len(firsts), (("document_id", np.arange(passages)), ("other_id", firsts[parts]))
    ends = [np.concatenate([place[related[name]].to_numpy(), each]) for name, each in own]
    edges = coo_array((np.ones(len(related) + passages, bool), ends), (passages, passages))
    groups, group = connected_components(edges, directed=False)
    # How many documents and passages each group has.
    size = np.stack([np.bincount(each, minlength=groups) for each in (group[firsts], group)], axis=1)
    split_of = qrels.query_id.map(queries.set_index("query_id").split)
    named = pd.DataFrame({"split": split_of, "group": qrels.document_id.map(pd.Series(group, place.index))})
    named = named.assign(query_id=qrels.query_id, relevant=qrels.relevance > 0).dropna().astype({"group": int})
    taken = np.full(groups, "", object)
    taken[named.group[named.split == "train"]] = "train"
    for split in ("test", "dev") if wanted else ():
        room, most = max(_MOST_NEW * count, 1), wanted
        if qrels.query_id[split_of == split].nunique() >= (FEWEST_DEV if split == "dev" else 1):
            asked = named[(named.split == split) & named.relevant].groupby("query_id").group.agg(set)
            texts = queries.set_index("query_id").text[asked.index]
        else:
            # Few labelled queries: pseudo-queries of new documents stand in, which cost nothing, so a twentieth is new.
            most = max(wanted, count // 20)
            room = max(_MOST_NEW * count, min(_NEW_OF_FEW, count // 5)) if passages >= 2 * _NEW_OF_FEW else 0
            asked = pd.Series([{number} for number in range(groups)])
            texts = pd.Series(document_texts(corpus)).groupby(group).first()
        free = np.array([not any(taken[list(found)] == "train") for found in asked], bool)
        order = np.argsort(position(seed, f"new/{split}", [normalised(text) for text in texts]), kind="stable")
        left = np.array([room, max(passages // 5, 1)])
        for found in asked.iloc[order[free[order]][: min(most, -(-int(free.sum()) // 2))]]:
            fresh = [number for number in found if not taken[number]]
            cost = size[fresh].sum(axis=0)
            if (cost <= left).all():
                taken[fresh] = split
                left = left - cost
    chosen = corpus[["document_id"]].assign(split=column(taken[group]))
    return chosen[chosen.split.isin(("dev", "test"))].reset_index(drop=True)
