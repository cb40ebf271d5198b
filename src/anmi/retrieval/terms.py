"""The terms of a corpus are cut once and counted, for BM25, evidence and vocabularies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from anmi.candidates import PADDING
from anmi.corpus.texts import CUT_AT_ONCE, runs_of
from anmi.errors import AnmiError
from anmi.files import read_json, write_json
from anmi.ragged import Float32s, Int32s, Int64s, read_table, table_bytes
from anmi.retrieval.tokenize import (
    DICTIONARIES,
    RULES,
    Tokenize,
    for_queries,
    resolve,
    saved_tokenizer,
    tokenizer,
)

# Of the term saturation, fixed so that evidence means the same whatever BM25 is tuned to.
_K1: Final = 0.9
_B: Final = 0.4
# What a tokeniser gives: words, or their numbers.
Term = TypeVar("Term", str, int)
Cut: TypeAlias = Callable[[Sequence[str]], list[list[Term]]]


@dataclass(frozen=True)
class Terms:
    """Terms of N documents.

    Attributes
    ----------
    counts
        Occurrences, sparse float32 [N, V].
    vocabulary
        Column of each term.
    tokenize
        From texts to lists of terms.
    settings
        ``language``, ``tokenizer`` and ``rules``, by which the same tokeniser is found again; empty
        where it is another.
    """

    counts: sparse.csr_matrix
    vocabulary: dict[str, int]
    tokenize: Tokenize
    settings: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def build(texts: Sequence[str], tokenize: Tokenize) -> Terms:
        """Count the terms of the documents.

        Examples
        --------
        >>> terms = Terms.build(["a b", "a a"], lambda texts: [text.split() for text in texts])
        >>> terms.counts.toarray().tolist()
        [[1.0, 1.0], [2.0, 0.0]]
        """
        return Terms(*counted_texts(texts, tokenize, alone=False), tokenize)

    @staticmethod
    def cut(
        texts: Sequence[str],
        language: str,
        kind: str = "auto",
    ) -> Terms:
        """Cut documents by a tokeniser, see :func:`anmi.retrieval.tokenize.tokenizer`.

        Raises
        ------
        AnmiError
            No document has a term.
        """
        kind = resolve(kind, language)
        tokenize = tokenizer(kind, language)
        counts, vocabulary = counted_texts(texts, tokenize, alone=kind not in DICTIONARIES)
        if not vocabulary:
            raise AnmiError(f'the tokenizer "{kind}" found no token in {len(texts)} documents')
        settings = {"language": language, "tokenizer": kind, "rules": RULES}
        return Terms(counts, vocabulary, tokenize, settings)

    def save(self, path: Path) -> None:
        """Write the counts, the vocabulary and the settings into the folder ``path``."""
        sparse.save_npz(path / "counts.npz", self.counts, compressed=False)
        (path / "vocabulary.parquet").write_bytes(
            table_bytes(pa.table({"term": list(self.vocabulary)}))
        )
        write_json(path / "settings.json", dict(self.settings))

    @staticmethod
    def load(path: Path) -> Terms:
        """Open what :meth:`save` wrote."""
        settings = read_json(path / "settings.json")
        terms = read_table(path / "vocabulary.parquet").column("term").to_pylist()
        vocabulary = dict(zip(terms, range(len(terms)), strict=True))
        tokenize = saved_tokenizer(settings, path)
        return Terms(sparse.load_npz(path / "counts.npz"), vocabulary, tokenize, settings)

    def changed(self, rows: Int64s, texts: Sequence[str]) -> Terms:
        """Return the terms with other texts in some rows; only these are cut."""
        vocabulary = dict(self.vocabulary)
        new_counts = counted(self.tokenize(texts), vocabulary, grow=True)
        counts = self.counts.copy()
        counts.resize(counts.shape[0], new_counts.shape[1])
        row_numbers = np.arange(counts.shape[0])
        row_numbers[rows] = counts.shape[0] + np.arange(len(rows))
        counts = sparse.vstack([counts, new_counts], format="csr")[row_numbers]
        return Terms(counts, vocabulary, self.tokenize, self.settings)

    def queries(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return which known terms each query holds, weighted by idf: float32 [Q, V]."""
        query_terms = counted(for_queries(self.tokenize)(texts), self.vocabulary, grow=False)
        query_terms.data = self.idf[query_terms.indices]
        return query_terms

    def prepare(self) -> None:
        """Compute the cached matrices now, so that not each process that shares this does."""
        for name in ("saturated", "unit", "mass"):
            getattr(self, name)

    @cached_property
    def idf(self) -> Float32s:
        """log(1 + (N − df + ½) / (df + ½)) of each term, float32 [V]."""
        return idf_of(self.counts)

    @cached_property
    def mean_length(self) -> float:
        """Tokens of an average document."""
        return float(self.lengths.mean())

    @cached_property
    def lengths(self) -> Float32s:
        """Tokens of each document, float32 [N]."""
        return np.asarray(self.counts.sum(axis=1), np.float32).ravel()

    @cached_property
    def saturated(self) -> sparse.csr_matrix:
        """BM25's tf / (tf + k1 (1 − b + b · length / mean length)) of each term, float32 [N, V]."""
        return self.saturate(self.counts)

    def saturate(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return the same of the terms of other texts, float32 [T, V]."""
        lengths = np.asarray(counts.sum(axis=1), np.float32).ravel()
        scale = _K1 * (1 - _B + _B * lengths / max(self.mean_length, 1e-9))
        term_scale = np.repeat(scale, np.diff(counts.indptr))
        shares = counts.data / (counts.data + term_scale)
        return _with(counts, shares)

    @cached_property
    def unit(self) -> sparse.csr_matrix:
        """Unit tf-idf vectors, (1 + log tf) · idf, float32 [N, V]; 0 of a text without terms."""
        counts = self.counts
        weights = (1 + np.log(counts.data)) * self.idf[counts.indices]
        squares = _with(counts, weights**2).sum(axis=1)
        norm = np.sqrt(np.asarray(squares).ravel())
        norm = np.where(norm > 0, norm, 1)
        norms = np.repeat(norm, np.diff(counts.indptr))
        return _with(counts, weights / norms)

    @cached_property
    def mass(self) -> Float32s:
        """Σ idf of the terms of each document, float32 [N]."""
        return _with(self.counts, np.ones_like(self.counts.data)) @ self.idf

    def weighted(self, rows: Int32s) -> sparse.csr_matrix:
        """Return the terms of documents weighted by idf, each once, float32 [R, V]."""
        terms = self.counts[np.maximum(rows, 0)]
        is_text = np.repeat(rows != PADDING, np.diff(terms.indptr))
        terms.data = self.idf[terms.indices] * is_text
        return terms

    def products(
        self,
        documents: Int32s,
        first: sparse.csr_matrix,
        right: sparse.csr_matrix,
        second: sparse.csr_matrix,
    ) -> Float32s:
        """Sum first[q, term] · right[document, term], and second[q, term], over a document's terms.

        Parameters
        ----------
        documents
            int32 [Q, M], padded with -1.
        first, second
            Sparse [Q, V].
        right
            The documents' terms, sparse [N, V], as one of the matrices here.

        Returns
        -------
        numpy.ndarray
            float32 [2, Q, M], added up in the order of the columns; 0 in padding.
        """
        from anmi.retrieval.sums import row_products

        sums = np.zeros((2, *documents.shape), np.float32)
        left = (first, second)
        row_products(
            documents,
            unsigned(self.counts.indptr),
            unsigned(self.counts.indices),
            right.data,
            tuple(unsigned(matrix.indptr) for matrix in left),
            tuple(unsigned(matrix.indices) for matrix in left),
            tuple(matrix.data for matrix in left),
            np.zeros((len(self.idf), 2), np.float32),
            sums,
        )
        return sums


def _with(counts: sparse.csr_matrix, values: NDArray[Any]) -> sparse.csr_matrix:
    """Return a matrix with other values in the same places, float32."""
    arrays = (values.astype(np.float32, copy=False), counts.indices, counts.indptr)
    return sparse.csr_matrix(arrays, counts.shape)


def counted_texts(
    texts: Sequence[str],
    tokenize: Cut[Term],
    *,
    alone: bool,
) -> tuple[sparse.csr_matrix, dict[Term, int]]:
    """Count the terms of texts, float32 [N, V], and return the column of each.

    Where what stands between two blanks has the same terms ``alone``, it is cut once, however many
    texts hold it.

    Examples
    --------
    >>> def tokenize(words):
    ...     return [[*word] for word in words]
    >>> counts, vocabulary = counted_texts(["a b a", "c"], tokenize, alone=True)
    >>> counts.toarray().tolist(), list(vocabulary)
    ([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], ['a', 'b', 'c'])
    """
    vocabulary: dict[Term, int] = {}
    run_numbers = defaultdict[str, int]()
    run_numbers.default_factory = run_numbers.__len__
    run_counts = sparse.csr_matrix((0, 1), dtype=np.float32)
    blocks = [sparse.csr_matrix((0, 1), dtype=np.float32)]
    for start in range(0, len(texts), CUT_AT_ONCE):
        block = texts[start : start + CUT_AT_ONCE]
        if not alone:
            blocks.append(counted(tokenize(block), vocabulary, grow=True))
            continue
        runs, run_places, starts = runs_of(block)
        first_new = len(run_numbers)
        numbers_of_runs = np.array([run_numbers[run] for run in runs], np.int32)
        numbers = numbers_of_runs[run_places]
        new_runs = list(run_numbers)[first_new:]
        new_counts = counted(tokenize(new_runs), vocabulary, grow=True)
        run_counts.resize(first_new, new_counts.shape[1])
        run_counts = sparse.vstack([run_counts, new_counts], "csr")
        runs_of_texts = counted_columns(numbers, np.diff(starts), len(run_numbers))
        blocks.append(runs_of_texts @ run_counts)
        blocks[-1].sort_indices()
    for counts in blocks:
        counts.resize(counts.shape[0], max(len(vocabulary), 1))
    return sparse.vstack(blocks, "csr"), vocabulary


def counted(
    rows: list[list[Term]],
    vocabulary: dict[Term, int],
    grow: bool,
) -> sparse.csr_matrix:
    """Count the terms of tokenised texts, float32 [R, V] with sorted, unrepeated indices."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    terms = chain.from_iterable(rows)
    count = int(lengths.sum())
    if grow:
        numbers = defaultdict[Term, int](None, vocabulary)
        numbers.default_factory = numbers.__len__
        columns = np.fromiter(map(numbers.__getitem__, terms), np.int32, count)
        vocabulary.update(numbers)
    else:
        numbers_of_terms = map(vocabulary.get, terms, repeat(-1))
        columns = np.fromiter(numbers_of_terms, np.int32, count)
        row = np.repeat(np.arange(len(rows)), lengths)[columns >= 0]
        lengths = np.bincount(row, minlength=len(rows))
        columns = columns[columns >= 0]
    return counted_columns(columns, lengths, len(vocabulary))


def counted_columns(columns: Int32s, lengths: Any, width: int) -> sparse.csr_matrix:
    """Count columns of rows of these lengths, float32 [R, V] with sorted, unrepeated indices."""
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = np.concatenate([[0], ends])
    ones = np.ones(len(columns), np.float32)
    shape = (len(lengths), max(width, 1))
    counts = sparse.csr_matrix((ones, columns, starts), shape=shape)
    counts.sum_duplicates()
    return counts


def idf_of(counts: sparse.csr_matrix) -> Float32s:
    """Return log(1 + (N − df + ½) / (df + ½)) of each term, float32 [V], from counts [N, V].

    Examples
    --------
    >>> [round(float(idf), 3) for idf in idf_of(sparse.csr_matrix([[1, 0], [1, 2], [1, 0]]))]
    [0.134, 0.981]
    """
    frequency = counts.getnnz(axis=0)
    texts_without = counts.shape[0] - frequency
    odds = (texts_without + 0.5) / (frequency + 0.5)
    return np.log1p(odds).astype(np.float32)


def unsigned(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers, none of them below 0, as unsigned ones of the same bytes."""
    return numbers.view(f"u{numbers.itemsize}")
