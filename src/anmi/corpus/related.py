"""The module finds near-duplicates and parts of one document, and chooses new documents."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from anmi.corpus.sentences import UNSPACED
from anmi.corpus.texts import (
    Texts,
    among,
    arrow,
    column,
    containing,
    document_texts,
    first_rows,
    normalised,
    taken,
    to_json,
)
from anmi.corpus.types import FEWEST_DEV
from anmi.errors import AnmiError
from anmi.ragged import Bools, Int32s, Int64s
from anmi.seeds import position

log = logging.getLogger(__name__)
Pairs = tuple[Int64s, Int64s]
COPY: Final = "copy"
# In the place of the first passage of a document that is no result.
NO_RESULT: Final = -1
NEAR: Final = "near"
SIBLING: Final = "sibling"
# The metadata key that names the whole document, unless ingestion.columns.parent names another.
PARENT_KEY: Final = "document"
# The document's id, a mark, perhaps a word, and the number: `x#0`, `x_1`, `x-chunk2`, `x_3.txt`. A
# hyphen or a full stop alone is no mark: dates and versions have them, too.
_PART: Final = (
    r"^(?P<parent>.+?)(?P<mark>#|::|_|[-/.:#_"
    r" ](?:chunk|passage|paragraph|para|part|section|sec|sent|p|s|c)[-_#.]?)"
    r"(?P<number>[0-9]{1,6})(?:\.[a-z]{1,5})?$"
)
# The share of the documents that must be in runs of at least two numbered parts, and how many such
# runs there must be.
_LEAST_SHARE: Final = 0.3
_LEAST_PARENTS: Final = 3
# In scripts without blanks, each character counts as a word.
_WORD: Final = re.compile(f"{UNSPACED.pattern}|[^\\s{UNSPACED.pattern[1:-1]}]+")
# Runs of three words are the shortest that show word order; short texts have few longer ones.
_RUN: Final = 3
# Texts whose words are strings at one time, which bounds memory.
_TEXTS_AT_ONCE: Final = 16_384
# Each text is compared with only the 100 before it that share a rare run of words, so that a corpus
# of filled-in forms takes linear time; a pair shares many runs by which it may be found.
_REACH: Final = 100
# A word in a smaller share of the documents is a name.
_NAME_SHARE: Final = 0.01
# In a small corpus 1 % of the documents is less than one document, but a word of one or two
# documents is a name there, too.
_LEAST_COMMON: Final = 10


def near_duplicates(
    forms: Texts,
    similarity: float = 0.9,
    least_words: int = 50,
) -> list[tuple[int, int, float]]:
    """Find texts that say the same in almost the same words.

    Two texts are near-duplicates when the sets of their runs of three words have a Jaccard
    similarity of at least ``similarity`` *and* no telling word occurs more often in one than in the
    other. A word is telling when it holds a digit, is a single letter, or stands in less than 1 %
    of the texts (or in less than ten). Similarity alone would call "type 6" and "type 9" of a
    disease the same, though a text that differs in one name or number is the best of negatives.

    Only texts with the same telling words are compared, which few share with another. Two of them
    that are similar enough share at least one of the rarest runs of each (prefix filtering, as in
    Bayardo et al. 2007), so the result is exact. Where words are not separated by blanks, as in
    Chinese, characters take their place.

    Parameters
    ----------
    forms
        N texts, normalised.
    similarity
        In (0, 1]. Pairs from 0.8 to 0.9, inspected by eye, are about different things.
    least_words
        Texts of fewer words are not compared: one word more or less makes much of a short text, and
        what is that similar nevertheless is so by repetition or by exchanged words ("born in A,
        died in B"). No such pair in kg_webnlg stated the same facts.

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
    texts = arrow(forms)
    keys, word_counts = _keys_of_names(texts)
    rows_of_key = defaultdict[int, list[int]](list)
    # Arrow splits an empty text into one empty word.
    is_long = (word_counts >= least_words) & (pc.binary_length(texts).to_numpy() > 0)
    _, key_of_long, key_counts = np.unique(keys[is_long], return_inverse=True, return_counts=True)
    is_shared = key_counts[key_of_long] > 1
    rows = np.flatnonzero(is_long)[is_shared].tolist()
    for row, key in zip(rows, key_of_long[is_shared].tolist(), strict=True):
        rows_of_key[key].append(row)
    pairs = []
    for similar_rows in rows_of_key.values():
        runs = {}
        for row in similar_rows:
            runs[row] = _runs(_words(texts[row].as_py()))
        for i, j in _sharing(runs, similarity):
            shared = runs[i] & runs[j]
            share = len(shared) / len(runs[i] | runs[j])
            if share >= similarity:
                pairs.append((i, j, share))
    return sorted(pairs)


def _keys_of_names(texts: pa.LargeStringArray) -> tuple[NDArray[np.uint64], Int64s]:
    """Return a hash of the telling words of each text, in any order, and its number of words."""
    starts = range(0, max(len(texts), 1), _TEXTS_AT_ONCE)
    rows = [_split(texts[start : start + _TEXTS_AT_ONCE]) for start in starts]
    word_counts = [pc.list_value_length(block).to_numpy() for block in rows]
    encoded = pa.chunked_array([block.flatten().dictionary_encode() for block in rows])
    encoded = encoded.unify_dictionaries()
    words = encoded.chunk(0).dictionary
    blocks = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    del rows, encoded
    limit = max(_NAME_SHARE * len(texts), _LEAST_COMMON)
    occurrences = np.zeros(len(words), np.int64)
    for numbers in blocks:
        occurrences += np.bincount(numbers, minlength=len(words))
    is_common = occurrences >= limit
    frequency = np.zeros(len(words), np.int64)
    for numbers, lengths in zip(blocks, word_counts, strict=True):
        rows_of_words = np.repeat(np.arange(len(lengths)), lengths)
        common = is_common[numbers]
        # Sorting takes a twentieth of what np.unique does, which hashes.
        pairs = np.sort(rows_of_words[common] * len(words) + numbers[common])
        is_first = np.diff(pairs, prepend=-1) > 0
        frequency += np.bincount(pairs[is_first] % len(words), minlength=len(words))
    is_telling = frequency < limit
    for number in np.flatnonzero(~is_telling).tolist():
        is_telling[number] = _is_name(words[number].as_py())
    # A sum of random numbers tells sets of words apart, however often each stands in a text.
    hashes = np.random.default_rng(0).integers(0, 1 << 64, len(words), np.uint64)
    hashes *= is_telling
    keys = []
    for numbers, lengths in zip(blocks, word_counts, strict=True):
        sums = np.concatenate([[np.uint64(0)], np.cumsum(hashes[numbers])])
        ends = np.cumsum(lengths)
        keys.append(sums[ends] - sums[ends - lengths])
    return np.concatenate(keys), np.concatenate(word_counts)


def _split(texts: pa.LargeStringArray) -> pa.LargeListArray:
    """Return the words of each text, as :func:`_words` does."""
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        apart = pc.replace_substring_regex(texts, f"({UNSPACED.pattern})", r" \1 ")
        texts = pc.utf8_trim_whitespace(apart)
    return pc.utf8_split_whitespace(texts)


def _words(form: str) -> list[str]:
    return form.split() if form.isascii() else _WORD.findall(form)


def _is_name(word: str) -> bool:
    """Tell whether a word is a name however common: a number, or a letter as in "hepatitis B"."""
    is_letter = len(word) == 1 and not UNSPACED.match(word)
    return is_letter or any(map(str.isdigit, word))


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    count = max(len(words) - _RUN + 1, 1)
    return {tuple(words[start : start + _RUN]) for start in range(count)}


def _sharing(runs: Mapping[int, set[tuple[str, ...]]], similarity: float) -> set[tuple[int, int]]:
    """Return the pairs of texts that share one of the rarest runs of each."""
    frequency = Counter(run for text_runs in runs.values() for run in text_runs)
    holding = defaultdict[tuple[str, ...], list[int]](list)
    pairs = set()
    for row, text_runs in runs.items():
        # A text of n runs shares at least similarity · n of them with a similar text, so at least
        # one of this many.
        count = int((1 - similarity) * len(text_runs) + 1e-9) + 1
        rarest = sorted(text_runs, key=lambda run: (frequency[run], run))[:count]
        for run in rarest:
            if frequency[run] > 1:
                pairs |= {(earlier, row) for earlier in holding[run][-_REACH:]}
                holding[run].append(row)
    return pairs


def find_related(
    corpus: pd.DataFrame,
    forms: Texts,
    duplicates: pd.DataFrame,
    families: pd.Series | None = None,
) -> pd.DataFrame:
    """Find the pairs of documents where one must not be a negative if the other is a positive.

    Documents with the same text are in ``duplicates`` already; only the first of them is compared
    with others, and what is related to it is related to all of them (see
    :class:`anmi.retrieval.pool.RelatedDocuments`).

    Parameters
    ----------
    corpus
        ``document_id``, N rows.
    forms
        The N texts of the documents, normalised.
    duplicates
        ``document_id, duplicate_of``.
    families
        What each of the N documents is a part of, see :func:`families_of`; without them
        there are no siblings.

    Returns
    -------
    pandas.DataFrame
        ``document_id, other_id, kind, similarity``. First the copies, each with the first document
        of its text, of the kind ``copy``. Then each near pair once, and the first document of each
        family with every other one of it, the document that comes first in the corpus first;
        ``similarity`` is the Jaccard similarity in (0, 1] of ``near`` pairs, 1 of copies and NaN
        for ``sibling``.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": ["a", "b", "c"]})
    >>> none = pd.DataFrame({"document_id": [], "duplicate_of": []})
    >>> families = pd.Series(["x", "b", "x"])
    >>> find_related(corpus, ["one", "two", "three"], none, families).iloc[:, :3].values.tolist()
    [['a', 'c', 'sibling']]
    """
    rows = np.flatnonzero(~among(corpus["document_id"], duplicates["document_id"]))
    near = near_duplicates(arrow(forms).take(pa.array(rows)))
    pairs = [(rows[i], rows[j], NEAR, share) for i, j, share in near]
    if families is not None:
        first, others = siblings(families)
        pairs += [(i, j, SIBLING, np.nan) for i, j in zip(first, others, strict=True)]
    ids = corpus["document_id"].tolist()
    types = dict.fromkeys(["document_id", "other_id", "kind"], "str") | {"similarity": "float32"}
    related = pd.DataFrame(
        [(ids[i], ids[j], kind, share) for i, j, kind, share in sorted(pairs)],
        columns=list(types),
    )
    same = duplicates[["document_id", "duplicate_of"]]
    same = same.set_axis(["document_id", "other_id"], axis=1)
    same = same.assign(kind=COPY, similarity=1.0)
    return pd.concat([same, related], ignore_index=True).astype(types)


def copies(related: pd.DataFrame, corpus: pd.DataFrame | None = None) -> dict[str, str]:
    """Return the first passage of the same text for each copy; with ``corpus``, of documents.

    Parameters
    ----------
    related
        Of :func:`find_related`.
    corpus
        ``document_id, parent``: with it, documents whose passages are those of another document,
        one by one.
    """
    duplicates = related[related["kind"] == COPY]
    same = dict(zip(duplicates["document_id"], duplicates["other_id"], strict=True))
    if corpus is None or "parent" not in corpus or not same:
        return same
    repeated = corpus[among(corpus["document_id"], [*same, *same.values()])]
    passages = corpus[among(corpus["parent"], repeated["parent"])]
    firsts = passages["document_id"].map(same).fillna(passages["document_id"])
    texts = firsts.groupby(passages["parent"], sort=False).agg(tuple)
    # Reversed, so that the first document wins.
    first_documents = dict(zip(texts[::-1], texts.index[::-1], strict=True))
    first_of_document = texts.map(first_documents)
    is_copy = first_of_document != first_of_document.index
    copied = first_of_document[is_copy]
    return dict(zip(copied.index, copied, strict=True))


def documents_of(corpus: pd.DataFrame) -> pd.Series:
    """Return the id of the document of each passage; its own where ingestion said nothing."""
    return corpus["parent"] if "parent" in corpus else corpus["document_id"]


def hits_of(corpus: pd.DataFrame) -> pd.Series:
    """Return under which document each passage is a result: its own, or the first one of that text.

    The column ``copy_of`` names the latter where ingestion found copies.
    """
    return corpus["copy_of"] if "copy_of" in corpus else documents_of(corpus)


def with_copies_named(corpus: pd.DataFrame, related: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``copy_of``, the first document with the text of each, where there are copies.

    Examples
    --------
    >>> related = pd.DataFrame({"document_id": ["b"], "other_id": ["a"], "kind": ["copy"]})
    >>> with_copies_named(pd.DataFrame({"document_id": ["a", "b"]}), related).copy_of.tolist()
    ['a', 'a']
    """
    first_of_text = copies(related, corpus)
    if not first_of_text:
        return corpus
    documents = documents_of(corpus)
    return corpus.assign(copy_of=documents.map(first_of_text).fillna(documents))


def first_passages(documents: pd.Series) -> Int32s:
    """Return the first passage of the document of each passage, int32 [N].

    Examples
    --------
    >>> first_passages(pd.Series(["a", "b", "a"])).tolist()
    [0, 1, 0]
    """
    return first_rows(documents).astype(np.int32)


def result_passages(corpus: pd.DataFrame) -> Int32s:
    """Return the first passage of the document of each passage, int32 [N], and -1 for copies.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": ["a", "b", "c"], "copy_of": ["a", "b", "a"]})
    >>> result_passages(corpus).tolist()
    [0, 1, -1]
    """
    documents = documents_of(corpus)
    is_copy = (hits_of(corpus) != documents).to_numpy()
    return np.where(is_copy, np.int32(NO_RESULT), first_passages(documents))


def siblings(parents: pd.Series) -> Pairs:
    """Return the first document of each parent with every other one, int64 [n] each, in order.

    Examples
    --------
    >>> [rows.tolist() for rows in siblings(pd.Series(["b", "b", "c", "b"]))]
    [[0, 0], [1, 3]]
    """
    first = first_rows(parents)
    others = np.flatnonzero(first != np.arange(len(first)))
    others = others[np.argsort(first[others], kind="stable")]
    return first[others], others


def parents_of(corpus: pd.DataFrame, column_name: str | None = None) -> pd.Series:
    """Return the id of what each document is a part of by its metadata, or its own id.

    A missing key, an empty value and a list name nothing. A value of ``document`` that a large part
    of the corpus shares (more than a tenth and more than 20 documents, or more than 1,000) is a
    category and no parent: it is ignored with a warning.

    Parameters
    ----------
    corpus
        ``document_id, metadata`` (JSON), N rows.
    column_name
        The key that names the parent (``ingestion.columns.parent``); ``document`` where this is
        ``None``, and none where it is empty.

    Raises
    ------
    AnmiError
        No document has the key that is named.

    Examples
    --------
    >>> metadata = ['{"document": "b"}', "{}", '{"document": "b"}', "{}"]
    >>> parents_of(pd.DataFrame({"document_id": list("abcd"), "metadata": metadata})).tolist()
    ['b', 'b', 'b', 'd']
    """
    parents = corpus["document_id"].reset_index(drop=True).astype(object)
    if column_name != "":
        named_parents = _named_parents(corpus["metadata"], column_name or PARENT_KEY)
        if column_name and named_parents.empty:
            raise AnmiError(
                f'no document has a "{column_name}", which ingestion.columns.parent names; name a'
                " column of the corpus that holds the id of the whole document"
            )
        if not column_name:
            named_parents = _without_categories(named_parents, len(corpus))
        parents[named_parents.index] = named_parents
    return column(parents.tolist()).set_axis(corpus.index)


def families_of(corpus: pd.DataFrame, parents: pd.Series) -> pd.Series:
    """Return the parents, or the name before the number in the id where they say nothing.

    Ids are those of parts (``x#0``, ``x_1``, ``x-chunk2``) where much of the corpus has such: most
    documents stand in a run of numbers that begins at 0 or 1 and lacks none, there are several such
    runs, and titles, if any, are the same within a run.

    Parameters
    ----------
    corpus
        ``document_id, metadata`` (JSON), N rows, maybe ``title``.
    parents
        Of :func:`parents_of`.

    Examples
    --------
    >>> ids = pd.Series([f"{name}_{number}" for name in "abc" for number in (1, 2)])
    >>> families_of(pd.DataFrame({"document_id": ids, "metadata": "{}"}), ids).tolist()
    ['a', 'a', 'b', 'b', 'c', 'c']
    """
    by_id = _parents_by_id(corpus, _largest_family(len(corpus)))
    families = parents.reset_index(drop=True).astype(object)
    silent = families == corpus["document_id"].reset_index(drop=True)
    by_id = by_id[silent[by_id.index]]
    families[by_id.index] = by_id
    return column(families.tolist()).set_axis(corpus.index)


def _largest_family(documents: int) -> int:
    """Return the most parts of a document: a book has 1,000; a tenth of all is a category."""
    return max(20, min(1000, documents // 10))


def _named_parents(metadata: Texts, key: str) -> pd.Series:
    """Return the parent that a metadata key names, by row."""
    # Reading JSON is slow, and most documents name no parent.
    rows = containing(metadata, to_json(key))
    values = [json.loads(text).get(key) for text in taken(metadata, rows)]
    texts = [_as_id(value) for value in values]
    parents = pd.Series(texts, rows, dtype=object)
    return parents[parents != ""]


def _as_id(value: Any) -> str:
    """Return an id as ids of documents are read, nothing of what names nothing."""
    # A column of numbers in which some are missing is one of fractions.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_id = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value).strip() if is_id else ""


def _without_categories(parents: pd.Series, documents: int) -> pd.Series:
    """Return the parents that only so many documents share; warn of the others."""
    counts = parents.value_counts()
    large = counts[counts > _largest_family(documents)]
    if len(large):
        log.warning(
            'metadata key "%s": %s of %s documents share the value "%s", which is no document they'
            " are parts of; %d such values are ignored, unless ingestion.columns.parent names the"
            " key",
            PARENT_KEY,
            f"{large.iloc[0]:,}",
            f"{documents:,}",
            large.index[0],
            len(large),
        )
    return parents[~parents.isin(large.index)]


def _parents_by_id(corpus: pd.DataFrame, limit: int) -> pd.Series:
    """Return the parent in front of the number of each id, by row; none where ids are no parts."""
    corpus = corpus.reset_index(drop=True)
    parts = corpus["document_id"].str.extract(_PART).dropna()
    parts = parts.astype({"number": int})
    if len(parts) < _LEAST_SHARE * len(corpus) or parts.empty:
        return corpus["document_id"][:0]
    # Rows of a table are named by its path and their line, but they are no parts of it.
    lines = zip(parts["parent"], corpus["metadata"][parts.index], strict=True)
    parts = parts[[f'"path":{json.dumps(parent)}' not in text for parent, text in lines]]
    by_parent = parts.groupby("parent")["number"].agg(["size", "min", "max"])
    numbers = by_parent["max"] - by_parent["min"] + 1
    is_complete_run = by_parent["min"] <= 1
    is_complete_run &= numbers == by_parent["size"]
    is_complete_run &= by_parent["size"] <= limit
    is_multipart_run = is_complete_run & (by_parent["size"] > 1)
    if "title" in corpus:
        parts["title"] = corpus["title"]
        has_title = parts["title"] != ""
        titled = parts[has_title & ~parts["mark"].isin(["#", "::"])]
        titles = titled.groupby("parent")["title"].nunique()
        is_multipart_run &= titles.reindex(by_parent.index, fill_value=0) <= 1
    parts_in_runs = by_parent["size"][is_multipart_run].sum()
    if parts_in_runs < _LEAST_SHARE * len(corpus) or is_multipart_run.sum() < _LEAST_PARENTS:
        return parts["parent"][:0]
    # A document that has parts is whole, whatever its own id ends in.
    is_whole = among(corpus["document_id"][parts.index], by_parent.index)
    is_whole |= parts["parent"].map(by_parent["size"]) > limit
    return parts["parent"][~is_whole]


# At most this share is new for each of dev and test, so that holding out costs little.
_MOST_NEW: Final = 0.05
# Where nobody labelled a split, up to ten documents of a small collection are new, which ask
# several pseudo-queries each, but no more than a fifth of all. With fewer than twenty passages
# nothing could be measured, and training gets them all.
_NEW_OF_FEW: Final = 10
# Half of fewer labelled test queries are too few to measure anything on their documents.
FEWEST_FOR_NEW: Final = 60


def new_documents(
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    related: pd.DataFrame,
    *,
    new_queries: int,
    seed: int,
) -> pd.DataFrame:
    """Choose documents that mining and training must not see, to stand for those that come later.

    Eligible are queries that share no document with training. At most half of them in each split,
    and at most ``new_queries``, get new documents, which are at most a twentieth of the labelled
    documents. With 20 to 59 labelled test queries none is new for
    test, see :func:`why_none_is_new`.

    A split with fewer than 20 labelled queries gets pseudo-queries besides. Of these documents that
    no label of the split names are new, first those that no label names at all: a twentieth of all
    documents, since without labels nothing else is measured. Of few documents ten are new, or a
    fifth where that is less, and of fewer than twenty passages none. The new documents of a split
    have at most a fifth of all passages.

    Parameters
    ----------
    corpus, queries, qrels
        As in :class:`anmi.corpus.types.Collection`.
    related
        ``document_id, other_id``: copies, near-duplicates and siblings, which are new together, as
        are the passages of one document.
    new_queries
        Queries of each split, all of whose relevant documents are new; 0 chooses none.
    seed
        Keys the hash of the texts that chooses.

    Returns
    -------
    pandas.DataFrame
        ``document_id, split``: ``dev`` or ``test``, the split whose queries ask for them.

    Examples
    --------
    >>> names = [f"d{number}" for number in range(60)]
    >>> corpus = pd.DataFrame({"document_id": names, "title": "", "text": names})
    >>> queries = pd.DataFrame({"query_id": names, "text": names, "split": "test"})
    >>> qrels = pd.DataFrame({"query_id": names, "document_id": names, "relevance": 1})
    >>> related = pd.DataFrame({"document_id": [], "other_id": []}, dtype=str)
    >>> new = new_documents(corpus, queries, qrels, related, new_queries=100, seed=1)
    >>> new.split.value_counts().to_dict()
    {'dev': 10, 'test': 3}
    """
    qrels = qrels.reset_index(drop=True)
    corpus = corpus.reset_index(drop=True)
    group, sizes = _groups(corpus, related)
    split_of_query = queries.set_index("query_id").split
    group_of_document = pd.Series(group, corpus.document_id)
    labels = pd.DataFrame(
        {
            "split": qrels.query_id.map(split_of_query),
            "group": qrels.document_id.map(group_of_document),
            "query_id": qrels.query_id,
            "relevant": qrels.relevance > 0,
        }
    )
    labels = labels.dropna().astype({"group": int})
    split_of_group = np.full(len(sizes), "", object)
    split_of_group[labels.group[labels.split == "train"]] = "train"
    documents = documents_of(corpus)
    for split in ("test", "dev") if new_queries else ():
        of_split = labels[labels.split == split]
        labelled_queries = count_labelled(queries, qrels, split)
        if labelled_queries >= FEWEST_DEV:
            relevant_passages = qrels.document_id[qrels.relevance > 0]
            labelled_documents = documents[among(corpus.document_id, relevant_passages)].nunique()
            is_measured = split == "dev" or labelled_queries >= FEWEST_FOR_NEW
            candidates = _labelled_candidates(of_split, queries, new_queries)
            candidates.max_documents = _MOST_NEW * labelled_documents * is_measured
        else:
            candidates = _unnamed_candidates(corpus, group, of_split, labels, new_queries)
        _hold_out(candidates, split_of_group, sizes, split, len(corpus), seed)
    chosen = corpus[["document_id"]].assign(split=column(split_of_group[group]))
    return chosen[chosen.split.isin(("dev", "test"))].reset_index(drop=True)


@dataclass
class _Candidates:
    """Sets of groups of documents that may be new for a split.

    Attributes
    ----------
    groups
        Each set of groups that is new together, by the query that asks for it or by number.
    texts
        Of the queries or documents, by whose hash sets are chosen.
    is_last
        Which sets are chosen only when no other is left.
    max_sets
        Most sets that may be chosen.
    max_documents
        Most documents that may be new.
    """

    groups: pd.Series
    texts: pd.Series
    is_last: Bools
    max_sets: int
    max_documents: float = 0.0


def _labelled_candidates(
    labels: pd.DataFrame,
    queries: pd.DataFrame,
    new_queries: int,
) -> _Candidates:
    """Return the documents that answer each query of a split."""
    groups = labels[labels.relevant].groupby("query_id").group.agg(set)
    texts = queries.set_index("query_id").text[groups.index]
    return _Candidates(groups, texts, np.zeros(len(groups), bool), new_queries)


def _unnamed_candidates(
    corpus: pd.DataFrame,
    group: Int32s,
    of_split: pd.DataFrame,
    labels: pd.DataFrame,
    new_queries: int,
) -> _Candidates:
    """Return the documents that no label of a split names."""
    count = documents_of(corpus).nunique()
    # The split's own labels are measured on the whole texts of their documents.
    unnamed = np.setdiff1d(group, of_split.group)
    texts = pd.Series(document_texts(corpus)).groupby(group).min()
    groups = [{number} for number in unnamed.tolist()]
    documents = max(_MOST_NEW * count, min(_NEW_OF_FEW, count // 5))
    is_measured = len(corpus) >= 2 * _NEW_OF_FEW
    return _Candidates(
        groups=pd.Series(groups, dtype=object),
        texts=texts[unnamed],
        # The other split's queries keep their documents where there are enough without labels.
        is_last=np.isin(unnamed, labels.group),
        max_sets=max(new_queries, count // 20),
        max_documents=documents * is_measured,
    )


def _hold_out(
    candidates: _Candidates,
    split_of_group: NDArray[Any],
    sizes: Int64s,
    split: str,
    passages: int,
    seed: int,
) -> None:
    """Give groups of documents to a split, in the order of the hash, as long as there is room."""
    free_sets = []
    for groups in candidates.groups:
        is_in_train = split_of_group[list(groups)] == "train"
        free_sets.append(not any(is_in_train))
    is_free = np.array(free_sets, bool)
    forms = [normalised(text) for text in candidates.texts]
    hashes = position(seed, f"new/{split}", forms)
    order = np.lexsort((hashes, candidates.is_last))
    count = min(candidates.max_sets, -(-int(is_free.sum()) // 2))
    chosen = order[is_free[order]][:count]
    room = np.array([candidates.max_documents, max(passages // 5, 1)])
    for groups in candidates.groups.iloc[chosen]:
        fresh = [number for number in groups if not split_of_group[number]]
        cost = sizes[fresh].sum(axis=0)
        if (cost <= room).all():
            split_of_group[fresh] = split
            room = room - cost


def count_labelled(
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    split: str,
) -> int:
    """Return how many queries of a split have a label.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["a", "b"], "split": ["dev", "test"]})
    >>> count_labelled(queries, pd.DataFrame({"query_id": ["a", "a"]}), "dev")
    1
    """
    query_ids = queries.query_id[queries.split == split]
    return int(among(query_ids, qrels.query_id).sum())


def why_none_is_new(queries: pd.DataFrame, qrels: pd.DataFrame) -> str:
    """Say why :func:`new_documents` chose none for test, though some were wanted."""
    count = count_labelled(queries, qrels, "test")
    if FEWEST_DEV <= count < FEWEST_FOR_NEW:
        return (
            f"Too few to measure new documents: {count:,} test queries have a label, and"
            f" {FEWEST_FOR_NEW} are the least."
        )
    return "New documents are not measured: labels leave none to hold out."


def _groups(corpus: pd.DataFrame, related: pd.DataFrame) -> tuple[Int32s, Int64s]:
    """Return the group of each passage, [N], and the documents and passages of each group, [G, 2].

    What is related is of one group, and so is every part of a document.
    """
    passages = np.arange(len(corpus))
    rows = pd.Series(passages, corpus.document_id)
    firsts = first_rows(documents_of(corpus))
    heads = np.concatenate([rows[related["document_id"]].to_numpy(), passages])
    tails = np.concatenate([rows[related["other_id"]].to_numpy(), firsts])
    is_edge = np.ones(len(heads), bool)
    edges = coo_array((is_edge, (heads, tails)), (len(corpus), len(corpus)))
    count, group = connected_components(edges, directed=False)
    document_counts = np.bincount(group[firsts == passages], minlength=count)
    passage_counts = np.bincount(group, minlength=count)
    return group, np.stack([document_counts, passage_counts], axis=1)
