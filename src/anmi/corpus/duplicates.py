"""Documents, and queries, with the same text, exactly or after normalisation."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray


class _Collapse(dict[int, str]):
    """Translation table that learns, character by character, what is white-space, punctuation or invisible."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        # Invisible joiners and byte-order marks vanish: a blank in their place would split Hindi or Persian words.
        # Combining marks and symbols stay: they carry Hindi vowels and the difference between "<" and ">".
        blank = category[0] in "PZ" or category == "Cc"
        value = "" if category == "Cf" else " " if blank else chr(code)
        self[code] = value
        return value


_COLLAPSE = _Collapse()


def normalised(text: str) -> str:
    """Return the text in NFKC, case-folded, with runs of white-space and punctuation as one blank.

    A text of nothing but punctuation stays as it is, so that two of them are not taken for the same.

    Examples
    --------
    >>> normalised("What is  (are) ＡＬＬ?")
    'what is are all'
    >>> normalised("?!")
    '?!'
    """
    # Case folding can undo a composition, hence the second NFKC.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.translate(_COLLAPSE).split()) or text.strip()


def find_duplicates(
    document_ids: Sequence[str], texts: Sequence[str], forms: Sequence[str] | None = None
) -> pd.DataFrame:
    """Map every document whose normalised text occurred before to the first one that has it.

    Parameters
    ----------
    document_ids, texts
        Aligned, in corpus order; N each.
    forms
        The normalised texts, where they are known.

    Returns
    -------
    pandas.DataFrame
        ``document_id, duplicate_of, kind``: ``exact`` where the two texts are equal as they stand, else
        ``normalised``. ``duplicate_of`` is never itself a duplicate.

    Examples
    --------
    >>> find_duplicates(["a", "b", "c"], ["One.", "two", "one"]).values.tolist()
    [['c', 'a', 'normalised']]
    """
    first: dict[str, int] = {}
    keys = map(normalised, texts) if forms is None else forms
    root: NDArray[np.int64] = np.fromiter(
        (first.setdefault(key, row) for row, key in enumerate(keys)), np.int64, len(texts)
    )
    rows: list[int] = np.flatnonzero(root != np.arange(len(texts))).tolist()
    return pd.DataFrame(
        {
            "document_id": [document_ids[row] for row in rows],
            "duplicate_of": [document_ids[root[row]] for row in rows],
            "kind": ["exact" if texts[row] == texts[root[row]] else "normalised" for row in rows],
        },
        dtype="str",
    )


def find_queries(queries: pd.DataFrame, corpus: pd.DataFrame, forms: Sequence[str]) -> list[str]:
    """Return for every query the document that is the query itself, or has its text; nothing where there is none.

    In collections such as ArguAna and Quora the queries are documents, under the same id. The id alone does not tell:
    where queries and documents are both numbered from 1, all ids coincide. A document's text is its title and text;
    that of the document with the query's own id may also be the text alone.

    Parameters
    ----------
    queries
        ``query_id, normalised``.
    corpus
        ``document_id, text``, N rows.
    forms
        The N normalised texts of the documents, titles included.

    Returns
    -------
    list of str
        Ids of documents, empty strings where there is none. Of several documents of one text, that with the query's id
        or else the first; the others are found by :func:`find_duplicates`.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["1", "2", "3"], "normalised": ["a fox", "an owl", "a fox"]})
    >>> corpus = pd.DataFrame({"document_id": ["1", "2", "3"], "text": ["A fox.", "It rains.", "A fox?"]})
    >>> find_queries(queries, corpus, ["a fox", "it rains", "a fox"])
    ['1', '', '3']
    """
    first: dict[str, str] = {}
    for identifier, form in zip(corpus["document_id"], forms, strict=True):
        first.setdefault(form, identifier)
    shared = corpus["document_id"].isin(queries["query_id"]).to_numpy()
    own = dict(zip(corpus["document_id"][shared], np.flatnonzero(shared).tolist(), strict=True))
    texts = corpus["text"].tolist()

    def found(identifier: str, form: str) -> str:
        row = own.get(identifier)
        if row is not None and form in (forms[row], normalised(texts[row])):
            return identifier
        return first.get(form, "")

    return [found(*query) for query in zip(queries["query_id"], queries["normalised"], strict=True)]
