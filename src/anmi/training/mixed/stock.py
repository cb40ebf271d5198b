"""What negatives are drawn from: the corpus, variants of its documents, and what must not be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING
from anmi.corpus.knowledge import Knowledge, KnowledgeGraph
from anmi.corpus.texts import document_texts
from anmi.errors import AnmiError
from anmi.retrieval.related import RelatedDocuments

# Kinds of variants that the source "graph" draws; all others are edits.
GRAPH_KINDS: Final = ("swap", "counterpart", "neighbour")


@dataclass(frozen=True)
class Stock:
    """D documents of a corpus and V variants of them, numbered on from D.

    Attributes
    ----------
    ids, texts
        Of documents and then variants, D + V.
    origin
        The document that each is, or is a variant of, int32 [D + V].
    about
        Number of the entity that a document is about, int32 [D]; -1 where it is about none.
    uris
        Names of the entities.
    entailing
        For a document, which documents state all of its facts, bool [D, D]; itself included where it states any.
    same
        For a document, near-duplicates and parts of the same document, bool [D, D].
    swaps, edits
        Numbers of the variants of a document for the sources graph and edit, int32 [D, S], padded with -1.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    origin: NDArray[np.int32]
    about: NDArray[np.int32]
    uris: tuple[str, ...]
    entailing: sparse.csr_array
    same: sparse.csr_array
    swaps: NDArray[np.int32]
    edits: NDArray[np.int32]
    number: dict[str, int] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Number of the documents, D."""
        return len(self.about)

    @classmethod
    def from_tables(
        cls, corpus: pd.DataFrame, knowledge: Knowledge, variants: pd.DataFrame, related_documents: pd.DataFrame
    ) -> Stock:
        """Read what ingestion and the making of variants left.

        Raises
        ------
        AnmiError
            No document states a fact.
        """
        ids = corpus.document_id.tolist()
        same = _same(related_documents, ids)
        return cls.build(ids, document_texts(corpus), knowledge.of(ids), variants, same)

    @classmethod
    def build(
        cls,
        ids: Sequence[str],
        texts: Sequence[str],
        graph: KnowledgeGraph,
        variants: pd.DataFrame,
        same: sparse.csr_array,
    ) -> Stock:
        """Number what can be drawn.

        Variants are ``variant_id, document_id, kind, text``; counterparts and neighbours are documents, and so are
        their ids. ``same`` are for each of the D documents those that must not be its negatives for their text alone,
        bool [D, D].

        Raises
        ------
        AnmiError
            No document states a fact.
        """
        if not graph.stated.nnz:
            raise AnmiError(
                "Negatives from mixed sources need to know what documents state, and this collection has no facts; "
                "read it with kg:DIR, or choose a recipe without `sources: mixed`."
            )
        number = {identifier: place for place, identifier in enumerate(ids)}
        place = variants.document_id.map(number)
        variants = variants[place.notna()].assign(place=place[place.notna()].astype(np.int32))
        made = ~variants.variant_id.isin(number)
        fresh = variants[made]
        numbers = np.empty(len(variants), np.int32)
        numbers[made.to_numpy()] = len(ids) + np.arange(len(fresh))
        numbers[~made.to_numpy()] = variants.variant_id[~made].map(number)
        everything = (*ids, *fresh.variant_id)
        own = np.arange(len(ids), dtype=np.int32)
        graph_kind = variants.kind.isin(GRAPH_KINDS).to_numpy()
        parts = [
            _by_row(variants.place.to_numpy()[kind], numbers[kind], len(ids)) for kind in (graph_kind, ~graph_kind)
        ]
        return cls(
            ids=everything,
            texts=(*texts, *fresh.text),
            origin=np.concatenate([own, fresh.place.to_numpy(np.int32)]),
            about=graph.about,
            uris=graph.uris,
            entailing=graph.entailing(own[:, None]),
            same=same,
            swaps=parts[0],
            edits=parts[1],
            number={identifier: place for place, identifier in enumerate(everything)},
        )


def _same(related_documents: pd.DataFrame, ids: list[str]) -> sparse.csr_array:
    """Which documents are copies, near-duplicates or parts of the same document as each, bool [D, D]."""
    own = np.arange(len(ids), dtype=np.int32)[:, None]
    barred = RelatedDocuments.from_table(related_documents, ids).barred(own)
    row, place = np.nonzero(barred != PADDING)
    pairs = sparse.csr_array((np.ones(len(row), np.int32), (row, barred[row, place])), (len(ids), len(ids)))
    return sparse.csr_array(pairs > 0)


def _by_row(rows: NDArray[np.int32], values: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    result = np.full((count, int(place.max(initial=-1)) + 1), PADDING, np.int32)
    result[rows, place] = values
    return result
