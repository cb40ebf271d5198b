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
_WANTED: Final = 30
_MOST: Final = 5


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
    >>> asked = pd.DataFrame({"query_id": ["q", "title:0:a"]})
    >>> without_pseudo_queries(asked, asked[1:]).query_id.tolist()
    ['q']
    >>> without_pseudo_queries(asked, asked).query_id.tolist()
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
    made = pseudo_queries[pseudo_queries.split.isin(list(splits))]
    if made.empty:
        return corpus, queries, qrels
    made = made.iloc[
        np.lexsort((position(0, STAND_IN_STREAM, made.query_id.tolist()), made.kind == _EASY))
    ]
    made = made[(made.kind != _EASY) | ~made.duplicated(["document_id", "kind"])]
    rows: list[dict[Any, Any]] = []
    for _, of_split in made.groupby("split"):
        most = min(-(-_WANTED // of_split.document_id.nunique()), _MOST)
        views = of_split if most > 1 else of_split.drop_duplicates("document_id")
        records = views.sort_values("document_id", kind="stable").to_dict("records")
        for _, own in groupby(records, itemgetter("document_id")):
            rows += _non_overlapping(list(own), most)
    made = pd.DataFrame(rows).sort_values("document_id", kind="stable").reset_index(drop=True)
    # The last one of a document is left the least of it.
    last = made.drop_duplicates("document_id", keep="last").set_index("document_id")
    texts = corpus.document_id.map(last.positive_text)
    changed = corpus.assign(
        title=corpus.title.where(texts.isna(), ""), text=texts.where(texts.notna(), corpus.text)
    )
    empty: dict[Any, Any] = dict.fromkeys(queries.columns, "") | {"metadata": "{}", "mined": False}
    asked = pd.DataFrame(empty, index=made.index)[[*queries.columns]].assign(
        query_id=made.query_id, text=made.text, split=made.split
    )
    labels = pd.DataFrame(
        {"query_id": made.query_id, "document_id": made.document_id, "relevance": 1}
    )
    if "split" in qrels:
        labels["split"] = made.split
    labels = labels.astype(qrels.dtypes[labels.columns].to_dict())
    asked, labels = (
        pd.concat(both, ignore_index=True) for both in ((queries, asked), (qrels, labels))
    )
    return changed, asked, labels


def _non_overlapping(views: list[dict[Any, Any]], most: int) -> Iterator[dict[Any, Any]]:
    """Yield the first pseudo-query of a document and those that leave half of its text, each with what is then left.

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
    least = (count_words(text) + count_words(views[0]["text"])) / 2
    yield views[0]
    for view in views[1:]:
        shorter = re.sub(r"\s+".join(map(re.escape, view["text"].split())), " ", text).strip()
        if most > 1 and (
            view["kind"] in _WHOLE or (shorter != text and count_words(shorter) >= least)
        ):
            most = most - 1
            text = text if view["kind"] in _WHOLE else shorter
            yield view | {"positive_text": text}


def labels_used(
    rows: pd.DataFrame, queries: pd.DataFrame, share: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows and queries that a share of the labels leaves; test queries all stay.

    A larger share contains every smaller one.
    """
    if share == 1:
        return rows, queries
    place = position(seed, "training/labels", [normalised(text) for text in queries.text])
    kept = queries[(queries.split == "test") | (place < share)]
    return rows[rows.query_id.isin(kept.query_id)].reset_index(drop=True), kept
