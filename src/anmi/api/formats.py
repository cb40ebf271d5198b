"""Datasets of (anchor, positive) pairs are read, and mined negatives are written as datasets.

Formats and names of columns are those of ``sentence_transformers.util.mine_hard_negatives``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from anmi.errors import AnmiError, nearest
from anmi.ragged import Bools, Float32s, Int64s

if TYPE_CHECKING:
    from datasets import Dataset, DatasetInfo

FORMATS: Final = ("triplet", "n-tuple", "labeled-pair", "labeled-list")
# Rows of a batch of an Arrow table, whose texts are to fit 2 GB.
_ROWS: Final = 8192


@dataclass(frozen=True)
class Pairs:
    """Distinct pairs of a query and its positive.

    Attributes
    ----------
    queries, documents
        Texts, each once; the documents are those of the corpus, and the positives behind them.
    rows
        Number of the query and of the positive, int64 [R, 2], sorted by query.
    relevant
        As ``rows``, and what else is known to be relevant, int64 [P, 2].
    columns
        Names of the columns of the queries and of the positives.
    """

    queries: list[str]
    documents: list[str]
    rows: Int64s
    relevant: Int64s
    columns: tuple[str, str]


def read_pairs(
    dataset: Dataset,
    anchor_column: str | None,
    positive_column: str | None,
    corpus: Iterable[str] | None,
    qrels: Mapping[str, Iterable[str]] | None,
) -> Pairs:
    """Read the pairs of a dataset; columns without a name are the first two.

    Raises
    ------
    AnmiError
        It is no dataset, there is no such column, a value is no text, or there is no row.
    """
    check_dataset(dataset)
    if isinstance(corpus, str):
        raise AnmiError("corpus is one text: a list of texts was expected")
    names = dataset.column_names
    if len(names) < 2:
        raise AnmiError(
            f"the dataset has the columns {', '.join(names) or 'of nothing'}: two were expected, of"
            " queries and of positives"
        )
    columns = (anchor_column or names[0], positive_column or names[1])
    for argument, name in zip(("anchor", "positive"), columns, strict=True):
        if name not in names:
            raise AnmiError(
                f'the dataset has no column "{name}": set {argument}_column_name; '
                f"{nearest(name, names)}"
            )
    anchors, positives = (texts_of(dataset[name], f'column "{name}"') for name in columns)
    if not anchors:
        raise AnmiError(
            "the dataset has no rows: one pair of a query and its positive was expected"
        )
    corpus_texts = [] if corpus is None else texts_of(corpus, "the corpus")
    queries = list(dict.fromkeys(anchors))
    documents = list(dict.fromkeys([*corpus_texts, *positives]))
    query_numbers = {text: number for number, text in enumerate(queries)}
    document_numbers = {text: number for number, text in enumerate(documents)}

    def pair_numbers(pairs: Iterable[tuple[str, str]]) -> Int64s:
        """Return distinct pairs of known texts as numbers, int64 [n, 2]."""
        numbers = [
            (query_numbers[query], document_numbers[document])
            for query, document in dict.fromkeys(pairs)
            if query in query_numbers and document in document_numbers
        ]
        return np.reshape(np.array(numbers, np.int64), (-1, 2))

    rows = pair_numbers(zip(anchors, positives, strict=True))
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    labels = pair_numbers(
        (query, document)
        for query, relevant in (qrels or {}).items()
        for document in texts_of(relevant, f'qrels of "{query}"')
    )
    relevant_pairs = np.unique(np.concatenate([rows, labels]), axis=0)
    return Pairs(queries, documents, rows, relevant_pairs, columns)


def check_dataset(dataset: Any) -> None:
    """Refuse what is no dataset with rows."""
    from datasets import Dataset

    if not isinstance(dataset, Dataset):
        splits = isinstance(dataset, dict) and ", ".join(map(str, dataset))
        cure = f"pass one of its splits {splits}" if splits else "make one of it"
        raise AnmiError(f"a datasets.Dataset was expected, not a {type(dataset).__name__}: {cure}")


def texts_of(values: Iterable[Any], label: str) -> list[str]:
    """Return values as a list; one that is no text is an error that names its row."""
    texts = list(values)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise AnmiError(f"{label} has {text!r} in row {row}: a text was expected")
    return texts


@dataclass(frozen=True)
class Mined:
    """Negatives of Q queries, and how similar all are.

    Attributes
    ----------
    pairs
        Of the queries.
    negatives, scores
        Documents and their scores, highest first, int64 and float32 [Q, n]; -1 where there are
        fewer than n.
    positive_scores
        Of the pairs' rows, float32 [R].
    """

    pairs: Pairs
    negatives: Int64s
    scores: Float32s
    positive_scores: Float32s

    @property
    def filled(self) -> Bools:
        """Where there is a negative, [Q, n]."""
        is_filled: Bools = self.negatives >= 0
        return is_filled

    def dataset(self, output_format: str, output_scores: bool, info: DatasetInfo) -> Dataset:
        """Return the rows in one of :data:`FORMATS`."""
        from datasets import Dataset, Features

        columns = _LAYOUTS[output_format](self, output_scores)
        table = pa.table(columns)
        info.features = Features.from_arrow_schema(table.schema)
        return Dataset(table, info=info)

    def _texts(self, numbers: Int64s, texts: Sequence[str]) -> pa.ChunkedArray:
        batches = [numbers[start : start + _ROWS] for start in range(0, len(numbers), _ROWS)]
        chunks = [pa.array([texts[n] for n in batch], pa.string()) for batch in batches]
        return pa.chunked_array(chunks, pa.string())

    def _of_queries(self, numbers: Int64s) -> pa.ChunkedArray:
        return self._texts(numbers, self.pairs.queries)

    def _of_documents(self, numbers: Int64s) -> pa.ChunkedArray:
        return self._texts(numbers, self.pairs.documents)

    def _triplets(self, with_scores: bool) -> dict[str, Any]:
        query, positive = self.pairs.rows.T
        row, place = np.nonzero(self.filled[query])
        anchor_column, positive_column = self.pairs.columns
        columns = {
            anchor_column: self._of_queries(query[row]),
            positive_column: self._of_documents(positive[row]),
            "negative": self._of_documents(self.negatives[query[row], place]),
        }
        if with_scores:
            scores = [self.positive_scores[row], self.scores[query[row], place]]
            columns["scores"] = _lists(np.stack(scores, axis=1))
        return columns

    def _tuples(self, with_scores: bool) -> dict[str, Any]:
        """A row for each pair whose query has all its negatives."""
        query, positive = self.pairs.rows.T
        is_complete = np.logical_and.reduce(self.filled, axis=1)
        row = np.flatnonzero(is_complete[query])
        anchor_column, positive_column = self.pairs.columns
        columns = {
            anchor_column: self._of_queries(query[row]),
            positive_column: self._of_documents(positive[row]),
        }
        for place in range(self.negatives.shape[1]):
            columns[f"negative_{place + 1}"] = self._of_documents(self.negatives[query[row], place])
        if with_scores:
            scores = [self.positive_scores[row][:, None], self.scores[query[row]]]
            columns["scores"] = _lists(np.concatenate(scores, axis=1))
        return columns

    def _labeled_pairs(self, with_scores: bool) -> dict[str, Any]:
        """A row for each positive and each negative, those of a query together."""
        query, positive = self.pairs.rows.T
        negative_query, place = np.nonzero(self.filled)
        queries = np.concatenate([query, negative_query])
        # Stable: a query's positives stand before its negatives.
        order = np.argsort(queries, kind="stable")
        documents = np.concatenate([positive, self.negatives[negative_query, place]])
        labels = np.repeat([1, 0], [len(query), len(negative_query)])
        scores = np.concatenate([self.positive_scores, self.scores[negative_query, place]])
        anchor_column, passage_column = self.pairs.columns
        judgment = ("score", scores.astype(float)) if with_scores else ("label", labels)
        return {
            anchor_column: self._of_queries(queries[order]),
            passage_column: self._of_documents(documents[order]),
            judgment[0]: pa.array(judgment[1][order]),
        }

    def _labeled_lists(self, with_scores: bool) -> dict[str, Any]:
        """A row for each positive: it and the query's negatives, of which there is one at least."""
        query, positive = self.pairs.rows.T
        filled = self.filled[query]
        row = np.flatnonzero(filled.any(axis=1))
        documents = np.concatenate([positive[:, None], self.negatives[query]], axis=1)
        scores = np.concatenate([self.positive_scores[:, None], self.scores[query]], axis=1)
        is_listed = np.concatenate([np.ones((len(query), 1), bool), filled], axis=1)
        labels = np.zeros(documents.shape, np.int64)
        labels[:, 0] = 1
        offsets = np.concatenate([[0], np.cumsum(is_listed[row].sum(axis=1))]).astype(np.int32)

        def lists(values: pa.Array) -> pa.ListArray:
            return pa.ListArray.from_arrays(offsets, values)

        texts = self._of_documents(documents[row][is_listed[row]]).combine_chunks()
        judgment = ("scores", scores.astype(float)) if with_scores else ("labels", labels)
        anchor_column, passage_column = self.pairs.columns
        return {
            anchor_column: self._of_queries(query[row]),
            passage_column: lists(texts),
            judgment[0]: lists(pa.array(judgment[1][row][is_listed[row]])),
        }


def _lists(values: Float32s) -> pa.ListArray:
    """Return the rows of an array as lists of Python's floats."""
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel().astype(float)))


_LAYOUTS: Final = {
    "triplet": Mined._triplets,
    "n-tuple": Mined._tuples,
    "labeled-pair": Mined._labeled_pairs,
    "labeled-list": Mined._labeled_lists,
}
