"""Pairs of documents that must not serve as each other's negatives: near-duplicates and parts of one document."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from anmi.corpus.columns import Texts, among, arrow, column, containing, taken
from anmi.corpus.near import Pairs, near_forms, pair_keys, unpacked, within

log = logging.getLogger(__name__)
COPY: Final = "copy"
NEAR: Final = "near"
SIBLING: Final = "sibling"
# A book of 1,000 passages is a parent; what a tenth of the corpus (and more than 20 documents) share is a category.
_MOST_PARTS: Final = 1000
_MOST_SHARE: Final = 0.1
_PARTS_IN_ANY_CORPUS: Final = 20


def find_related(
    corpus: pd.DataFrame,
    forms: Texts,
    duplicates: pd.DataFrame,
    similarity: float = 0.9,
    name_share: float = 0.01,
    least_words: int = 50,
    sibling_keys: Sequence[str] = ("parent_id", "parent"),
) -> pd.DataFrame:
    """Find the pairs of documents of which one must not be a negative where the other is a positive.

    Documents with the same text are in ``duplicates`` already; only the first of them is compared with others, and
    what is related to it is related to all of them (see :class:`anmi.retrieval.related.RelatedDocuments`).

    Parameters
    ----------
    corpus
        ``document_id, metadata`` (JSON), N rows.
    forms
        The N texts of the documents, normalised.
    duplicates
        ``document_id, duplicate_of``.
    similarity, name_share, least_words
        See :func:`anmi.corpus.near.near_duplicates`.
    sibling_keys
        See :func:`siblings`.

    Returns
    -------
    pandas.DataFrame
        ``document_id, other_id, kind, similarity``. First the copies, each with the first document of its text, of
        the kind ``copy``. Then each pair once per kind, the document that comes first in the corpus first;
        ``similarity`` is the Jaccard similarity in (0, 1] of ``near`` pairs, 1 of copies and NaN for ``sibling``.

    Examples
    --------
    >>> metadata = ['{"parent": "x"}', "{}", '{"parent": "x"}']
    >>> corpus = pd.DataFrame({"document_id": ["a", "b", "c"], "metadata": metadata})
    >>> none = pd.DataFrame({"document_id": [], "duplicate_of": []})
    >>> find_related(corpus, ["one", "two", "three"], none).iloc[:, :3].values.tolist()
    [['a', 'c', 'sibling']]
    """
    ids = arrow(corpus["document_id"])
    rows = np.flatnonzero(~among(ids, duplicates["document_id"]))
    first, second, measured = near_forms(arrow(forms).take(pa.array(rows)), similarity, name_share, least_words)
    one, other = siblings(ids, corpus["metadata"], sibling_keys)
    table = pd.DataFrame({
        "i": np.concatenate([rows[first], one]),
        "j": np.concatenate([rows[second], other]),
        "kind": [NEAR] * len(first) + [SIBLING] * len(one),
        "similarity": np.concatenate([measured, np.full(len(one), np.nan, np.float32)]),
    }).sort_values(["i", "j", "kind"], ignore_index=True)  # fmt: skip

    def named(copies: pd.Series, places: pd.Series) -> pd.Series:
        return column(pa.concat_arrays([arrow(copies), ids.take(pa.array(places.to_numpy()))]))

    return pd.DataFrame({
        "document_id": named(duplicates["document_id"], table["i"]),
        "other_id": named(duplicates["duplicate_of"], table["j"]),
        "kind": pd.Series([*[COPY] * len(duplicates), *table["kind"]], dtype="str"),
        "similarity": np.concatenate([np.ones(len(duplicates)), table["similarity"]]).astype(np.float32),
    })  # fmt: skip


def copies(related: pd.DataFrame) -> dict[str, str]:
    """Return for each document that is a copy the first one of the same text.

    Parameters
    ----------
    related
        Of :func:`find_related`.
    """
    found = related[related["kind"] == COPY]
    return dict(zip(found["document_id"], found["other_id"], strict=True))


def siblings(document_ids: Texts, metadata: Texts, keys: Sequence[str]) -> Pairs:
    """Find documents whose metadata name the same parent, and the parent itself where it is in the corpus.

    Two documents are siblings when the same one of ``keys`` has the same value in both; a missing key, an empty value
    and a list are no parent. A value shared by a large part of the corpus (more than a tenth and more than 20
    documents, or more than 1,000) is a category and no parent: it is ignored with a warning.

    Parameters
    ----------
    document_ids, metadata
        N identifiers, and N JSON objects.
    keys
        Names of metadata keys that mean "part of the document with this identifier".

    Returns
    -------
    first, second
        int64 [n] each, in order, ``first < second``.

    Examples
    --------
    >>> [found.tolist() for found in siblings("abc", ['{"of": "b"}', "{}", '{"of": "b"}'], ["of"])]
    [[0, 0, 1], [1, 2, 2]]
    """
    limit = max(_PARTS_IN_ANY_CORPUS, min(_MOST_PARTS, int(_MOST_SHARE * len(document_ids))))
    found, row_of = [np.zeros(0, np.int64)], dict[str, int]()
    for key in keys:
        parts: dict[str, set[int]] = defaultdict(set)
        # Reading JSON is slow, and most documents name no parent.
        naming = containing(metadata, f'"{key}"')
        for row, text in zip(naming.tolist(), taken(metadata, naming), strict=True):
            value = json.loads(text).get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
                parts[str(value)].add(row)
        if parts and not row_of:
            row_of = {identifier: row for row, identifier in enumerate(arrow(document_ids).to_pylist())}
        for value, rows in parts.items():
            if value in row_of:
                rows.add(row_of[value])
        large = [value for value, rows in parts.items() if len(rows) > limit]
        if large:
            most = max(large, key=lambda value: len(parts[value]))
            log.warning(
                'metadata key "%s": %s of %s documents share the value "%s", which is no document they are parts of; '
                "%d such values are ignored; name other keys in ingestion.sibling_keys",
                key, f"{len(parts[most]):,}", f"{len(document_ids):,}", most, len(large),
            )  # fmt: skip
        groups = [sorted(rows) for value, rows in parts.items() if 1 < len(rows) <= limit]
        members = np.array([row for rows in groups for row in rows], np.int64)
        group = np.repeat(np.arange(len(groups)), [len(rows) for rows in groups])
        found.append(pair_keys(members, *within(group, limit), len(document_ids)))
    return unpacked(np.unique(np.concatenate(found)), len(document_ids))
