"""Runs: ranked lists of documents for queries, by BM25 or by an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi import seeds
from anmi.candidates import PADDING
from anmi.corpus.related import documents_of, first_passages
from anmi.corpus.texts import document_texts
from anmi.evaluation.metrics import evaluate, of_documents
from anmi.retrieval.fusion import Ranked, by_document, crowd
from anmi.retrieval.pool import own_documents, without

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.retrieval.index import Vectors
    from anmi.store import Store


def run_table(
    query_ids: Sequence[str],
    document_ids: Sequence[str],
    documents: NDArray[np.int32],
    scores: NDArray[np.float32],
) -> pd.DataFrame:
    """Return ranked lists, [Q, k], best first and padded with -1, as a table ``query_id, document_id, score, rank``."""
    row, place = np.nonzero(documents >= 0)
    asked, names = np.array(query_ids, dtype=object), np.array(document_ids, dtype=object)
    found = {
        "query_id": asked[row],
        "document_id": names[documents[row, place]],
        "score": scores[row, place],
    }
    return pd.DataFrame(found | {"rank": (place + 1).astype(np.int32)})


@dataclass(frozen=True)
class Ranking:
    """Makes runs of documents, each by its best passage, in which no query finds itself.

    BEIR leaves out the document with the query's id. Here the text must be the same too, since
    where queries and documents are both numbered from 1 the ids coincide; and a document that is
    labelled relevant to itself stays.

    Attributes
    ----------
    query_ids, document_ids
        Of Q queries and of the documents that N passages belong to.
    own
        The document that each query is itself, int32 [Q], -1 where there is none.
    depth
        Documents per query.
    first
        Of each passage the first one of its document, which stands for it, int32 [N].
    """

    query_ids: list[str]
    document_ids: list[str]
    own: NDArray[np.int32]
    depth: int
    first: NDArray[np.int32]

    @staticmethod
    def of(queries: pd.DataFrame, qrels: pd.DataFrame, corpus: pd.DataFrame, depth: int) -> Ranking:
        """Find out which queries are documents, by ``same_as`` of the queries; without that column, none is."""
        relevant = qrels[(qrels.relevance > 0) & (qrels.query_id == qrels.document_id)]
        own = own_documents(queries, dict(zip(corpus.document_id, range(len(corpus)), strict=True)))
        names = queries.get("same_as", queries.query_id)
        kept = (names == queries.query_id) & ~queries.query_id.isin(relevant.query_id)
        own, ids, first = (
            np.where(kept, own, PADDING).astype(np.int32),
            documents_of(corpus),
            first_passages(corpus),
        )
        return Ranking(queries.query_id.tolist(), ids.tolist(), own, depth, first)

    @property
    def searched(self) -> int:
        """Passages to ask a search for, so that ``depth`` documents are left."""
        return self.depth * crowd(self.first) + int((self.own != PADDING).any())

    @property
    def place(self) -> dict[str, int]:
        """What stands for each document, by its id."""
        return dict(zip(self.document_ids, self.first.tolist(), strict=True))

    def run(self, documents: NDArray[np.int32], scores: NDArray[np.float32]) -> pd.DataFrame:
        """Return what a search found, [Q, k], as :func:`run_table` does, without the queries themselves.

        Examples
        --------
        >>> each = np.arange(3, dtype=np.int32)
        >>> ranking = Ranking(["a", "q"], ["a", "b", "c"], np.array([0, -1], np.int32), depth=2, first=each)
        >>> found = np.tile(np.arange(ranking.searched, dtype=np.int32), (2, 1))
        >>> ranking.run(found, -found.astype(np.float32)).document_id.tolist()
        ['b', 'c', 'a', 'b']
        """
        return run_table(self.query_ids, self.document_ids, *self.lists(documents, scores))

    def given(self, rows: pd.DataFrame, corpus: pd.DataFrame) -> pd.DataFrame:
        """Return a run ``query_id, document_id, score`` with ranks, of documents and without the queries themselves."""
        names = rows.document_id.map(dict(zip(corpus.document_id, self.document_ids, strict=True)))
        rows = rows.assign(document_id=names.fillna(rows.document_id))
        own = dict(
            zip(
                self.query_ids,
                np.array([*self.document_ids, ""], dtype=object)[self.own],
                strict=True,
            )
        )
        rows = rows[rows.document_id != rows.query_id.map(own)]
        rows = rows.sort_values(["score", "document_id"], ascending=False).drop_duplicates(
            ["query_id", "document_id"]
        )
        return rows.assign(rank=(rows.groupby("query_id").cumcount() + 1).astype(np.int32))

    def lists(
        self, documents: NDArray[np.int32], scores: NDArray[np.float32]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return what a search found without the queries themselves, [Q, depth] at most; 0 is the score of padding.

        Padding stays, even where it is that of all queries: it says that a search found no more.
        """
        documents, scores = by_document(Ranked(documents, scores), self.first)[0]
        left = without(documents, self.own[:, None])
        order = np.argsort(left == PADDING, axis=1, kind="stable")[:, : self.depth]
        found = np.take_along_axis(left, order, axis=1)
        return found, np.where(
            found == PADDING, 0, np.take_along_axis(scores, order, axis=1)
        ).astype(np.float32)


def search(
    model: SentenceTransformer,
    query_texts: Sequence[str],
    document_texts: Sequence[str],
    k: int,
    *,
    description: str = "",
    **how: Any,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Encode, with the model's prompts, and search exactly.

    Returns documents and scores, int32 and float32 [Q, k], best first. ``how`` is as in
    :func:`vectors`.
    """
    from anmi.retrieval.index import build_index

    label = f"encoding for {description}" if description else ""
    documents = vectors(model, document_texts, "document", description=label, **how)
    queries = vectors(model, query_texts, "query", **how)
    index: Any = build_index(documents, [str(i) for i in range(len(document_texts))])
    found: tuple[NDArray[np.int32], NDArray[np.float32]] = index.search(queries, k)
    return found


def ranked(
    model: SentenceTransformer,
    asked: pd.DataFrame,
    qrels: pd.DataFrame,
    corpus: pd.DataFrame,
    depth: int,
    **how: Any,
) -> pd.DataFrame:
    """Return a model's ranking of the whole corpus for some queries; a query that is a document does not find itself.

    See :meth:`Ranking.of` and :func:`search`.
    """
    ranking = Ranking.of(asked, qrels, corpus, depth)
    return ranking.run(
        *search(model, asked.text.tolist(), document_texts(corpus), ranking.searched, **how)
    )


def vectors(
    model: SentenceTransformer,
    texts: Sequence[str],
    role: Literal["query", "document"],
    *,
    store: Store | None = None,
    precision: str = "auto",
    batch_size: int = 64,
    description: str = "",
) -> Vectors:
    """Encode texts with the model's prompt for them.

    Returns float32 [T, D], see :func:`anmi.retrieval.encoders.encode`; of a
    sparse retriever [T, V], see :func:`anmi.retrieval.sparse.model.sparse_vectors`. The store is
    for models that are used more than once.
    """
    from anmi.retrieval.encoders import encode
    from anmi.retrieval.kinds import is_sparse

    if is_sparse(model):
        from anmi.retrieval.sparse.model import sparse_vectors

        return sparse_vectors(model, texts, role, description=description)
    return encode(model, texts, store, precision, batch_size, description, role)


def dev_metric(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    most_documents: int,
    precision: str,
    seed: int,
    least: int = 1,
) -> Callable[[Any], float] | None:
    """Return a function that gives a model's mean nDCG@10 on the dev queries with labels; None of fewer than ``least``.

    A larger corpus is reduced to the dev positives and a random sample, so that measuring stays
    cheap.
    """
    dev = queries[(queries.split == "dev") & queries.query_id.isin(qrels.query_id)]
    if len(dev) < least:
        return None
    truth = qrels[qrels.query_id.isin(dev.query_id)]
    documents = corpus
    if len(corpus) > most_documents:
        needed = corpus.document_id.isin(truth.document_id).to_numpy()
        draws = seeds.stream(seed, "evaluation/dev-sample").random(len(corpus))
        draws[needed] = -1.0
        kept = max(most_documents, int(needed.sum()))
        documents = corpus.iloc[np.sort(np.argsort(draws, kind="stable")[:kept])]
    texts, asked = document_texts(documents), dev.text.tolist()
    ranking, labels = Ranking.of(dev, truth, documents, 10), of_documents(truth, corpus)

    def measure(model: Any) -> float:
        found = search(model, asked, texts, ranking.searched, precision=precision)
        table = evaluate(labels, ranking.run(*found), (10,))
        return float(table["ndcg@10"].mean())

    return measure


def side_by_side(
    rows: NDArray[np.int64], documents: NDArray[np.int64], count: int
) -> NDArray[np.int32]:
    """Return the documents of each row in the order given, int32 [count, P], padded with -1.

    Examples
    --------
    >>> side_by_side(np.array([1, 0, 1]), np.array([5, 6, 7]), 2).tolist()
    [[6, -1], [5, 7]]
    """
    order = np.argsort(rows, kind="stable")
    rows, documents = rows[order], documents[order]
    column = np.arange(len(rows)) - np.searchsorted(rows, rows)
    listed = np.full((count, int(column.max(initial=0)) + 1), PADDING, np.int32)
    listed[rows, column] = documents
    return listed
