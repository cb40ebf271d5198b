"""The module finds documents that must not be each other's negatives: near-duplicates and parts of one document."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anmi.corpus.sentences import UNSPACED
from anmi.corpus.texts import Texts, among, arrow, column, containing, taken

log = logging.getLogger(__name__)
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
COPY: Final = "copy"
NEAR: Final = "near"
SIBLING: Final = "sibling"
# What says "part of", the plainest first.
PARENT_KEYS: Final = ("parent_id", "parent", "document_id", "document", "doc_id")
# The document's id, a mark, perhaps a word, and the number: `x#0`, `x_1`, `x-chunk2`, `x_3.txt`. A stroke alone, or a
# full stop, stands in dates and versions as well.
_PART: Final = (
    r"^(?P<parent>.+?)(?P<mark>#|::|_|[-/.:#_ ](?:chunk|passage|paragraph|para|part|section|sec|sent|p|s|c)[-_#.]?)"
    r"(?P<number>[0-9]{1,6})(?:\.[a-z]{1,5})?$"
)
# Of the documents, in rows of at least two parts; and how many such rows there must be.
_LEAST_SHARE: Final = 0.3
_LEAST_PARENTS: Final = 3
# A book of 1,000 passages is a parent; what a tenth of the corpus (and more than 20 documents) share is a category.
_MOST_PARTS: Final = 1000
_MOST_SHARE: Final = 0.1
_PARTS_IN_ANY_CORPUS: Final = 20
# Where words stand without blanks, a character counts as one.
_WORD: Final = re.compile(f"{UNSPACED.pattern}|[^\\s{UNSPACED.pattern[1:-1]}]+")
# Three words in a row are the least that shows order; short texts have few longer ones.
_RUN: Final = 3
# Of texts that share telling words and a rare run of words, each is compared with the 100 before it only, which keeps a
# corpus of forms filled in alike linear; a pair shares many runs by which it may be found.
_REACH: Final = 100
# In a small corpus 1 % of the documents is no document at all, yet a word of one or two documents is a name there too.
_LEAST_COMMON: Final = 10


def near_duplicates(
    forms: Texts, similarity: float = 0.9, name_share: float = 0.01, least_words: int = 50
) -> list[tuple[int, int, float]]:
    """Find texts that say the same in almost the same words.

    Two texts are near-duplicates when the sets of their runs of three words have a Jaccard similarity of at least
    ``similarity`` *and* no telling word occurs more often in one than in the other. A word is telling when it holds a
    digit, is a single letter, or stands in less than ``name_share`` of the texts (or in less than ten). Similarity
    alone would call "type 6" and "type 9" of a disease the same, though a text that differs in one name or number is
    the best of negatives.

    Only texts with the same telling words are compared, which few share with another. Two of them that are similar
    enough share at least one of the rarest runs of each (prefix filtering, as in Bayardo et al. 2007), so the result
    is exact. Where words are not separated by blanks, as in Chinese, characters take their place.

    Parameters
    ----------
    forms
        N texts, normalised.
    similarity
        In (0, 1].
    name_share
        In [0, 1]; 0 goes by similarity alone.
    least_words
        Texts of fewer words are not compared: one word more or less makes much of a short text, and what is that
        similar nevertheless is so by repetition or by exchanged words ("born in A, died in B").

    Returns
    -------
    list of (int, int, float)
        Two texts, the first one first, and their similarity; in order.

    Examples
    --------
    >>> near_duplicates(["a b c a b", "x", "c a b c a b"], least_words=1)
    []
    >>> near_duplicates(["a b c a b c", "x", "b c a b c a"], least_words=1)
    [(0, 2, 1.0)]
    """
    given = arrow(forms)
    frequency = Counter(word for form in given for word in set(_words(form.as_py())))
    limit = max(name_share * len(given), _LEAST_COMMON)
    telling = {word for word, count in frequency.items() if name_share and (count < limit or _is_name(word))}
    del frequency
    groups = defaultdict[int, list[int]](list)
    for row, form in enumerate(given):
        words = _words(form.as_py())
        if len(words) >= max(least_words, 1):
            # Which names stand there, and how often.
            groups[hash(tuple(sorted(filter(telling.__contains__, words))))].append(row)
    found = []
    for rows in groups.values():
        if len(rows) > 1:
            runs = {row: _runs(_words(given[row].as_py())) for row in rows}
            found += [(i, j, share) for i, j in _sharing(runs, similarity)
                      if (share := len(runs[i] & runs[j]) / len(runs[i] | runs[j])) >= similarity]  # fmt: skip
    return sorted(found)


def _words(form: str) -> list[str]:
    return form.split() if form.isascii() else _WORD.findall(form)


def _is_name(word: str) -> bool:
    """Tell whether a word names something however common it is: numbers, and letters as in "hepatitis B"."""
    return any(map(str.isdigit, word)) or (len(word) == 1 and not UNSPACED.match(word))


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + _RUN]) for start in range(max(len(words) - _RUN + 1, 1))}


def _sharing(runs: Mapping[int, set[tuple[str, ...]]], similarity: float) -> set[tuple[int, int]]:
    """Return the pairs of texts that share one of the rarest runs of each."""
    frequency = Counter(run for own in runs.values() for run in own)
    holding = defaultdict[tuple[str, ...], list[int]](list)
    found = set()
    for row, own in runs.items():
        # Similar texts of n runs share similarity · n of them at least, so they share one of so many of the rarest.
        rarest = sorted(own, key=lambda run: (frequency[run], run))[: int((1 - similarity) * len(own) + 1e-9) + 1]
        for run in (run for run in rarest if frequency[run] > 1):
            found |= {(other, row) for other in holding[run][-_REACH:]}
            holding[run].append(row)
    return found


def find_related(
    corpus: pd.DataFrame,
    forms: Texts,
    duplicates: pd.DataFrame,
    similarity: float = 0.9,
    name_share: float = 0.01,
    least_words: int = 50,
    parents: pd.Series | None = None,
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
        See :func:`anmi.corpus.related.near_duplicates`.
    parents
        Of the N documents, see :func:`parents_of`; found out where they are not given.

    Returns
    -------
    pandas.DataFrame
        ``document_id, other_id, kind, similarity``. First the copies, each with the first document of its text, of
        the kind ``copy``. Then each near pair once, and the first document of each parent with every other one of it,
        the document that comes first in the corpus first;
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
    near = near_duplicates(arrow(forms).take(pa.array(rows)), similarity, name_share, least_words)
    pairs = [(rows[i], rows[j], NEAR, share) for i, j, share in near]
    parts = zip(*siblings(parents_of(corpus) if parents is None else parents), strict=True)
    pairs += [(i, j, SIBLING, np.nan) for i, j in parts]
    table = pd.DataFrame(pairs, columns=["i", "j", "kind", "similarity"]).sort_values(["i", "j", "kind"])
    table = table.astype({"i": int, "j": int, "similarity": float})

    def named(copies: pd.Series, places: pd.Series) -> pd.Series:
        return column(pa.concat_arrays([arrow(copies), ids.take(pa.array(places.to_numpy()))]))

    return pd.DataFrame({
        "document_id": named(duplicates["document_id"], table["i"]),
        "other_id": named(duplicates["duplicate_of"], table["j"]),
        "kind": pd.Series([*[COPY] * len(duplicates), *table["kind"]], dtype="str"),
        "similarity": np.concatenate([np.ones(len(duplicates)), table["similarity"]]).astype(np.float32),
    })  # fmt: skip


def copies(related: pd.DataFrame, corpus: pd.DataFrame | None = None) -> dict[str, str]:
    """Return for each passage that is a copy the first one of the same text.

    Parameters
    ----------
    related
        Of :func:`find_related`.
    corpus
        ``document_id, parent``: with it, documents whose passages are all copies of another document's.
    """
    found = related[related["kind"] == COPY]
    same = dict(zip(found["document_id"], found["other_id"], strict=True))
    if corpus is None or "parent" not in corpus or not same:
        return same
    parent = corpus.set_index("document_id")["parent"]
    pairs = pd.DataFrame({"one": parent[found["document_id"]].array, "other": parent[found["other_id"]].array})
    each = pairs.groupby("one")["other"].agg(["nunique", "size", "first"])
    whole = (each["nunique"] == 1) & (each["size"] == corpus["parent"].value_counts()[each.index])
    return {str(one): str(other) for one, other in each["first"][whole].items() if one != other}


def documents_of(corpus: pd.DataFrame) -> pd.Series:
    """Return the id of the document that each passage belongs to; its own where ingestion said nothing of it."""
    return corpus["parent"] if "parent" in corpus else corpus["document_id"]


def first_passages(corpus: pd.DataFrame) -> NDArray[np.int32]:
    """Return the first passage of each one's document, int32 [N].

    Examples
    --------
    >>> first_passages(pd.DataFrame({"document_id": ["a#1", "b", "a#2"], "parent": ["a", "b", "a"]})).tolist()
    [0, 1, 0]
    """
    _, first, number = np.unique(pd.factorize(documents_of(corpus))[0], return_index=True, return_inverse=True)
    return first[number].astype(np.int32)


def siblings(parents: pd.Series) -> Pairs:
    """Return the first document of each parent with every other one of it, int64 [n] each, in order.

    Examples
    --------
    >>> [found.tolist() for found in siblings(pd.Series(["b", "b", "c", "b"]))]
    [[0, 0], [1, 3]]
    """
    number = arrow(parents).dictionary_encode().indices.to_numpy()
    # Parents are numbered as they first occur.
    first = np.unique(number, return_index=True)[1].astype(np.int64)[number]
    others = np.flatnonzero(first != np.arange(len(number)))
    others = others[np.argsort(first[others], kind="stable")]
    return first[others], others


def parents_of(corpus: pd.DataFrame, keys: Sequence[str] | None = None) -> pd.Series:
    """Return for every document what it is a part of: the id of its parent, or its own id.

    The column ``parent`` says so where ingestion wrote one. Else a document is part of what one of ``keys`` names in
    its metadata, the first of them that does; a missing key, an empty value and a list name nothing. A value that a
    large part of the corpus shares (more than a tenth and more than 20 documents, or more than 1,000) is a category and
    no parent: it is ignored with a warning. Documents whose metadata say nothing are parts by their ids
    (``x#0``, ``x_1``, ``x-chunk2``) where much of the corpus has such: most documents stand in a row that begins at 0
    or 1 and lacks no number, there are several such rows, and titles, if any, are the same in a row.

    Parameters
    ----------
    corpus
        ``document_id, title, metadata`` (JSON), N rows.
    keys
        Names of metadata keys that mean "part of the document with this identifier"; ``None`` takes the usual ones, and
        none at all recognises nothing.

    Examples
    --------
    >>> metadata = ['{"parent": "b"}', "{}", '{"parent": "b"}', "{}"]
    >>> parents_of(pd.DataFrame({"document_id": list("abcd"), "metadata": metadata})).tolist()
    ['b', 'b', 'b', 'd']
    """
    if keys is None and "parent" in corpus:
        return corpus["parent"]
    found = corpus["document_id"].to_numpy(dtype=object, copy=True)
    if keys is None or keys:
        by_id = _parents_by_id(corpus, _most_parts(len(found)))
        found = np.where(by_id == "", found, by_id)
    # The first of the keys is read last, so that it decides.
    for key in reversed(PARENT_KEYS if keys is None else keys):
        named = _parents_by_key(corpus["metadata"], key)
        found[list(named)] = list(named.values())
    return column(found.tolist()).set_axis(corpus.index)


def _most_parts(documents: int) -> int:
    return max(_PARTS_IN_ANY_CORPUS, min(_MOST_PARTS, int(_MOST_SHARE * documents)))


def _parents_by_key(metadata: Texts, key: str) -> dict[int, str]:
    """Return the parent that a metadata key names, by row."""
    limit, parts = _most_parts(len(metadata)), defaultdict[str, list[int]](list)
    # Reading JSON is slow, and most documents name no parent.
    naming = containing(metadata, f'"{key}"')
    for row, text in zip(naming.tolist(), taken(metadata, naming), strict=True):
        value = json.loads(text).get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            parts[str(value)].append(row)
    large = [value for value, rows in parts.items() if len(rows) > limit]
    if large:
        most = max(large, key=lambda value: len(parts[value]))
        log.warning(
            'metadata key "%s": %s of %s documents share the value "%s", which is no document they are parts of; '
            "%d such values are ignored; name other keys in ingestion.sibling_keys",
            key, f"{len(parts[most]):,}", f"{len(metadata):,}", most, len(large),
        )  # fmt: skip
    return {row: value for value, rows in parts.items() if len(rows) <= limit for row in rows}


def _parents_by_id(corpus: pd.DataFrame, limit: int) -> NDArray[np.object_]:
    """Return the parent in front of the number of each id, [N]; empty strings where the ids are no numbers of parts."""
    none = np.full(len(corpus), "", dtype=object)
    read = pc.extract_regex(arrow(corpus["document_id"]), _PART)
    rows = np.flatnonzero(read.is_valid().to_numpy(zero_copy_only=False))
    if len(rows) < _LEAST_SHARE * len(corpus) or not len(rows):
        return none
    fields = ("parent", "mark", "number")
    parts = pd.DataFrame({name: read.field(name).take(pa.array(rows)).to_pylist() for name in fields})
    # The rows of a table are named by its path and their line, and are no parts of it.
    metadata = taken(corpus["metadata"], rows)
    lines = [f'"path":{json.dumps(parent)}' in text for parent, text in zip(parts.parent, metadata, strict=True)]
    parts, rows = parts[~np.array(lines)].astype({"number": int}), rows[~np.array(lines)]
    each = parts.groupby("parent").number.agg(["size", "min", "max"])
    row_of_parts = (each["min"] <= 1) & (each["max"] - each["min"] + 1 == each["size"]) & (each["size"] <= limit)
    several = row_of_parts & (each["size"] > 1)
    if "title" in corpus:
        titled = parts.assign(title=taken(corpus["title"], rows)).query("title != '' and mark not in ('#', '::')")
        unlike = titled.parent[titled.title != titled.groupby("parent").title.transform("first")]
        several &= ~each.index.isin(unlike)
    if each["size"][several].sum() < _LEAST_SHARE * len(corpus) or several.sum() < _LEAST_PARENTS:
        return none
    # What others are parts of is whole, whatever its own id ends in.
    whole = among(taken(corpus["document_id"], rows), parts.parent) | (parts.parent.map(each["size"]) > limit)
    none[rows] = np.where(whole, "", parts.parent)
    return none
