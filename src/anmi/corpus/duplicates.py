"""Documents, and queries, with the same text, exactly or after normalisation."""

from __future__ import annotations

import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa

from anmi.corpus.texts import Texts, among, arrow, column, taken


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
_COLLAPSE_ASCII = bytes(ord(_COLLAPSE[code]) if code < 128 else code for code in range(256))
# Texts that are strings of Python at a time.
_CHUNK = 20_000


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
    if text.isascii():
        # The same in a fifth of the time: these characters are composed already and none of them vanishes.
        return b" ".join(text.encode().lower().translate(_COLLAPSE_ASCII).split()).decode() or text.strip()
    # Case folding can undo a composition, hence the second NFKC.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.translate(_COLLAPSE).split()) or text.strip()


def normalised_forms(texts: Texts) -> pa.LargeStringArray:
    """Return the normalised texts as an Arrow array."""
    given = arrow(texts)
    parts = [
        pa.array([normalised(text) for text in given.slice(start, _CHUNK).to_pylist()], pa.large_string())
        for start in range(0, max(len(given), 1), _CHUNK)
    ]
    return pa.concat_arrays(parts)


def find_duplicates(document_ids: Texts, texts: Texts, forms: pa.LargeStringArray | None = None) -> pd.DataFrame:
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
    ids, written = arrow(document_ids), arrow(texts)
    # Numbers of texts in the order in which they first occur, so the first document of each number is known.
    number = (normalised_forms(written) if forms is None else forms).dictionary_encode().indices.to_numpy()
    first = np.unique(number, return_index=True)[1]
    root = first[number] if len(number) else number
    rows = np.flatnonzero(root != np.arange(len(number)))
    pairs = zip(taken(written, rows), taken(written, root[rows]), strict=True)
    return pd.DataFrame({
        "document_id": column(taken(ids, rows)),
        "duplicate_of": column(taken(ids, root[rows])),
        "kind": column(["exact" if one == other else "normalised" for one, other in pairs]),
    })  # fmt: skip


def find_queries(queries: pd.DataFrame, corpus: pd.DataFrame, forms: Texts) -> list[str]:
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
    forms, ids = arrow(forms), arrow(corpus["document_id"])
    asked = list(zip(arrow(queries["query_id"]).to_pylist(), arrow(queries["normalised"]).to_pylist(), strict=True))
    same = np.flatnonzero(among(forms, queries["normalised"]))
    first: dict[str, str] = {}
    for identifier, form in zip(taken(ids, same), taken(forms, same), strict=True):
        first.setdefault(form, identifier)
    shared = np.flatnonzero(among(ids, queries["query_id"]))
    parts = (taken(values, shared) for values in (ids, forms, corpus["text"]))
    own = {identifier: (form, text) for identifier, form, text in zip(*parts, strict=True)}

    def found(identifier: str, form: str) -> str:
        known, text = own.get(identifier, (None, ""))
        if known is not None and form in (known, normalised(text)):
            return identifier
        return first.get(form, "")

    return [found(*query) for query in asked]
