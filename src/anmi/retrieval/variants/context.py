"""A context tells what documents state, and where entities stand in their texts."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi.corpus.knowledge import KnowledgeGraph
from anmi.ragged import Bools, Float64s, Int32s, Int64s

Span = tuple[int, int]

# Thai, Lao, Burmese, Khmer, kana and Chinese characters: words stand without blanks between them.
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_HANGUL: Final = re.compile(r"[\uac00-\ud7a3]{2}")


@dataclass(frozen=True)
class Context:
    """N documents, their F facts, and S slots: entities of a document's facts with their mentions.

    Attributes
    ----------
    graph
        What is known.
    documents
        Numbers in the corpus, int32 [N].
    ids, texts
        Of these documents.
    corpus_ids, corpus_texts
        Of all documents of the corpus.
    row, fact
        Document (0 to N - 1) and triple of every fact, int64 [F], sorted.
    pairs
        Codes ``document · nodes + node`` of all nodes in the facts of a document, sorted.
    slot_row, slot_entity
        Document and entity of every slot, int64 [S], sorted.
    slot_spans
        Its mentions.
    """

    graph: KnowledgeGraph
    documents: Int32s
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    corpus_ids: Sequence[str]
    corpus_texts: Sequence[str]
    row: Int64s
    fact: Int64s
    pairs: Int64s
    slot_row: Int64s
    slot_entity: Int64s
    slot_spans: list[list[Span]]

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        documents: Int32s,
        ids: Sequence[str],
        texts: Sequence[str],
    ) -> Context:
        """Find the mentions in documents of the corpus.

        Parameters
        ----------
        graph
            What is known.
        documents
            Which ones are looked at, int32 [N].
        ids, texts
            Of all documents of the corpus.
        """
        stated = sparse.csr_array(graph.stated[documents])
        row = np.repeat(np.arange(len(documents)), np.diff(stated.indptr))
        fact = stated.indices.astype(np.int64)
        ends = graph.triples[fact][:, [0, 2]]
        pairs = np.unique(row[:, None] * len(graph.nodes) + ends)
        pair_row, pair_node = np.divmod(pairs, len(graph.nodes))
        slots = []
        slot_spans = []
        for place, document in enumerate(documents):
            start, end = np.searchsorted(pair_row, [place, place + 1])
            nodes = pair_node[start:end].tolist()
            # Literals are looked for as well, lest a part of one is taken for an entity.
            mentions = find_mentions(texts[document], [graph.names[node] for node in nodes])
            for node, spans in zip(nodes, mentions, strict=True):
                if spans and node < len(graph.uris):
                    slots.append((place, node))
                    slot_spans.append(spans)
        slot_row, slot_entity = np.array(slots, np.int64).reshape(-1, 2).T
        context_ids = tuple(ids[document] for document in documents)
        context_texts = tuple(texts[document] for document in documents)
        selection = (documents, context_ids, context_texts)
        slot_columns = (slot_row, slot_entity, slot_spans)
        return cls(graph, *selection, ids, texts, row, fact, pairs, *slot_columns)

    @cached_property
    def parts(self) -> tuple[Int64s, Int64s, Bools]:
        """Slot and fact of each entity in a fact of its document, and whether it is the head."""
        slots = pd.Index(self.slot_row * len(self.graph.nodes) + self.slot_entity)
        triples = self.graph.triples[self.fact]
        row_start = self.row * len(self.graph.nodes)
        tails = slots.get_indexer(row_start + triples[:, 2])
        heads = slots.get_indexer(row_start + triples[:, 0])
        ends = np.stack([tails, heads])
        is_head, fact = np.nonzero(ends >= 0)
        return ends[is_head, fact], fact, is_head == 1

    def states_all(self, place: NDArray[Any], partner: NDArray[Any]) -> Bools:
        """Return which documents of the corpus state all facts of a document here, pair by pair."""
        documents = self.graph.stated.shape[0]
        entailing = self.graph.entailing(self.documents[:, None]).tocoo()
        return np.isin(place * documents + partner, entailing.row * documents + entailing.col)


def picked(
    uniform: Float64s,
    groups: sparse.csr_array,
    group: Int64s,
) -> tuple[Int64s, Bools]:
    """Return a member of each group chosen by a number in [0, 1), and whether there was one.

    Examples
    --------
    >>> groups = sparse.csr_array((np.ones(2), ([0, 0], [4, 7])), (2, 9))
    >>> [values.tolist() for values in picked(np.array([0.6, 0.6]), groups, np.array([0, 1]))]
    [[7, 0], [True, False]]
    """
    start = groups.indptr[group].astype(np.int64)
    size = np.diff(groups.indptr)[group].astype(np.int64)
    is_nonempty = size > 0
    member = np.zeros(len(group), np.int64)
    place = start + (uniform * size).astype(np.int64)
    member[is_nonempty] = groups.indices[place[is_nonempty]]
    return member, is_nonempty


def first_of_each(rows: Int64s, count: int) -> Bools:
    """Return which entries are among the first ``count`` of their row; rows are sorted.

    Examples
    --------
    >>> first_of_each(np.array([0, 0, 0, 2]), 2).tolist()
    [True, True, False, True]
    """
    return np.arange(len(rows)) - np.searchsorted(rows, rows) < count


def find_mentions(text: str, labels: Sequence[str]) -> list[list[Span]]:
    """Return where each label stands in a text as a whole word, in the order of the text.

    The longest label comes first and no two mentions overlap, so a name within a longer name is no
    mention. A label that stands twice in the list has none, as nobody can tell whose it is; nor has
    any other label there.

    Parameters
    ----------
    text
        Searched with regard to case.
    labels
        Empty ones have no mention.

    Returns
    -------
    list
        For each label the (start, end) of its mentions.

    Examples
    --------
    >>> find_mentions("Akron, Ohio is in Ohio, not in Ohioan", ["Ohio", "Akron, Ohio"])
    [[(18, 22)], [(0, 11)]]
    """
    occurrences = Counter(labels)
    spans: list[Span] = []
    mentions = defaultdict[str, list[Span]](list)
    for label in sorted(filter(None, occurrences), key=lambda label: (-len(label), label)):
        start = text.find(label)
        while start >= 0:
            end = start + len(label)
            next_start = start + 1
            if _is_whole(text, start, end) and not overlaps(spans, start, end):
                insort(spans, (start, end))
                mentions[label].append((start, end))
                next_start = end
            start = text.find(label, next_start)
    return [mentions[label] if occurrences[label] == 1 else [] for label in labels]


def overlaps(spans: Sequence[Span], start: int, end: int) -> bool:
    """Return whether a stretch of text touches one of the sorted spans, none of which overlap.

    Examples
    --------
    >>> overlaps([(2, 5)], 4, 9), overlaps([(2, 5)], 5, 9)
    (True, False)
    """
    place = bisect_left(spans, (end,))
    return place > 0 and spans[place - 1][1] > start


def replaced(text: str, spans: Sequence[Span], new: str) -> str:
    """Return the text with other words in the place of sorted spans, none of which overlap.

    Examples
    --------
    >>> replaced("a b a", [(0, 1), (4, 5)], "cc")
    'cc b cc'
    """
    for start, end in reversed(spans):
        text = text[:start] + new + text[end:]
    return text


def _is_whole(text: str, start: int, end: int) -> bool:
    if _goes_on(text[start], text[start - 1 : start]):
        return False
    # A Korean name takes its endings without a blank.
    is_korean = _HANGUL.fullmatch(text[end - 1 : end + 1]) is not None
    return is_korean or not _goes_on(text[end - 1], text[end : end + 1])


def _goes_on(edge: str, neighbour: str) -> bool:
    """Whether a word goes on beyond the edge of a stretch of text."""
    if not neighbour or (_UNSPACED.match(edge) and _UNSPACED.match(neighbour)):
        return False
    # Marks belong to the letter before them: "José" may be written with two characters in the end.
    return (
        neighbour.isalnum() or neighbour == "_" or unicodedata.category(neighbour).startswith("M")
    )
