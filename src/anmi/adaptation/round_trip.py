"""The round trip of pseudo-queries: at which rank a search finds the documents that they were made of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from anmi.corpus.related import NO_RESULT, result_passages
from anmi.corpus.texts import document_texts
from anmi.ragged import Float32s, Int32s
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import Encoder
from anmi.retrieval.fusion import Ranked, best_documents, equal, fuse, mixed
from anmi.retrieval.index import build_index, row_products, spread_of_scores
from anmi.retrieval.terms import Terms

# Documents of each list, and the last rank that is told from later ones.
DEEPEST: Final = 100
# Pseudo-queries that are searched for at a time, which bounds memory.
_AT_ONCE: Final = 2048


class RoundTrip:
    """A search by BM25 and an encoder, fused as equals, for the documents of pseudo-queries.

    Each pseudo-query looks for its document as training sees it, without what the pseudo-query was
    made of, among all other documents as they are. In its whole document a title or a sentence is
    found by its own words, whatever it asks. Where nothing is taken out of the document
    (``keyphrase``, ``question``, ``llm``) this is the usual search. Copies and other passages of
    the document are not counted before it, nor are new documents.

    Parameters
    ----------
    corpus
        ``document_id, title, text`` of N documents.
    terms
        Of the corpus.
    encoder
        As it is before training.
    new
        Ids of documents that training must not see.
    """

    def __init__(
        self, corpus: pd.DataFrame, terms: Terms, encoder: Encoder, new: Collection[str] = ()
    ) -> None:
        names = corpus.document_id.tolist()
        is_new = corpus.document_id.isin(list(new))
        vectors = encoder.encode(document_texts(corpus), "document", "encoding documents")
        self._names = pd.Index(names)
        self._results = np.where(is_new, NO_RESULT, result_passages(corpus)).astype(np.int32)
        self._terms = terms
        self._bm25 = BM25Index.of_terms(terms)
        self._encoder = encoder
        self._dense = build_index(vectors, names)
        self._spread = spread_of_scores(vectors[:0], vectors)

    def __call__(self, pseudo_queries: pd.DataFrame) -> Int32s:
        """Return the rank of each pseudo-query's document, int32 [P], from 1; 101 of all after 100.

        Parameters
        ----------
        pseudo_queries
            ``text, document_id, positive_text``.
        """
        ranks = [np.zeros(0, np.int32)]
        with tqdm(
            total=len(pseudo_queries), desc="round trip", unit="query", delay=2, disable=None
        ) as bar:
            for start in range(0, len(pseudo_queries), _AT_ONCE):
                part = pseudo_queries.iloc[start : start + _AT_ONCE]
                rows = self._names.get_indexer(pd.Index(part.document_id))
                ranks.append(self._ranks(part.text.tolist(), part.positive_text.tolist(), rows))
                bar.update(len(part))
        return np.concatenate(ranks)

    def _ranks(self, queries: Sequence[str], positives: Sequence[str], rows: Any) -> Int32s:
        vectors = self._encoder.encode(queries, "query")
        search_terms, bm25_spread = self._bm25.search_of(queries)
        searches = {
            "bm25": search_terms,
            "dense": lambda count: Ranked(*self._dense.search(vectors, count)),
        }
        lists = {
            name: best_documents(search, self._results, DEEPEST, self._results[rows])[0]
            for name, search in searches.items()
        }
        spreads = {"bm25": bm25_spread, "dense": np.full(len(rows), self._spread, np.float32)}
        others = fuse(lists, DEEPEST, spreads)
        positive_vectors = self._encoder.encode(positives, "document")
        positive_scores: dict[str, Float32s] = {
            "bm25": self._terms.scores(queries, positives),
            "dense": row_products(vectors, positive_vectors).astype(np.float32),
        }
        in_spreads = [
            np.divide(scores, spreads[name], out=np.zeros_like(scores), where=spreads[name] > 0)
            for name, scores in positive_scores.items()
        ]
        own = mixed([*equal(lists).values()], in_spreads)
        is_before = (others.scores > own[:, None]) & (others.documents != NO_RESULT)
        return (1 + is_before.sum(axis=1)).astype(np.int32)
