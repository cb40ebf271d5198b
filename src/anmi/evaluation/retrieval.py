"""Runs: ranked lists of documents for queries, by BM25 or by an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from anmi import seeds
from anmi.candidates import PADDING
from anmi.corpus.related import NO_RESULT, documents_of, hits_of, result_passages
from anmi.corpus.texts import document_texts
from anmi.evaluation.metrics import evaluate, of_documents
from anmi.ragged import Float32s, Float64s, Int32s, Int64s
from anmi.retrieval.fusion import Ranked, Search, best_documents
from anmi.retrieval.kinds import is_routed, is_sparse, prompts_of
from anmi.retrieval.token_table import TokenTable

if TYPE_CHECKING:
    from anmi.retrieval.encoders import Encoder, Role
    from anmi.retrieval.kinds import EncoderSettings

_DEV_CUT: Final = 10


def run_table(
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    documents: Int32s,
    scores: Float32s,
) -> pd.DataFrame:
    """Return ranked lists, [Q, k], as a table ``query_id, document_id, score, rank``.

    They are best first and padded with -1.
    """
    row, place = np.nonzero(documents >= 0)
    return pd.DataFrame(
        {
            "query_id": np.array(query_ids, dtype=object)[row],
            "document_id": np.array(document_ids, dtype=object)[documents[row, place]],
            "score": scores[row, place],
            "rank": (place + 1).astype(np.int32),
        }
    )


@dataclass(frozen=True)
class Ranking:
    """Makes runs of documents, each by its best passage, in which no query finds itself.

    BEIR leaves out the document with the query's id. Here the text must be the same too, since
    where queries and documents are both numbered from 1 the ids coincide; and a document that is
    labelled relevant to itself stays, as does one of which a copy is labelled so.

    Attributes
    ----------
    query_ids, document_ids
        Of Q queries and of the documents that N passages belong to; of a copy that of the first
        document with its text.
    selves
        The document that each query is itself, int32 [Q], -1 where there is none.
    depth
        Documents per query.
    first
        Of each passage the first one of its document, which stands for it, int32 [N]; -1 for
        copies.
    """

    query_ids: list[str]
    document_ids: list[str]
    selves: Int32s
    depth: int
    first: Int32s

    @staticmethod
    def of(
        queries: pd.DataFrame,
        qrels: pd.DataFrame,
        corpus: pd.DataFrame,
        depth: int,
    ) -> Ranking:
        """Find out which queries are documents, by their ``same_as``; without it, by their ids."""
        hits = hits_of(corpus).tolist()
        hit_of = dict(zip(corpus.document_id, hits, strict=True))
        is_document = queries.get("same_as", queries.query_id) == queries.query_id
        asks_itself = qrels.query_id.isin(queries.query_id[is_document])
        relevant = qrels[(qrels.relevance > 0) & asks_itself]
        relevant_hits = relevant.document_id.map(hit_of)
        labelled = set(zip(relevant.query_id, relevant_hits, strict=True))
        query_ids = queries.query_id.tolist()
        selves = np.full(len(query_ids), PADDING, np.int32)
        ranking = Ranking(query_ids, hits, selves, depth, result_passages(corpus))
        passages = ranking.place
        for row in np.flatnonzero(is_document):
            hit = hit_of.get(query_ids[row], "")
            if (query_ids[row], hit) not in labelled:
                selves[row] = passages.get(hit, PADDING)
        return ranking

    @property
    def place(self) -> dict[str, int]:
        """What stands for each document, by its id."""
        passages = zip(self.document_ids, self.first.tolist(), strict=True)
        return {name: passage for name, passage in passages if passage != NO_RESULT}

    def run(self, search: Search) -> pd.DataFrame:
        """Return what a search ranks best as a :func:`run_table`, without the queries themselves.

        Examples
        --------
        >>> first = np.arange(3, dtype=np.int32)
        >>> selves = np.array([0, -1], np.int32)
        >>> ranking = Ranking(["a", "q"], ["a", "b", "c"], selves, depth=2, first=first)
        >>> documents = np.tile(first, (2, 1))
        >>> scores = -documents.astype(np.float32)
        >>> search = lambda count: Ranked(documents[:, :count], scores[:, :count])
        >>> ranking.run(search).document_id.tolist()
        ['b', 'c', 'a', 'b']
        """
        return run_table(self.query_ids, self.document_ids, *self.lists(search))

    def of_documents(self, rows: pd.DataFrame, corpus: pd.DataFrame) -> pd.DataFrame:
        """Return a run ``query_id, document_id, score`` of documents with ranks.

        It is without the queries themselves.
        """
        names = dict(zip(corpus.document_id, self.document_ids, strict=True))
        names |= dict(zip(documents_of(corpus), self.document_ids, strict=True))
        documents = rows.document_id.map(names).fillna(rows.document_id)
        self_ids = np.array([*self.document_ids, ""], dtype=object)[self.selves]
        self_of = dict(zip(self.query_ids, self_ids, strict=True))
        rows = rows.assign(document_id=documents)
        rows = rows[rows.document_id != rows.query_id.map(self_of)]
        rows = rows.sort_values(["score", "document_id"], ascending=False)
        rows = rows.drop_duplicates(["query_id", "document_id"])
        rank = rows.groupby("query_id").cumcount() + 1
        return rows.assign(rank=rank.astype(np.int32))

    def lists(self, search: Search) -> Ranked:
        """Return the best ``depth`` documents of a search, without the queries themselves."""
        return best_documents(search, self.first, self.depth, self.selves)[0]


def search_by(
    encoder: Encoder,
    query_texts: Sequence[str],
    document_texts: Sequence[str],
    description: str = "",
) -> Search:
    """Encode, with the encoder's prompts, and return the exact search of these queries."""
    label = f"encoding for {description}" if description else ""
    documents = encoder.encode(document_texts, "document", label)
    return search_vectors(encoder.encode(query_texts, "query"), documents)


def search_vectors(queries: Any, documents: Any) -> Search:
    """Return the exact search of vectors of queries among those of documents."""
    from anmi.retrieval.index import build_index

    document_ids = [str(row) for row in range(documents.shape[0])]
    index: Any = build_index(documents, document_ids)
    return lambda count: Ranked(*index.search(queries, count))


def ranked(
    encoder: Encoder,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    corpus: pd.DataFrame,
    depth: int,
    description: str = "",
) -> pd.DataFrame:
    """Return an encoder's ranking of the whole corpus for some queries.

    A query that is a document does not find itself; see :meth:`Ranking.of` and :func:`search_by`.
    """
    ranking = Ranking.of(queries, qrels, corpus, depth)
    search = search_by(encoder, queries.text.tolist(), document_texts(corpus), description)
    return ranking.run(search)


def dev_collection(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    most_documents: int,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the documents that dev queries search, the labelled dev queries, and their labels.

    Of a corpus of more than ``most_documents`` these are the labelled documents and a random
    sample, so that measuring stays cheap.
    """
    is_in_dev = queries.split == "dev"
    dev = queries[is_in_dev & queries.query_id.isin(qrels.query_id)]
    labels = qrels[qrels.query_id.isin(dev.query_id)]
    if len(corpus) <= most_documents:
        return corpus, dev, labels
    is_labelled = corpus.document_id.isin(labels.document_id).to_numpy()
    draws = seeds.stream(seed, "evaluation/dev-sample").random(len(corpus))
    draws[is_labelled] = -1.0
    count = max(most_documents, int(is_labelled.sum()))
    sample = np.sort(np.argsort(draws, kind="stable")[:count])
    return corpus.iloc[sample], dev, labels


class DevQueries:
    """Measures what states of one encoder find for the labelled dev queries.

    Parameters
    ----------
    documents, queries, labels
        See :func:`dev_collection`.
    settings
        How encoders encode.

    Attributes
    ----------
    query_ids
        Of Q queries.
    """

    def __init__(
        self,
        documents: pd.DataFrame,
        queries: pd.DataFrame,
        labels: pd.DataFrame,
        settings: EncoderSettings,
    ) -> None:
        self.query_ids = queries.query_id.tolist()
        self._texts = {"query": queries.text.tolist(), "document": document_texts(documents)}
        self._settings = settings
        self._ranking = Ranking.of(queries, labels, documents, _DEV_CUT)
        self._labels = of_documents(labels, documents)
        # Of the model that was measured last, by the key of its documents' side.
        self._encoded: tuple[str, Any] = ("", None)
        # Of tables of token vectors, by role.
        self._counts: dict[Role, Any] = {}

    def _documents(self, encoder: Encoder) -> Any:
        """Return the documents' vectors, those of before where only the queries' side changed."""
        if is_sparse(encoder.model) or not is_routed(encoder.model):
            return self._vectors(encoder, "document")
        key = encoder.key("document")
        if key != self._encoded[0]:
            self._encoded = (key, self._vectors(encoder, "document"))
        return self._encoded[1]

    def _vectors(self, encoder: Encoder, role: Role) -> Any:
        """Encode the texts of a role; of a table their tokens, which stay, are counted once."""
        table = encoder.model
        if not isinstance(table, TokenTable):
            return encoder.encode(self._texts[role], role)
        if role not in self._counts:
            self._counts[role] = table.counts(self._texts[role], prompts_of(table)[role])
        return encoder.prefix(table.vectors(self._counts[role]), encoder.dimensions)

    def losses(self, model: Any, temperature: float) -> Float64s:
        """Return InfoNCE of each query over all that is searched, [Q]; NaN without a relevant one.

        Of several relevant passages the nearest counts, and the others are no negatives. The model
        is dense.
        """
        from anmi.retrieval.encoders import Encoder

        encoder = Encoder.of(model, self._settings)
        documents = self._documents(encoder)
        queries = self._vectors(encoder, "query")
        names = pd.Index(self._ranking.document_ids)
        labelled = self._labels[self._labels.relevance > 0]
        relevant_names = labelled.groupby("query_id").document_id.agg(set)
        losses = np.full(len(queries), np.nan)
        for row, query_id in enumerate(self.query_ids):
            is_relevant = names.isin(relevant_names.get(query_id, ()))
            is_negative = ~is_relevant
            self_number = self._ranking.selves[row]
            if self_number != PADDING:
                is_negative[self_number] = False
            if is_relevant.any():
                logits = (documents @ queries[row]).astype(np.float64) / temperature
                best = logits[is_relevant].max()
                losses[row] = np.logaddexp.reduce(logits[is_negative], initial=best) - best
        return losses

    def scores(self, model: Any) -> Float64s:
        """Return nDCG@10 of each query, [Q]."""
        from anmi.retrieval.encoders import Encoder

        encoder = Encoder.of(model, self._settings)
        queries = self._vectors(encoder, "query")
        search = search_vectors(queries, self._documents(encoder))
        scores = evaluate(self._labels, self._ranking.run(search), (_DEV_CUT,))
        return scores[f"ndcg@{_DEV_CUT}"].reindex(self.query_ids).to_numpy(np.float64)


def side_by_side(rows: Int64s, documents: Int64s, count: int) -> Int32s:
    """Return the documents of each row in the order given, int32 [count, P], padded with -1.

    Examples
    --------
    >>> side_by_side(np.array([1, 0, 1]), np.array([5, 6, 7]), 2).tolist()
    [[6, -1], [5, 7]]
    """
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    documents = documents[order]
    column = np.arange(len(rows)) - np.searchsorted(rows, rows)
    width = int(column.max(initial=0)) + 1
    listed = np.full((count, width), PADDING, np.int32)
    listed[rows, column] = documents
    return listed
