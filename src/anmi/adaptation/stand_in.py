"""Pseudo-queries of new documents, where nobody labelled a dev or test query."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from anmi.corpus.splits import position

STAND_IN_STREAM = "adaptation/stand-in"
# Words that stay in their document, where any search by words finds them: asked only where a document has nothing else.
_EASY = "keyphrase"


def unlabelled_splits(queries: pd.DataFrame, qrels: pd.DataFrame) -> list[str]:
    """Return which of ``dev`` and ``test`` have no query with a label.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["a", "b"], "split": ["train", "test"]})
    >>> unlabelled_splits(queries, pd.DataFrame({"query_id": ["a", "b"]}))
    ['dev']
    """
    labelled = set(queries.loc[queries.query_id.isin(qrels.query_id), "split"])
    return [split for split in ("dev", "test") if split not in labelled]


def with_pseudo_tests(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    splits: Collection[str],
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the collection with pseudo-queries as the queries of splits that have none.

    Every new document of these splits asks one pseudo-query, chosen by a hash among those made of it, and what the
    pseudo-query was made of is taken out of the document's text: it would be found there without any learning. Key
    phrases, which stay in the text, are asked only where a document has nothing else. All three tables are the given
    ones where ``splits`` is empty or no document is new.

    Parameters
    ----------
    corpus, queries, qrels
        As in :class:`anmi.corpus.types.Collection`.
    pseudo_queries
        ``query_id, text, document_id, positive_text, kind, weight, split``.
    splits
        Among ``dev`` and ``test``: those without labels, see :func:`unlabelled_splits`.
    """
    made = pseudo_queries[pseudo_queries.split.isin(list(splits))]
    if made.empty:
        return corpus, queries, qrels
    made = made.iloc[np.lexsort((position(0, STAND_IN_STREAM, made.query_id.tolist()), made.kind == _EASY))]
    made = made.drop_duplicates("document_id").sort_values("document_id").reset_index(drop=True)
    texts = corpus.document_id.map(made.set_index("document_id").positive_text)
    changed = corpus.assign(title=corpus.title.where(texts.isna(), ""), text=texts.where(texts.notna(), corpus.text))
    asked = pd.DataFrame(dict.fromkeys(queries.columns, ""), index=made.index).assign(
        query_id=made.query_id, text=made.text, split=made.split
    )
    if "metadata" in asked:
        asked["metadata"] = "{}"
    if "mined" in asked:
        asked["mined"] = False
    labels = pd.DataFrame({"query_id": made.query_id, "document_id": made.document_id, "relevance": 1})
    if "split" in qrels:
        labels["split"] = made.split
    return (
        changed,
        pd.concat([queries, asked], ignore_index=True),
        pd.concat([qrels, labels.astype(qrels.dtypes[labels.columns].to_dict())], ignore_index=True),
    )
