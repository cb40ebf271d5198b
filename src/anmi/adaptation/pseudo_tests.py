"""Pseudo-queries of new documents, where too few dev or test queries have a label."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.corpus.related import count_labelled
from anmi.corpus.sentences import count_words
from anmi.corpus.texts import normalised
from anmi.corpus.types import FEWEST_DEV
from anmi.seeds import position

STAND_IN_STREAM = "adaptation/stand-in"
# Words that stay in their document, where any search by words finds them: asked only where a
# document has nothing else.
_EASY: Final = "keyphrase"
# These take nothing out of their document.
_WHOLE: Final = (_EASY, "question", "llm")
# Pseudo-queries that are wanted of a split, and at most of a document.
_PER_SPLIT: Final = 30
_PER_DOCUMENT: Final = 5


def unlabelled_splits(queries: pd.DataFrame, qrels: pd.DataFrame) -> list[str]:
    """Return those of ``dev`` and ``test`` of whose queries fewer than 20 have a label.

    Examples
    --------
    >>> splits = ["dev"] + ["test"] * 20
    >>> queries = pd.DataFrame({"query_id": range(21), "split": splits})
    >>> unlabelled_splits(queries, queries)
    ['dev']
    """
    splits = ("dev", "test")
    return [split for split in splits if count_labelled(queries, qrels, split) < FEWEST_DEV]


def without_pseudo_queries(queries: pd.DataFrame, pseudo_queries: pd.DataFrame) -> pd.DataFrame:
    """Return the queries that people asked; all of them where there are only pseudo-queries.

    A mean over both would say nothing: pseudo-queries have the words of their document.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["q", "title:0:a"]})
    >>> without_pseudo_queries(queries, queries[1:]).query_id.tolist()
    ['q']
    >>> without_pseudo_queries(queries, queries).query_id.tolist()
    ['q', 'title:0:a']
    """
    is_pseudo = queries.query_id.isin(pseudo_queries.query_id)
    return queries if is_pseudo.all() else queries[~is_pseudo]


def with_pseudo_tests(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    splits: Collection[str],
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the collection with pseudo-queries among the queries of splits that have too few.

    Every new document of these splits asks one pseudo-query, chosen by a hash among those made of
    it, and what the pseudo-query was made of is taken out of the document's text: it would be found
    there without any learning. Where a split has fewer than 30 such documents, each asks several,
    up to five, as long as half of its text is left. Key phrases, which stay in the text, are asked
    last, one of each document. All three tables are the given ones where ``splits`` is empty or no
    document is new.

    Parameters
    ----------
    corpus, queries, qrels
        As in :class:`anmi.corpus.types.Collection`.
    pseudo_queries
        ``query_id, text, document_id, positive_text, kind, weight, split``.
    splits
        Among ``dev`` and ``test``, see :func:`unlabelled_splits`.
    """
    chosen = pseudo_queries[pseudo_queries.split.isin(list(splits))]
    if chosen.empty:
        return corpus, queries, qrels
    order = position(0, STAND_IN_STREAM, chosen.query_id.tolist())
    chosen = chosen.iloc[np.lexsort((order, chosen.kind == _EASY))]
    chosen = chosen[(chosen.kind != _EASY) | ~chosen.duplicated(["document_id", "kind"])]
    rows: list[dict[Any, Any]] = []
    for _, of_split in chosen.groupby("split"):
        count = min(-(-_PER_SPLIT // of_split.document_id.nunique()), _PER_DOCUMENT)
        views = of_split if count > 1 else of_split.drop_duplicates("document_id")
        records = views.sort_values("document_id", kind="stable").to_dict("records")
        for _, of_document in groupby(records, itemgetter("document_id")):
            rows += _non_overlapping(list(of_document), count)
    chosen = pd.DataFrame(rows).sort_values("document_id", kind="stable").reset_index(drop=True)
    # The last one of a document is left the least of it.
    last = chosen.drop_duplicates("document_id", keep="last").set_index("document_id")
    texts = corpus.document_id.map(last.positive_text)
    shortened = corpus.assign(
        title=corpus.title.where(texts.isna(), ""), text=texts.where(texts.notna(), corpus.text)
    )
    empty: dict[Any, Any] = dict.fromkeys(queries.columns, "") | {"metadata": "{}", "mined": False}
    asked_queries = pd.DataFrame(empty, index=chosen.index)[[*queries.columns]].assign(
        query_id=chosen.query_id,
        text=chosen.text,
        split=chosen.split,
    )
    labels = chosen[["query_id", "document_id"]].assign(relevance=1)
    if "split" in qrels:
        labels["split"] = chosen.split
    labels = labels.astype(qrels.dtypes[labels.columns].to_dict())
    return (
        shortened,
        pd.concat([queries, asked_queries], ignore_index=True),
        pd.concat([qrels, labels], ignore_index=True),
    )


def _non_overlapping(views: list[dict[Any, Any]], count: int) -> Iterator[dict[Any, Any]]:
    """Yield a document's first pseudo-query and those that leave half of its text, with the rest.

    Examples
    --------
    >>> views = [
    ...     {"kind": "cloze", "text": "Rain falls.", "positive_text": "Snow melts. Wind blows."},
    ...     {"kind": "cloze", "text": "Snow melts.", "positive_text": "Rain falls. Wind blows."},
    ... ]
    >>> [(view["text"], view["positive_text"]) for view in _non_overlapping(views, 3)]
    [('Rain falls.', 'Snow melts. Wind blows.')]
    """
    text = views[0]["positive_text"]
    half = (count_words(text) + count_words(views[0]["text"])) / 2
    yield views[0]
    for view in views[1:]:
        if count <= 1:
            return
        if view["kind"] not in _WHOLE:
            words = map(re.escape, view["text"].split())
            shorter = re.sub(r"\s+".join(words), " ", text).strip()
            if shorter == text or count_words(shorter) < half:
                continue
            text = shorter
        count -= 1
        yield view | {"positive_text": text}


def labels_used(
    rows: pd.DataFrame,
    queries: pd.DataFrame,
    share: float,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows and queries that a share of the labels leaves; test queries all stay.

    A larger share contains every smaller one.
    """
    if share == 1:
        return rows, queries
    draws = position(seed, "training/labels", [normalised(text) for text in queries.text])
    used_queries = queries[(queries.split == "test") | (draws < share)]
    used_rows = rows[rows.query_id.isin(used_queries.query_id)]
    return used_rows.reset_index(drop=True), used_queries
