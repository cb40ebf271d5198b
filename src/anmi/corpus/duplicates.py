"""Documents with the same text, exactly or after normalisation."""

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


def find_duplicates(document_ids: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    """Map every document whose normalised text occurred before to the first one that has it.

    Parameters
    ----------
    document_ids, texts
        Aligned, in corpus order; N each.

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
    root: NDArray[np.int64] = np.fromiter(
        (first.setdefault(normalised(text), row) for row, text in enumerate(texts)), np.int64, len(texts)
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
