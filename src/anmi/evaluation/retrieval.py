"""Runs: ranked lists of documents for queries, by BM25 or by an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi import seeds
from anmi.corpus.texts import document_texts
from anmi.evaluation.metrics import evaluate

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from anmi.store import Store


def run_table(
    query_ids: Sequence[str], document_ids: Sequence[str], documents: NDArray[np.int32], scores: NDArray[np.float32]
) -> pd.DataFrame:
    """Return ranked lists as a table.

    Parameters
    ----------
    query_ids
        Q identifiers.
    document_ids
        By document index.
    documents, scores
        [Q, k], best first, padded with -1.

    Returns
    -------
    pandas.DataFrame
        ``query_id, document_id, score, rank``.
    """
    row, place = np.nonzero(documents >= 0)
    names = np.array(document_ids, dtype=object)
    return pd.DataFrame({
        "query_id": np.array(query_ids, dtype=object)[row],
        "document_id": names[documents[row, place]],
        "score": scores[row, place],
        "rank": (place + 1).astype(np.int32),
    })  # fmt: skip


def search(
    model: SentenceTransformer,
    query_texts: Sequence[str],
    document_texts: Sequence[str],
    k: int,
    *,
    store: Store | None = None,
    precision: str = "auto",
    prompts: tuple[str, str] = ("", ""),
    batch_size: int = 64,
    description: str = "",
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Encode and search exactly.

    Parameters
    ----------
    model
        The encoder.
    query_texts, document_texts
        Q and N texts.
    k
        Documents per query.
    store
        Cache for models that are used more than once.
    precision, batch_size, description
        See :func:`anmi.retrieval.encoders.encode`.
    prompts
        Put before queries and before documents.

    Returns
    -------
    documents, scores
        int32 and float32 [Q, k], best first.
    """
    from anmi.evaluation.static_tokens import encode_static, is_readable
    from anmi.retrieval.dense import DenseIndex
    from anmi.retrieval.encoders import encode

    label = f"encoding for {description}" if description else ""
    if store is None and is_readable(model):
        documents = encode_static(model, [prompts[1] + text for text in document_texts])
        queries = encode_static(model, [prompts[0] + text for text in query_texts])
    else:
        documents = encode(model, document_texts, store, precision, batch_size, prompts[1], label, "document")
        queries = encode(model, query_texts, store, precision, batch_size, prompts[0], "", "query")
    index = DenseIndex.build(documents, [str(i) for i in range(len(document_texts))])
    return index.search(queries, k)


def dev_metric(
    corpus: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame, most_documents: int, precision: str, seed: int
) -> Callable[[Any], float] | None:
    """Return a function that gives a model's mean nDCG@10 on the dev queries; None when there are none.

    Parameters
    ----------
    corpus, queries, qrels
        The collection.
    most_documents
        A larger corpus is reduced to the dev positives and a random sample, so that measuring stays cheap.
    precision
        Of encoding.
    seed
        Of the sample.
    """
    dev = queries[(queries.split == "dev") & queries.query_id.isin(qrels.query_id)]
    if dev.empty:
        return None
    truth = qrels[qrels.query_id.isin(dev.query_id)]
    documents = corpus
    if len(corpus) > most_documents:
        needed = corpus.document_id.isin(truth.document_id).to_numpy()
        draws = seeds.stream(seed, "evaluation/dev-sample").random(len(corpus))
        draws[needed] = -1.0
        documents = corpus.iloc[np.sort(np.argsort(draws, kind="stable")[:most_documents])]
    texts = document_texts(documents)
    ids = documents.document_id.tolist()

    def measure(model: Any) -> float:
        found, scores = search(model, dev.text.tolist(), texts, 10, precision=precision)
        return float(evaluate(truth, run_table(dev.query_id.tolist(), ids, found, scores), (10,))["ndcg@10"].mean())

    return measure
