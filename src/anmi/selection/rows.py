"""Training rows: made of selected candidates, held by number in memory, and stored with texts in Parquet.

A document that is a negative of many rows stands once among the texts of a block of rows, in memory
and in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anmi.candidates import OPEN, PADDING, SOURCES, Candidates, CandidateShards
from anmi.corpus.texts import values_by_id
from anmi.engine.threads import ahead
from anmi.ragged import Bools, Int32s, Int64s, lists, read_table
from anmi.retrieval.pool import Positives, RelatedDocuments, compacted, without

# Rows of a row group. Its texts are held at once when it is written, and stored once.
GROUP: Final = 8192
# Columns of document numbers, and the columns of texts that they become besides that of ids; empty
# for none.
JOINED: Final = {
    "positive_id": "positive",
    "negative_ids": "negatives",
    "positive_ids": "",
    "excluded_ids": "",
}
# Above the texts of any group: else the writer gives up the dictionary, and repeats the texts.
_PAGE: Final = 1 << 28


@dataclass(frozen=True)
class TrainingRows:
    """Training rows whose documents are numbers.

    Attributes
    ----------
    tables
        Rows of one schema, with int32 document indices in the columns of :data:`JOINED`.
    ids, texts
        Of the documents, in corpus order.
    """

    tables: list[pa.Table]
    ids: pa.Array
    texts: pa.Array

    def __len__(self) -> int:
        return sum(len(table) for table in self.tables)

    @property
    def negatives(self) -> int:
        """How many negatives all rows have."""
        return sum(
            len(part.flatten())
            for table in self.tables
            for part in table.column("negative_ids").chunks
        )

    def blocks(self) -> Iterator[pa.Table]:
        """Yield :data:`GROUP` rows at a time with ids and texts; one block without rows where there are none."""
        rows = pa.concat_tables(self.tables)
        for start in range(0, max(len(rows), 1), GROUP):
            yield self._joined(rows.slice(start, GROUP).combine_chunks())

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows with ids and texts, lists as arrays."""
        return frame(pa.concat_tables(self.blocks()))

    def save(self, path: Path) -> None:
        """Write a Parquet file, one row group a block."""
        blocks = self.blocks()
        first = next(blocks)
        options: dict[str, Any] = {
            "compression": "zstd",
            "dictionary_pagesize_limit": _PAGE,
            "write_page_checksum": True,
        }
        # Without Arrow's schema, so that every reader is given plain texts.
        with pq.ParquetWriter(path, first.schema, store_schema=False, **options) as writer:
            for block in chain([first], blocks):
                writer.write_table(block)

    def _joined(self, block: pa.Table) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for name in block.column_names:
            column = block.column(name).combine_chunks()
            if name not in JOINED:
                columns[name] = column
                continue
            numbers, place = np.unique(_values(column).to_numpy(), return_inverse=True)
            for new, values in ((name, self.ids), (JOINED[name], self.texts)):
                if new:
                    # Copies have one text: with it twice, the writer would give up the dictionary.
                    encoded = values.take(pa.array(numbers)).dictionary_encode()
                    columns[new] = _like(
                        column, encoded.indices.to_numpy()[place], encoded.dictionary
                    )
        return pa.table(columns)


def _values(column: pa.Array) -> pa.Array:
    return column.flatten() if pa.types.is_list(column.type) else column


def _like(column: pa.Array, place: Int64s, values: pa.Array) -> pa.Array:
    """Return a column of the values at these places, in lists as long as those of another column."""
    encoded = pa.DictionaryArray.from_arrays(pa.array(place, pa.int32()), values)
    return (
        listed(encoded, column.value_lengths().to_numpy(zero_copy_only=False))
        if column.type != pa.int32()
        else encoded
    )


def listed(values: pa.Array, lengths: NDArray[Any]) -> pa.ListArray:
    """Return values that are sorted by row as one list per row.

    Examples
    --------
    >>> listed(pa.array([3, 1, 2]), np.array([2, 0, 1])).to_pylist()
    [[3, 1], [], [2]]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def load(path: Path) -> pd.DataFrame:
    """Read a table of training rows, in which equal texts of a block are one object."""
    # Of plain columns pandas makes columns of its own, which hold no objects.
    texts = [
        f"{field.name}.list.element"
        for field in pq.read_schema(path)
        if pa.types.is_list(field.type) and pa.types.is_string(field.type.value_type)
    ]
    return frame(read_table(path, read_dictionary=texts))


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a table with its lists as arrays; texts of dictionaries become objects once, not at every place."""
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_list(column.type):
            columns[name] = pd.Series(
                [part for chunk in column.chunks for part in _arrays(chunk)], dtype=object
            )
        else:
            plain = (
                column.cast(column.type.value_type)
                if pa.types.is_dictionary(column.type)
                else column
            )
            columns[name] = plain.to_pandas()
    return pd.DataFrame(columns)


def _arrays(column: pa.ListArray) -> list[NDArray[Any]]:
    values = column.flatten()
    if pa.types.is_dictionary(values.type):
        texts = np.array([*values.dictionary.to_pylist(), None], dtype=object)[:-1]
        flat = texts[values.indices.to_numpy()]
    else:
        flat = values.to_numpy(zero_copy_only=False)
    ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False)).tolist()
    return [flat[start:end] for start, end in pairwise([0, *ends])]


_SCORES: Final = (
    "bm25",
    "bm25_rank",
    "dense",
    "dense_rank",
    "cross",
    "p_relevant",
    "elo",
    "elo_se",
    "gap_se",
)
# Measurements that a row is made of; nothing else need be read.
_READ: Final = (*_SCORES, "choice", "weight", "barred")
_SOURCE_NAMES: Final = pa.array(
    ["+".join(name for name, bit in SOURCES.items() if value & bit) for value in range(16)],
    pa.string(),
)
_OF_FIRST: Final = ("elo", "elo_se")


def training_rows(
    shards: CandidateShards,
    document_ids: Sequence[str],
    document_texts: Sequence[str] | pa.Array,
    query_texts: Mapping[str, str],
    related: RelatedDocuments | None = None,
    own: Mapping[str, int] | None = None,
    splits: Mapping[str, str] | None = None,
    labels: Positives | None = None,
) -> TrainingRows:
    """Return one row per kept query and measured positive, its negatives as lists of equal length, best first.

    Without a query there are no rows, and yet all columns, those of every score among them.

    A promoted candidate makes a further row: it is the positive, with the query's weight times its
    probability of relevance. The negatives of all rows of a query are the same. No negative has the
    text of a promoted document: which documents these are is known only when all are chosen.

    Parameters
    ----------
    shards
        After selection.
    document_ids, document_texts
        By document index.
    query_texts
        By query id.
    related
        Copies, near-duplicates and siblings of documents; without it every document is like no
        other.
    own
        By query id, the document that the query is itself or has the text of, where there is one.
    splits
        By query id; without it the rows do not say.
    labels
        All known positives of the queries; without it those that were measured are all.

    Returns
    -------
    TrainingRows
        ``query_id, query, query_weight, split, origin`` (``qrels`` or ``promoted``)``, positive_id,
        positive, positive_ids, negative_ids, negatives, weights, sources``, for every score the
        lists ``negative_<score>`` beside the number ``positive_<score>``; and ``excluded_ids``:
        documents of other rows that must not become negatives of this one inside a batch, because
        they are copies, near-duplicates or siblings of a positive, or their relevance here was
        judged uncertain or likely; and in any case the query itself, which training may draw from
        the corpus.
    """
    count = len(document_ids)
    maker = _RowMaker(
        count, query_texts, related or RelatedDocuments.unrelated(count), own or {}, splits, labels
    )
    tables = [maker(block) for block in ahead(shards.only(*_READ))] or [maker(of_no_query())]
    # Blocks without rows may have measured less than the others.
    tables = [table for table in tables if len(table)] or tables[:1]
    texts = (
        document_texts
        if isinstance(document_texts, pa.Array)
        else pa.array(document_texts, pa.large_string())
    )
    return TrainingRows(
        list(map(maker.known, tables)), pa.array(document_ids, pa.large_string()), texts
    )


def not_mined(query_ids: Sequence[str], positives: Int32s, block: Candidates) -> Candidates:
    """Return queries without a candidate; what another block measured is NaN of them.

    Parameters
    ----------
    query_ids, positives
        Of Q queries, int32 [Q, P], padded with -1.
    block
        Of the shards beside which they stand.
    """
    nothing = np.full((len(query_ids), 1), PADDING, np.int32)
    columns = {name: np.full(nothing.shape, np.nan) for name in block.columns}
    positive_columns = {name: np.full(positives.shape, np.nan) for name in block.positive_columns}
    unmined = Candidates(
        np.array(query_ids, np.str_), positives, nothing, np.zeros(nothing.shape, np.uint8)
    )
    return unmined.with_columns(columns, positive_columns)


def of_no_query() -> Candidates:
    """Return a block without queries that has every score."""
    none = np.zeros((0, 1), np.int32)
    scores = {name: np.zeros((0, 1), np.float32) for name in _SCORES}
    return Candidates(np.zeros(0, "<U1"), none, none, none.astype(np.uint8)).with_columns(
        scores, scores
    )


@dataclass
class _RowMaker:
    """Makes the rows of a block, documents by number, and remembers which documents any row uses."""

    documents: int
    query_texts: Mapping[str, str]
    related: RelatedDocuments
    own: Mapping[str, int]
    splits: Mapping[str, str] | None
    labels: Positives | None
    used: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.used = np.zeros(self.documents, bool)

    def __call__(self, block: Candidates) -> pa.Table:
        block = block.take(block.query_verdict == OPEN)
        first_positives = block.positives[:, 0]
        promoted = block.of_kind("promoted")
        (promoted_documents,) = compacted(np.where(promoted, block.documents, PADDING))
        queries = block.query_ids.tolist()
        labelled = block.positives if self.labels is None else self.labels.of(queries)
        relevant = np.concatenate([labelled, promoted_documents], axis=1)
        positives = without(relevant, np.where(_barred(block), block.positives, PADDING))
        selves = np.array([self.own.get(query, PADDING) for query in queries], np.int32)[:, None]
        copies = self.related.excluded(promoted_documents[:, :0], promoted_documents)
        row, slot = np.nonzero(block.negatives & (without(block.documents, copies) != PADDING))
        if len(row):
            order = np.lexsort((block.columns["choice"][row, slot], row))
            row = row[order]
            slot = slot[order]
        chosen = block.documents[row, slot]
        self.used[chosen] = self.used[block.documents[promoted]] = True
        self.used[labelled[labelled != PADDING]] = True
        itself = self.related.excluded(promoted_documents[:, :0], selves)
        self.used[itself[itself != PADDING]] = True
        lengths = np.bincount(row, minlength=len(block))

        def by_row(values: pa.Array | NDArray[Any]) -> pa.Array:
            return listed(values if isinstance(values, pa.Array) else pa.array(values), lengths)

        table: dict[str, Any] = {
            "query_id": pa.array(queries, pa.string()),
            "query": pa.array([self.query_texts[query] for query in queries], pa.string()),
            "query_weight": pa.array(
                block.query_columns.get("weight", np.ones(len(block), np.float32))
            ),
        }
        if self.splits is not None:
            table["split"] = pa.array([self.splits[query] for query in queries], pa.string())
        table |= {
            "origin": pa.array(["qrels"] * len(block), pa.string()),
            "positive_id": pa.array(first_positives),
            "positive_ids": lists(positives, positives != PADDING),
            "negative_ids": by_row(chosen),
            "weights": by_row(block.weight[row, slot]),
            "sources": by_row(
                pa.DictionaryArray.from_arrays(
                    block.source[row, slot].astype(np.int32), _SOURCE_NAMES
                )
            ),
        }
        for score in _SCORES:
            if score in block.columns:
                table[f"negative_{score}"] = by_row(block.columns[score][row, slot])
                if score in block.positive_columns:
                    table[f"positive_{score}"] = pa.array(block.positive_columns[score][:, 0])
        doubtful = np.where(block.excluded_in_batch, block.documents, PADDING)
        others = np.concatenate(
            [doubtful, without(self.related.excluded(relevant, selves), positives)], axis=1
        )
        table["excluded_ids"] = lists(others, others != PADDING)
        return self._by_positive(pa.table(table), block, promoted)

    def known(self, table: pa.Table) -> pa.Table:
        """Return the table with those excluded documents alone that some row uses."""
        column = table.column("excluded_ids").combine_chunks()
        is_used = self.used[column.flatten().to_numpy()]
        row = np.repeat(
            np.arange(len(column)), column.value_lengths().to_numpy(zero_copy_only=False)
        )
        lengths = np.bincount(row[is_used], minlength=len(column))
        place = table.column_names.index("excluded_ids")
        return table.set_column(
            place, "excluded_ids", listed(column.flatten().filter(pa.array(is_used)), lengths)
        )

    def _by_positive(self, table: pa.Table, block: Candidates, promoted: Bools) -> pa.Table:
        """Return a row for each measured positive of a query, and for each document that was promoted behind them."""
        row, place = np.nonzero((block.positives != PADDING) & ~_barred(block))
        probability = block.columns.get("p_relevant", np.ones(block.documents.shape, np.float32))
        new, slot = np.nonzero(promoted)
        # In the order of the queries, so that it does not depend on where a block ends.
        order = np.argsort(np.concatenate([row, new]), kind="stable")
        repeated = table.take(pa.array(np.concatenate([row, new])[order]))
        weight = np.concatenate([np.ones(len(row), np.float32), probability[new, slot]])[order]
        changed: dict[str, Any] = {
            "origin": pa.array(np.where(order < len(row), "qrels", "promoted"), pa.string()),
            "positive_id": _both(block.positives[row, place], block.documents[new, slot], order),
            "query_weight": pa.array(
                (repeated.column("query_weight").to_numpy() * weight).astype(np.float32)
            ),
        }
        for name in table.column_names:
            score = name.removeprefix("positive_")
            if name.startswith("positive_") and score in block.positive_columns:
                # Gaps in Elo are to the first positive, beside which the candidates were rated.
                of_positive = block.positive_columns[score][row, 0 if score in _OF_FIRST else place]
                changed[name] = _both(of_positive, block.columns[score][new, slot], order)
        return pa.table(
            {name: changed.get(name, repeated.column(name)) for name in table.column_names}
        ).combine_chunks()


def _barred(block: Candidates) -> Bools:
    """True where a positive makes no row, [Q, P]."""
    return block.positive_columns.get("barred", np.zeros(block.positives.shape)) > 0


def _both(first: NDArray[Any], second: NDArray[Any], order: Int64s) -> pa.Array:
    return pa.array(np.concatenate([first, second])[order])


def pair_rows(
    rows: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame, collection: str, language: str
) -> pd.DataFrame:
    """Return the rows that have negatives in the pair format of methods §1.

    Returns
    -------
    pandas.DataFrame
        ``query, positive_doc, hard_negatives, query_type, doc_type, source, language``; types,
        source and language are those of the collection's metadata where it has them.
    """
    pairs = rows[np.fromiter(map(len, rows.negative_ids), np.int64, len(rows)) > 0]
    pairs = pairs.rename(columns={"positive": "positive_doc", "negatives": "hard_negatives"})
    pairs["doc_type"] = pairs.positive_id.map(
        values_by_id(corpus, "document_id", "doc_type", "document")
    )
    for name, default in (("query_type", "query"), ("source", collection), ("language", language)):
        pairs[name] = pairs.query_id.map(values_by_id(queries, "query_id", name, default))
    columns = [
        "query",
        "positive_doc",
        "hard_negatives",
        "query_type",
        "doc_type",
        "source",
        "language",
    ]
    return pairs[columns].reset_index(drop=True)
