"""The module turns selected candidates into rows that training and other programs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from anmi.candidates import OPEN, PADDING, SOURCES, Candidates, CandidateShards
from anmi.corpus.texts import values_by_id
from anmi.engine.threads import ahead
from anmi.retrieval.pool import Positives, compacted, without
from anmi.retrieval.related import RelatedDocuments
from anmi.selection.row_table import TrainingRows, listed

_SCORES: Final = ("bm25", "bm25_rank", "dense", "dense_rank", "cross", "p_relevant", "elo", "elo_se", "gap_se")
# Measurements that a row is made of; nothing else need be read.
_READ: Final = (*_SCORES, "choice", "weight")
_SOURCE_NAMES: Final = pa.array(
    ["+".join(name for name, bit in SOURCES.items() if value & bit) for value in range(16)], pa.string()
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

    A promoted candidate makes a further row: it is the positive, with the query's weight times its probability of
    relevance. The negatives of all rows of a query are the same. No negative has the text of a promoted document:
    which documents these are is known only when all are chosen.

    Parameters
    ----------
    shards
        After selection.
    document_ids, document_texts
        By document index.
    query_texts
        By query id.
    related
        Copies, near-duplicates and siblings of documents; without it every document is like no other.
    own
        By query id, the document that the query is itself or has the text of, where there is one.
    splits
        By query id; without it the rows do not say.
    labels
        All known positives of the queries; without it those that were measured are all.

    Returns
    -------
    TrainingRows
        ``query_id, query, query_weight, split, origin`` (``qrels`` or ``promoted``)``, positive_id, positive,
        positive_ids, negative_ids, negatives, weights, sources``, for every score the lists ``negative_<score>`` beside
        the number ``positive_<score>``; and ``excluded_ids``: documents of other rows that must not become negatives of
        this one inside a batch, because they are copies, near-duplicates or siblings of a positive, or their relevance
        here was judged uncertain or likely; and in any case the query itself, which training may draw from the corpus.
    """
    count = len(document_ids)
    maker = _RowMaker(count, query_texts, related or RelatedDocuments.unrelated(count), own or {}, splits, labels)
    tables = [maker(block) for block in ahead(shards.only(*_READ))] or [maker(_of_no_query())]
    # Blocks without rows may have measured less than the others.
    tables = [table for table in tables if len(table)] or tables[:1]
    texts = document_texts if isinstance(document_texts, pa.Array) else pa.array(document_texts, pa.large_string())
    return TrainingRows(list(map(maker.known, tables)), pa.array(document_ids, pa.large_string()), texts)


def _of_no_query() -> Candidates:
    none, scores = np.zeros((0, 1), np.int32), {name: np.zeros((0, 1), np.float32) for name in _SCORES}
    return Candidates(np.zeros(0, "<U1"), none, none, none.astype(np.uint8)).with_columns(scores, scores)


@dataclass
class _RowMaker:
    """Makes the rows of a block, documents by number, and remembers which documents any row uses."""

    documents: int
    query_texts: Mapping[str, str]
    related: RelatedDocuments
    own: Mapping[str, int]
    splits: Mapping[str, str] | None
    labels: Positives | None
    used: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.used = np.zeros(self.documents, bool)

    def __call__(self, block: Candidates) -> pa.Table:
        block = block.take(block.query_verdict == OPEN)
        own, promoted = block.positives[:, 0], block.of_kind("promoted")
        (found,) = compacted(np.where(promoted, block.documents, PADDING))
        queries = block.query_ids.tolist()
        known = block.positives if self.labels is None else self.labels.of(queries)
        positives = np.concatenate([known, found], axis=1)
        selves = np.array([self.own.get(query, PADDING) for query in queries], np.int32)[:, None]
        copies = self.related.barred(found[:, :0], found)
        row, slot = np.nonzero(block.negatives & (without(block.documents, copies) != PADDING))
        if len(row):
            order = np.lexsort((block.columns["choice"][row, slot], row))
            row, slot = row[order], slot[order]
        chosen = block.documents[row, slot]
        self.used[chosen] = self.used[block.documents[promoted]] = True
        self.used[known[known != PADDING]] = True
        itself = self.related.barred(found[:, :0], selves)
        self.used[itself[itself != PADDING]] = True
        lengths = np.bincount(row, minlength=len(block))

        def lists(values: pa.Array | NDArray[Any]) -> pa.Array:
            return listed(values if isinstance(values, pa.Array) else pa.array(values), lengths)

        table: dict[str, Any] = {
            "query_id": pa.array(queries, pa.string()),
            "query": pa.array([self.query_texts[query] for query in queries], pa.string()),
            "query_weight": pa.array(block.query_columns.get("weight", np.ones(len(block), np.float32))),
        }
        if self.splits is not None:
            table["split"] = pa.array([self.splits[query] for query in queries], pa.string())
        table |= {
            "origin": pa.array(["qrels"] * len(block), pa.string()),
            "positive_id": pa.array(own),
            "positive_ids": _ragged(positives),
            "negative_ids": lists(chosen),
            "weights": lists(block.weight[row, slot]),
            "sources": lists(pa.DictionaryArray.from_arrays(block.source[row, slot].astype(np.int32), _SOURCE_NAMES)),
        }
        for score in _SCORES:
            if score in block.columns:
                table[f"negative_{score}"] = lists(block.columns[score][row, slot])
                if score in block.positive_columns:
                    table[f"positive_{score}"] = pa.array(block.positive_columns[score][:, 0])
        doubtful = np.where(block.barred_in_batch, block.documents, PADDING)
        others = np.concatenate([doubtful, without(self.related.barred(positives, selves), positives)], axis=1)
        table["excluded_ids"] = _ragged(others)
        return self._by_positive(pa.table(table), block, promoted)

    def known(self, table: pa.Table) -> pa.Table:
        """Return the table with those excluded documents alone that some row uses."""
        column = table.column("excluded_ids").combine_chunks()
        kept = self.used[column.flatten().to_numpy()]
        row = np.repeat(np.arange(len(column)), column.value_lengths().to_numpy(zero_copy_only=False))
        lengths = np.bincount(row[kept], minlength=len(column))
        place = table.column_names.index("excluded_ids")
        return table.set_column(place, "excluded_ids", listed(column.flatten().filter(pa.array(kept)), lengths))

    def _by_positive(self, table: pa.Table, block: Candidates, promoted: NDArray[np.bool_]) -> pa.Table:
        """Return a row for each measured positive of a query, and for each document that was promoted behind them."""
        row, place = np.nonzero(block.positives != PADDING)
        probability = block.columns.get("p_relevant", np.ones(block.documents.shape, np.float32))
        new, slot = np.nonzero(promoted)
        # In the order of the queries, so that it does not depend on where a block ends.
        order = np.argsort(np.concatenate([row, new]), kind="stable")
        made = table.take(pa.array(np.concatenate([row, new])[order]))
        weight = np.concatenate([np.ones(len(row), np.float32), probability[new, slot]])[order]
        changed: dict[str, Any] = {
            "origin": pa.array(np.where(order < len(row), "qrels", "promoted"), pa.string()),
            "positive_id": _both(block.positives[row, place], block.documents[new, slot], order),
            "query_weight": pa.array((made.column("query_weight").to_numpy() * weight).astype(np.float32)),
        }
        for name in table.column_names:
            score = name.removeprefix("positive_")
            if name.startswith("positive_") and score in block.positive_columns:
                # Gaps in Elo are to the first positive, beside which the candidates were rated.
                own = block.positive_columns[score][row, 0 if score in _OF_FIRST else place]
                changed[name] = _both(own, block.columns[score][new, slot], order)
        return pa.table({name: changed.get(name, made.column(name)) for name in table.column_names}).combine_chunks()


def _both(first: NDArray[Any], second: NDArray[Any], order: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate([first, second])[order])


def _ragged(documents: NDArray[np.int32]) -> pa.ListArray:
    """Return the documents of each row without padding."""
    filled = documents != PADDING
    return listed(pa.array(documents[filled]), filled.sum(axis=1))


def pair_rows(
    rows: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame, collection: str, language: str
) -> pd.DataFrame:
    """Return the rows that have negatives in the pair format of methods §1.

    Returns
    -------
    pandas.DataFrame
        ``query, positive_doc, hard_negatives, query_type, doc_type, source, language``; types, source and language are
        those of the collection's metadata where it has them.
    """
    kept = rows[np.fromiter(map(len, rows.negative_ids), np.int64, len(rows)) > 0]

    def of_query(name: str, default: str) -> pd.Series:
        return kept.query_id.map(values_by_id(queries, "query_id", name, default))

    return pd.DataFrame({
        "query": kept["query"].to_numpy(),
        "positive_doc": kept["positive"].to_numpy(),
        "hard_negatives": kept.negatives.tolist(),
        "query_type": of_query("query_type", "query").to_numpy(),
        "doc_type": kept.positive_id.map(values_by_id(corpus, "document_id", "doc_type", "document")).to_numpy(),
        "source": of_query("source", collection).to_numpy(),
        "language": of_query("language", language).to_numpy(),
    })  # fmt: skip
