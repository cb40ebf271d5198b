"""Training rows: made of selected candidates, held by number, and stored with texts in Parquet.

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
import pyarrow.compute as pc
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
            pc.sum(pc.list_value_length(table["negative_ids"])).as_py() or 0
            for table in self.tables
        )

    def blocks(self) -> Iterator[pa.Table]:
        """Yield :data:`GROUP` rows at a time with ids and texts; of no rows one empty block."""
        rows = pa.concat_tables(self.tables)
        for start in range(0, max(len(rows), 1), GROUP):
            yield self._joined(rows.slice(start, GROUP).combine_chunks())

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows with ids and texts, lists as arrays."""
        return frame(pa.concat_tables(self.blocks()))

    def save(self, path: Path) -> None:
        """Write a Parquet file, one row group a block."""
        blocks = self.blocks()
        first_block = next(blocks)
        with pq.ParquetWriter(
            path,
            first_block.schema,
            compression="zstd",
            dictionary_pagesize_limit=_PAGE,
            write_page_checksum=True,
            # Without Arrow's schema, so that every reader is given plain texts.
            store_schema=False,
        ) as writer:
            for block in chain([first_block], blocks):
                writer.write_table(block)

    def _joined(self, block: pa.Table) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for name in block.column_names:
            column = block.column(name).combine_chunks()
            if name not in JOINED:
                columns[name] = column
                continue
            is_list = pa.types.is_list(column.type)
            documents = column.flatten() if is_list else column
            numbers, place = np.unique(documents.to_numpy(), return_inverse=True)
            joined_values = {name: self.ids}
            if JOINED[name]:
                joined_values[JOINED[name]] = self.texts
            for joined_name, values in joined_values.items():
                # Copies have one text: with it twice, the writer would give up the dictionary.
                encoded = values.take(pa.array(numbers)).dictionary_encode()
                indices = encoded.indices.to_numpy()[place]
                joined = pa.DictionaryArray.from_arrays(
                    pa.array(indices, pa.int32()),
                    encoded.dictionary,
                )
                if is_list:
                    joined = lists_of_lengths(joined, _lengths(column))
                columns[joined_name] = joined
        return pa.table(columns)


def _lengths(column: pa.ListArray) -> Int64s:
    return np.asarray(column.value_lengths().to_numpy(zero_copy_only=False), np.int64)


def lists_of_lengths(values: pa.Array, lengths: NDArray[Any]) -> pa.ListArray:
    """Return values that are sorted by row as one list per row.

    Examples
    --------
    >>> lists_of_lengths(pa.array([3, 1, 2]), np.array([2, 0, 1])).to_pylist()
    [[3, 1], [], [2]]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    offsets = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values)


def load(path: Path) -> pd.DataFrame:
    """Read a table of training rows, in which equal texts of a block are one object."""
    # Only lists stay dictionary-encoded: pandas holds plain columns of texts without objects.
    texts = []
    for column in pq.read_schema(path):
        is_list = pa.types.is_list(column.type)
        if is_list and pa.types.is_string(column.type.value_type):
            texts.append(f"{column.name}.list.element")
    return frame(read_table(path, read_dictionary=texts))


def frame(table: pa.Table) -> pd.DataFrame:
    """Return a table with its lists as arrays, in which each text of a dictionary is one object."""
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_list(column.type):
            arrays = chain.from_iterable(map(_arrays, column.chunks))
            columns[name] = pd.Series(list(arrays), dtype=object)
            continue
        is_encoded = pa.types.is_dictionary(column.type)
        plain = column.cast(column.type.value_type) if is_encoded else column
        columns[name] = plain.to_pandas()
    return pd.DataFrame(columns)


def _arrays(column: pa.ListArray) -> list[NDArray[Any]]:
    values = column.flatten()
    if pa.types.is_dictionary(values.type):
        texts = [*values.dictionary.to_pylist(), None]
        text_array = np.array(texts, dtype=object)[:-1]
        flat = text_array[values.indices.to_numpy()]
    else:
        flat = values.to_numpy(zero_copy_only=False)
    ends = np.cumsum(_lengths(column)).tolist()
    return [flat[start:end] for start, end in pairwise([0, *ends])]


_SCORES: Final = (
    *("bm25", "bm25_rank", "dense", "dense_rank"),
    *("cross", "p_relevant", "elo", "elo_se", "gap_se"),
)
# Measurements that a row is made of; nothing else need be read.
_READ: Final = (*_SCORES, "choice", "weight", "barred")
_RELATIVE_TO_FIRST_POSITIVE: Final = ("elo", "elo_se")


def training_rows(
    shards: CandidateShards,
    document_ids: Sequence[str],
    document_texts: Sequence[str] | pa.Array,
    query_texts: Mapping[str, str],
    related: RelatedDocuments | None = None,
    selves: Mapping[str, int] | None = None,
    splits: Mapping[str, str] | None = None,
    labels: Positives | None = None,
) -> TrainingRows:
    """Return one row per kept query and measured positive, with lists of its negatives, best first.

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
    selves
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
    related = related or RelatedDocuments.unrelated(count)
    maker = _RowMaker(count, query_texts, related, selves or {}, splits, labels)
    tables = [maker(block) for block in ahead(shards.only(*_READ))]
    if not tables:
        tables = [maker(of_no_query())]
    # Blocks without rows may have measured less than the others.
    tables = [table for table in tables if len(table)] or tables[:1]
    tables = [maker.with_used_exclusions(table) for table in tables]
    if not isinstance(document_texts, pa.Array):
        document_texts = pa.array(document_texts, pa.large_string())
    ids = pa.array(document_ids, pa.large_string())
    return TrainingRows(tables, ids, document_texts)


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
    source = np.zeros(nothing.shape, np.uint8)
    unmined = Candidates(np.array(query_ids, np.str_), positives, nothing, source)
    unmeasured = np.full(nothing.shape, np.nan)
    unmeasured_positives = np.full(positives.shape, np.nan)
    return unmined.with_columns(
        dict.fromkeys(block.columns, unmeasured),
        dict.fromkeys(block.positive_columns, unmeasured_positives),
    )


def of_no_query() -> Candidates:
    """Return a block without queries that has every score."""
    documents = np.zeros((0, 1), np.int32)
    scores = dict.fromkeys(_SCORES, np.zeros((0, 1), np.float32))
    block = Candidates(
        query_ids=np.zeros(0, "<U1"),
        positives=documents,
        documents=documents,
        source=documents.astype(np.uint8),
    )
    return block.with_columns(scores, scores)


@dataclass
class _RowMaker:
    """Makes the rows of a block, documents by number; notes which documents any row uses."""

    document_count: int
    query_texts: Mapping[str, str]
    related: RelatedDocuments
    selves: Mapping[str, int]
    splits: Mapping[str, str] | None
    labels: Positives | None
    used: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.used = np.zeros(self.document_count, bool)

    def __call__(self, block: Candidates) -> pa.Table:
        block = block.take(block.query_verdict == OPEN)
        query_ids = block.query_ids.tolist()
        is_promoted = block.of_kind("promoted")
        (promoted,) = compacted(np.where(is_promoted, block.documents, PADDING))
        labelled = block.positives if self.labels is None else self.labels.of(query_ids)
        relevant = np.concatenate([labelled, promoted], axis=1)
        barred = np.where(_barred(block), block.positives, PADDING)
        positives = without(relevant, barred)
        self_numbers = [self.selves.get(query_id, PADDING) for query_id in query_ids]
        selves = np.array(self_numbers, np.int32)[:, None]
        doubtful = np.where(block.excluded_in_batch, block.documents, PADDING)
        related = without(self.related.excluded(relevant, selves), positives)
        excluded = np.concatenate([doubtful, related], axis=1)
        no_positives = selves[:, :0]
        copies = self.related.excluded(no_positives, promoted)
        row, slot = _ordered_negatives(block, copies)
        self._use(block.documents[row, slot], promoted, labelled)
        self._use(self.related.excluded(no_positives, selves))
        query_texts = [self.query_texts[query] for query in query_ids]
        even_weights = np.ones(len(block), np.float32)
        query_weight = block.query_columns.get("weight", even_weights)
        columns: dict[str, pa.Array] = {
            "query_id": pa.array(query_ids, pa.string()),
            "query": pa.array(query_texts, pa.string()),
            "query_weight": pa.array(query_weight),
        }
        if self.splits is not None:
            splits = [self.splits[query] for query in query_ids]
            columns["split"] = pa.array(splits, pa.string())
        columns["origin"] = pa.array(["qrels"] * len(block), pa.string())
        columns["positive_id"] = pa.array(block.positives[:, 0])
        columns["positive_ids"] = lists(positives, positives != PADDING)
        columns |= _measured_columns(block, row, slot)
        columns["excluded_ids"] = lists(excluded, excluded != PADDING)
        return _by_positive(pa.table(columns), block, is_promoted)

    def _use(self, *documents: Int32s) -> None:
        for numbers in documents:
            self.used[numbers[numbers != PADDING]] = True

    def with_used_exclusions(self, table: pa.Table) -> pa.Table:
        """Return the table with those excluded documents alone that some row uses."""
        column = table.column("excluded_ids").combine_chunks()
        is_used = self.used[column.flatten().to_numpy()]
        row = np.repeat(np.arange(len(column)), _lengths(column))
        lengths = np.bincount(row[is_used], minlength=len(column))
        used = lists_of_lengths(column.flatten().filter(pa.array(is_used)), lengths)
        return table.set_column(table.column_names.index("excluded_ids"), "excluded_ids", used)


def _ordered_negatives(block: Candidates, copies: Int32s) -> tuple[Int64s, Int64s]:
    """Return row and slot of each negative that is no copy, by row and in the order of choice."""
    is_no_copy = without(block.documents, copies) != PADDING
    row, slot = np.nonzero(block.negatives & is_no_copy)
    if len(row):
        order = np.lexsort((block.columns["choice"][row, slot], row))
        return row[order], slot[order]
    return row, slot


def _measured_columns(
    block: Candidates,
    row: Int64s,
    slot: Int64s,
) -> dict[str, pa.Array]:
    """Return the lists of negatives with what was measured of them and of the first positive."""
    lengths = np.bincount(row, minlength=len(block))
    source_names = pa.DictionaryArray.from_arrays(
        block.source[row, slot].astype(np.int32),
        pa.array([_source_name(source) for source in range(16)], pa.string()),
    )
    columns: dict[str, pa.Array] = {
        "negative_ids": lists_of_lengths(pa.array(block.documents[row, slot]), lengths),
        "weights": lists_of_lengths(pa.array(block.weight[row, slot]), lengths),
        "sources": lists_of_lengths(source_names, lengths),
    }
    for score in _SCORES:
        if score in block.columns:
            values = pa.array(block.columns[score][row, slot])
            columns[f"negative_{score}"] = lists_of_lengths(values, lengths)
            if score in block.positive_columns:
                columns[f"positive_{score}"] = pa.array(block.positive_columns[score][:, 0])
    return columns


def _source_name(source: int) -> str:
    """Return the names of the retrievers whose bits are set."""
    return "+".join(name for name, bit in SOURCES.items() if source & bit)


def _by_positive(
    table: pa.Table,
    block: Candidates,
    is_promoted: Bools,
) -> pa.Table:
    """Return a row for each measured positive of a query, and behind them for each promotion."""
    makes_row = (block.positives != PADDING) & ~_barred(block)
    row, place = np.nonzero(makes_row)
    promoted_row, slot = np.nonzero(is_promoted)
    # In the order of the queries, so that it does not depend on where a block ends.
    order = np.argsort(np.concatenate([row, promoted_row]), kind="stable")

    def ordered(of_positives: NDArray[Any], of_promoted: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([of_positives, of_promoted])[order]

    repeated = table.take(pa.array(ordered(row, promoted_row)))
    is_sure = np.ones(block.documents.shape, np.float32)
    probability = block.columns.get("p_relevant", is_sure)[promoted_row, slot]
    weight = ordered(np.ones(len(row), np.float32), probability)
    weight = repeated.column("query_weight").to_numpy() * weight
    columns = {name: repeated.column(name) for name in table.column_names}
    origin = np.where(order < len(row), "qrels", "promoted")
    columns["origin"] = pa.array(origin, pa.string())
    positive_ids = ordered(block.positives[row, place], block.documents[promoted_row, slot])
    columns["positive_id"] = pa.array(positive_ids)
    columns["query_weight"] = pa.array(weight.astype(np.float32))
    for score in _SCORES:
        if f"positive_{score}" in columns:
            # Gaps in Elo are to the first positive, beside which the candidates were rated.
            positive_slot = 0 if score in _RELATIVE_TO_FIRST_POSITIVE else place
            positive_scores = block.positive_columns[score][row, positive_slot]
            scores = ordered(positive_scores, block.columns[score][promoted_row, slot])
            columns[f"positive_{score}"] = pa.array(scores)
    return pa.table(columns).combine_chunks()


def _barred(block: Candidates) -> Bools:
    """True where a positive makes no row, [Q, P]."""
    none_barred = np.zeros(block.positives.shape)
    return block.positive_columns.get("barred", none_barred) > 0


def pair_rows(
    rows: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    collection: str,
    language: str,
) -> pd.DataFrame:
    """Return the rows that have negatives in the pair format of methods §1.

    Returns
    -------
    pandas.DataFrame
        ``query, positive_doc, hard_negatives, query_type, doc_type, source, language``; types,
        source and language are those of the collection's metadata where it has them.
    """
    negative_counts = np.fromiter(map(len, rows.negative_ids), np.int64, len(rows))
    pairs = rows[negative_counts > 0]
    pairs = pairs.rename(columns={"positive": "positive_doc", "negatives": "hard_negatives"})
    doc_types = values_by_id(corpus, "document_id", "doc_type", "document")
    pairs["doc_type"] = pairs.positive_id.map(doc_types)
    defaults = {"query_type": "query", "source": collection, "language": language}
    for name, default in defaults.items():
        values = values_by_id(queries, "query_id", name, default)
        pairs[name] = pairs.query_id.map(values)
    types = ["query_type", "doc_type", "source", "language"]
    return pairs[["query", "positive_doc", "hard_negatives", *types]].reset_index(drop=True)
