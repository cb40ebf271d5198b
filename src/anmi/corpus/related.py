"""Pairs of documents that must not serve as each other's negatives: near-duplicates and parts of one document."""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from anmi import seeds
from anmi.corpus.texts import Texts, among, arrow, column, containing, taken

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]

# Scripts written without blanks between words: there a character counts as a word. Thai to Myanmar, Khmer, kana, Han.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_CHARACTER: Final = re.compile(f"[{_UNSPACED}]")
_WORD: Final = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")
# Three words in a row are the least that shows order; short texts have few longer ones.
_SHINGLE: Final = 3
_PERMUTATIONS: Final = 128
# Recall of the hash tables for a pair exactly at the threshold.
_RECALL: Final = 0.999
# Documents of one bucket are sorted by a second hash, and each is compared with the next 100 only, which keeps a
# corpus of forms filled in alike linear; a pair has many buckets in which to stand side by side.
_REACH: Final = 100
# Four standard errors of a similarity of 0.9 estimated from 128 hashes.
_ESTIMATE_MARGIN: Final = 0.1
# Texts, or pairs of them, that are worked on at a time.
_CHUNK: Final = 20_000
# In a small corpus 1 % of the documents is no document at all, yet a word of one or two documents is a name there too.
_LEAST_COMMON: Final = 10


def near_duplicates(
    forms: pa.LargeStringArray, similarity: float = 0.9, name_share: float = 0.01, least_words: int = 50
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Find texts that say the same in almost the same words.

    Two texts are near-duplicates when the sets of their runs of three words have a Jaccard similarity of at least
    ``similarity`` *and* no telling word occurs more often in one than in the other. A word is telling when it holds a
    digit, is a single letter, or stands in less than ``name_share`` of the texts (or in less than ten). Similarity
    alone would call "type 6" and "type 9" of a disease the same, though a text that differs in one name or number is
    the best of negatives.

    Only texts with the same telling words are compared, which few share with another. Among these candidates come from
    MinHash and banding (Broder 1997); every one is checked on its full sets, so the result is exact above the threshold
    up to pairs the bands miss, less than one in a thousand. Where words are not separated by blanks, as in Chinese,
    characters take their place.

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
    first, second, similarity
        int64, int64 and float32 [n], in order, ``first < second``.

    Examples
    --------
    >>> [found.tolist() for found in near_duplicates(arrow(["a b c a b", "x", "c a b c a b"]), least_words=1)]
    [[], [], []]
    >>> [found.tolist() for found in near_duplicates(arrow(["a b c a b c", "x", "b c a b c a"]), least_words=1)]
    [[0], [2], [1.0]]
    """
    vocabulary, words, starts, frequency = _words(forms)
    telling = _telling(vocabulary, frequency, len(forms), name_share)
    names, rows = _names(words, starts, telling), np.flatnonzero(np.diff(starts) >= max(least_words, 1))
    _, group, size = np.unique(names[rows], return_inverse=True, return_counts=True)
    rows = rows[size[group] > 1]
    words, starts = _of_rows(words, starts, rows)
    shingles, counts = _matrix(_shingles(words, starts), starts), _matrix(words, starts)
    first, second = _candidates(shingles, names[rows], similarity)
    told = np.flatnonzero(telling[: counts.shape[1]])
    sizes = np.diff(shingles.indptr)
    kept: list[tuple[NDArray[Any], ...]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))]
    for start in range(0, len(first), _CHUNK):
        i, j = first[start : start + _CHUNK], second[start : start + _CHUNK]
        common = (shingles[i] > 0).multiply(shingles[j] > 0).sum(axis=1)
        found = (common / (sizes[i] + sizes[j] - common)).astype(np.float32)
        # In float32 like the value that is kept, so that a reader of the table sees none below the threshold.
        alike = found >= np.float32(similarity)
        i, j, found = i[alike], j[alike], found[alike]
        differs = abs(counts[i] - counts[j])[:, told].sum(axis=1) > 0
        kept.append((rows[i[~differs]], rows[j[~differs]], found[~differs]))
    i, j, found = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    return i, j, found


def _words(forms: pa.LargeStringArray) -> tuple[list[str], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return the vocabulary [V], the words of all texts as numbers of it, where each text starts [N + 1], and df.

    The last is the number of texts that each word stands in, [V].
    """
    number: defaultdict[str, int] = defaultdict()
    number.default_factory = number.__len__
    parts, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    frequency = np.zeros(0, np.int64)
    for start in range(0, len(forms), _CHUNK):
        cut = pc.ascii_split_whitespace(_spaced(forms.slice(start, _CHUNK)))
        length, flat = pc.list_value_length(cut).to_numpy().astype(np.int64), cut.flatten()
        empty = pc.equal(pc.binary_length(flat), 0).to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(len(length)), length)[~empty]
        encoded = flat.filter(pa.array(~empty)).dictionary_encode()
        local = encoded.indices.to_numpy().astype(np.int64)
        # Of a chunk only its different words are looked up one by one.
        numbers = np.fromiter(map(number.__getitem__, encoded.dictionary.to_pylist()), np.int32)
        parts.append(numbers[local])
        lengths.append(np.bincount(row, minlength=len(length)))
        once = np.sort(row * len(numbers) + local)
        once = once[np.flatnonzero(np.diff(once, prepend=-1))]
        frequency = np.concatenate([frequency, np.zeros(len(number) - len(frequency), np.int64)])
        frequency[numbers] += np.bincount(once % max(len(numbers), 1), minlength=len(numbers))
    starts = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
    return list(number), np.concatenate(parts), starts, frequency


def _spaced(forms: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return normalised texts with blanks between their words; those in ASCII have them."""
    plain = pc.string_is_ascii(forms).to_numpy(zero_copy_only=False)
    if plain.all():
        return forms
    spaced = [" ".join(_WORD.findall(form)) for form in forms.filter(pa.array(~plain)).to_pylist()]
    return pc.replace_with_mask(forms, pa.array(~plain), pa.array(spaced, pa.large_string()))


def _telling(vocabulary: list[str], frequency: NDArray[np.int64], texts: int, name_share: float) -> NDArray[np.bool_]:
    """Which words tell texts apart, [V], by how many of the texts each stands in, [V]."""
    if name_share == 0:
        return np.zeros(len(vocabulary), bool)
    telling = frequency < max(name_share * texts, _LEAST_COMMON)
    for place in np.flatnonzero(~telling).tolist():
        telling[place] = _is_name(vocabulary[place])
    return telling


def _is_name(word: str) -> bool:
    """Whether a word names something however common it is: numbers, and single letters as in "hepatitis B"."""
    return any(map(str.isdigit, word)) or (len(word) == 1 and not _CHARACTER.match(word))


def _names(words: NDArray[np.int32], starts: NDArray[np.int64], telling: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """One number per text that is the same for texts with the same telling words, each as often, [N]."""
    largest = np.iinfo(np.uint64).max
    value = seeds.stream(0, "kin/names").integers(0, largest, len(telling), dtype=np.uint64, endpoint=True)
    value[~telling] = 0
    parts = [np.zeros(0, np.uint64)]
    for begin in range(0, len(starts) - 1, _CHUNK):
        places = starts[begin : begin + _CHUNK + 1]
        # Sums of 64-bit numbers wrap around, and so do their differences.
        summed = np.concatenate([np.zeros(1, np.uint64), np.cumsum(value[words[places[0] : places[-1]]])])
        parts.append(np.diff(summed[places - places[0]]))
    return np.concatenate(parts)


def _of_rows(
    words: NDArray[np.int32], starts: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the words of some texts, and where each of these starts."""
    lengths = np.diff(starts)
    kept = np.zeros(len(lengths), bool)
    kept[rows] = True
    return words[np.repeat(kept, lengths)], np.concatenate([[0], np.cumsum(lengths[rows])]).astype(np.int64)


def _shingles(words: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the run of words that begins at each place; -1 where it would end outside of the text."""
    ends = np.repeat(starts[1:], np.diff(starts))
    place = np.arange(len(words))
    size = int(words.max(initial=0)) + 2
    runs: NDArray[np.int64] = words.astype(np.int64)
    for step in range(1, _SHINGLE):
        following = np.where(place + step < ends, words[np.minimum(place + step, len(words) - 1)] + 1, 0)
        # Numbering anew keeps the code of a longer run within 64 bits.
        runs = np.unique(runs * size + following, return_inverse=True)[1]
    begins = np.zeros(len(words), bool)
    begins[starts[:-1][np.diff(starts) > 0]] = True
    return np.where((place + _SHINGLE <= ends) | begins, runs, -1)


def _matrix(values: NDArray[Any], starts: NDArray[np.int64]) -> csr_array:
    """How often each value stands in each text, sparse [N, values]; negative ones are left out."""
    row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[values >= 0]
    values = values[values >= 0]
    shape = (len(starts) - 1, int(values.max(initial=0)) + 1)
    return csr_array((np.ones(len(values), np.int32), (row, values)), shape=shape)


def _candidates(shingles: csr_array, names: NDArray[np.uint64], similarity: float) -> Pairs:
    """Pairs of the same names whose signatures agree in a band and, over all, about as often as the threshold asks."""
    count = shingles.shape[0]
    if count < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    signature = _signatures(shingles)
    keys = _bands(signature, names, similarity)
    found = []
    for band in range(keys.shape[1]):
        order = np.lexsort((keys[:, (band + 1) % keys.shape[1]], keys[:, band]))
        bucket = np.cumsum(np.concatenate([[0], np.diff(keys[order, band]) != 0]))
        found.append(pair_keys(order, *within(bucket, _REACH), count))
    first, second = unpacked(np.unique(np.concatenate(found)), count)
    likely = np.zeros(len(first), bool)
    for start in range(0, len(first), _CHUNK):
        part = slice(start, start + _CHUNK)
        likely[part] = (signature[first[part]] == signature[second[part]]).mean(axis=1) >= similarity - _ESTIMATE_MARGIN
    return first[likely], second[likely]


def _signatures(shingles: csr_array) -> NDArray[np.uint32]:
    """MinHash signatures of the texts, [N, permutations], of which none is without a run of words."""
    from rensa import RMinHash

    signature = np.zeros((shingles.shape[0], _PERMUTATIONS), np.uint32)
    for start in range(0, len(signature), _CHUNK):
        bounds = shingles.indptr[start : start + _CHUNK + 1]
        tokens = shingles.indices[bounds[0] : bounds[-1]].astype(np.uint64)
        offsets = (bounds - bounds[0]).astype(np.uint64)
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(tokens, offsets, _PERMUTATIONS, 1)
        # Lists of lists are all that it gives, so not of the whole corpus at once.
        signature[start : start + _CHUNK] = matrix.to_rows()
    return signature


def _bands(signature: NDArray[np.uint32], names: NDArray[np.uint64], similarity: float) -> NDArray[np.uint64]:
    """One number per text and band, [N, bands]; the longest bands that still find a pair at the threshold."""
    lengths = range(1, _PERMUTATIONS + 1)
    length = max(n for n in lengths if n == 1 or 1 - (1 - similarity**n) ** (_PERMUTATIONS // n) >= _RECALL)
    bands = signature[:, : _PERMUTATIONS // length * length].reshape(len(signature), -1, length).astype(np.uint64)
    keys = np.repeat(names[:, None], bands.shape[1], axis=1)
    for place in range(length):
        # FNV-1a on whole words; a collision costs one comparison and changes no result.
        keys = (keys ^ bands[:, :, place]) * np.uint64(0x100000001B3)
    return keys


def within(group: NDArray[np.int64], reach: int) -> Pairs:
    """Return all pairs of places in a sorted array that hold the same group and are at most ``reach`` apart.

    Examples
    --------
    >>> [found.tolist() for found in within(np.array([0, 0, 1, 1]), 1)]
    [[0, 2], [1, 3]]
    """
    place = np.arange(len(group))
    firsts, seconds = [place[:0]], [place[:0]]
    for step in range(1, reach + 1):
        place = place[place + step < len(group)]
        place = place[group[place] == group[place + step]]
        if not len(place):
            break
        firsts.append(place)
        seconds.append(place + step)
    return np.concatenate(firsts), np.concatenate(seconds)


def pair_keys(
    row: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return one number for each pair of places in ``row``, the smaller row first."""
    one, other = row[first], row[second]
    return np.minimum(one, other) * count + np.maximum(one, other)


def unpacked(keys: NDArray[np.int64], count: int) -> Pairs:
    """Return the rows of each pair of :func:`pair_keys`."""
    return keys // max(count, 1), keys % max(count, 1)


log = logging.getLogger(__name__)
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
    first, second, measured = near_duplicates(arrow(forms).take(pa.array(rows)), similarity, name_share, least_words)
    one, other = siblings(parents_of(corpus) if parents is None else parents)
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
