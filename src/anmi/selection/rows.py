"""From selected candidates to rows that training and other programs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import OPEN, PADDING, SOURCES, Candidates, CandidateShards
from anmi.corpus.metadata import values_by_id
from anmi.engine.threads import ahead
from anmi.retrieval.pool import compacted, without
from anmi.retrieval.related import RelatedDocuments

_SCORES: Final = ("bm25", "bm25_rank", "dense", "dense_rank", "cross", "p_relevant", "elo", "elo_se", "gap_se")
# Measurements that a row is made of; nothing else need be read.
_READ: Final = (*_SCORES, "choice", "weight")
_SOURCE_NAMES: Final = np.array(
    ["+".join(name for name, bit in SOURCES.items() if value & bit) for value in range(16)], dtype=object
)
_TEXTS: Final = frozenset({"query_id", "query", "origin", "positive_id", "positive"})
# As many as a row has other documents to be compared with.
_UNCERTAIN: Final = 8


def training_rows(
    shards: CandidateShards,
    document_ids: Sequence[str],
    document_texts: Sequence[str],
    query_texts: dict[str, str],
    related: RelatedDocuments | None = None,
    own: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Return one row per kept (query, positive), its negatives as lists of equal length, best first.

    Without a query there are no rows, and yet all columns, those of every score among them.

    A promoted candidate makes a further row: it is the positive, with the query's weight times its probability of
    relevance, and the negatives are those of one of the query's rows. No negative has the text of a promoted document:
    which documents these are is known only when all are chosen.

    Parameters
    ----------
    shards
        After selection, one row per (query, positive).
    document_ids, document_texts
        By document index.
    query_texts
        By query id.
    related
        Copies, near-duplicates and siblings of documents; without it every document is like no other.
    own
        By query id, the document that the query is itself or has the text of, where there is one.

    Returns
    -------
    pandas.DataFrame
        ``query_id, query, query_weight, origin`` (``qrels`` or ``promoted``)``, positive_id, positive, positive_ids,
        negative_ids, negatives, weights, sources``, for every score the lists ``negative_<score>`` beside the number
        ``positive_<score>``; ``uncertain_ids, uncertain, uncertain_p``: the likeliest few that are fit for
        distillation only; and ``excluded_ids``: documents of other rows that must not become negatives of this one
        inside a batch, because they are copies, near-duplicates or siblings of a positive, or their relevance here
        was judged uncertain or likely; and in any case the query itself, which training may draw from the corpus.
    """
    names, texts = np.array(document_ids, dtype=object), np.array(document_texts, dtype=object)
    maker = _RowMaker(names, texts, query_texts, related or RelatedDocuments.of_none(len(names)), own or {})
    tables = [maker(block) for block in ahead(shards.only(*_READ))] or [_typed(maker(_of_no_query()))]
    # A table without rows has columns of no type, and would take the others' from them.
    rows = pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
    excluded = [maker.names[found[maker.used[found]]].tolist() for found in rows.pop("excluded")]
    return rows.assign(excluded_ids=pd.Series(excluded, index=rows.index, dtype=object))


def _of_no_query() -> Candidates:
    none, scores = np.zeros((0, 1), np.int32), {name: np.zeros((0, 1), np.float32) for name in _SCORES}
    return Candidates(np.zeros(0, "<U1"), none, none, none.astype(np.uint8)).with_columns(scores, scores)


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without rows with columns of texts and lists, which pandas cannot tell from nothing."""
    numbers = table.select_dtypes("float32").columns
    return table.astype({name: "str" if name in _TEXTS else object for name in table.columns.difference(numbers)})


@dataclass
class _RowMaker:
    """Makes the rows of a block and remembers which documents any row uses."""

    names: NDArray[Any]
    texts: NDArray[Any]
    query_texts: dict[str, str]
    related: RelatedDocuments
    own: Mapping[str, int]
    used: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.used = np.zeros(len(self.names), bool)

    def __call__(self, block: Candidates) -> pd.DataFrame:
        block = block.take(block.query_verdict == OPEN)
        own, promoted = block.positives[:, 0], block.of_kind("promoted")
        (found,) = compacted(np.where(promoted, block.documents, PADDING))
        positives = np.concatenate([block.positives, found], axis=1)
        selves = np.array([self.own.get(query, PADDING) for query in block.query_ids.tolist()], np.int32)[:, None]
        copies = self.related.barred(found[:, :0], found)
        row, slot = np.nonzero(block.negatives & (without(block.documents, copies) != PADDING))
        if len(row):
            order = np.lexsort((block.columns["choice"][row, slot], row))
            row, slot = row[order], slot[order]
        chosen = block.documents[row, slot]
        self.used[chosen] = self.used[own] = self.used[block.documents[promoted]] = True
        itself = self.related.barred(found[:, :0], selves)
        self.used[itself[itself != PADDING]] = True
        lists = _Lists(row, len(block))
        table: dict[str, Any] = {
            "query_id": block.query_ids.tolist(),
            "query": [self.query_texts[str(query)] for query in block.query_ids],
            "query_weight": block.query_columns.get("weight", np.ones(len(block), np.float32)),
            "origin": "qrels",
            "positive_id": self.names[own],
            "positive": self.texts[own],
            "positive_ids": [self.names[part].tolist() for part in _ragged(positives)],
            "negative_ids": lists(self.names[chosen]),
            "negatives": lists(self.texts[chosen]),
            "weights": lists(block.weight[row, slot]),
            "sources": lists(_SOURCE_NAMES[block.source[row, slot]]),
        }
        for score in _SCORES:
            if score in block.columns:
                table[f"negative_{score}"] = lists(block.columns[score][row, slot])
                if score in block.positive_columns:
                    table[f"positive_{score}"] = block.positive_columns[score][:, 0]
        doubtful = np.where(block.barred_in_batch, block.documents, PADDING)
        others = np.concatenate([doubtful, without(self.related.barred(positives, selves), positives)], axis=1)
        table |= self._uncertain(block) | {"excluded": _ragged(others)}
        return self._with_promoted(pd.DataFrame(table), block, promoted)

    def _uncertain(self, block: Candidates) -> dict[str, Any]:
        probability = block.columns.get("p_relevant", np.zeros(block.documents.shape, np.float32))
        row, slot = np.nonzero(block.of_kind("uncertain"))
        order = np.lexsort((block.documents[row, slot], -probability[row, slot], row))
        row, slot = row[order], slot[order]
        place = np.arange(len(row)) - np.searchsorted(row, row)
        row, slot = row[place < _UNCERTAIN], slot[place < _UNCERTAIN]
        lists, documents = _Lists(row, len(block)), block.documents[row, slot]
        return {
            "uncertain_ids": lists(self.names[documents]),
            "uncertain": lists(self.texts[documents]),
            "uncertain_p": lists(probability[row, slot]),
        }

    def _with_promoted(self, table: pd.DataFrame, block: Candidates, promoted: NDArray[np.bool_]) -> pd.DataFrame:
        known = np.where(block.positives == PADDING, np.iinfo(np.int32).max, block.positives)
        # A query with several positives has several rows; what it promotes is to be one row and not several.
        row, slot = np.nonzero(promoted & (block.positives[:, 0] == known.min(axis=1))[:, None])
        if not len(row):
            return table
        document = block.documents[row, slot]
        probability = block.columns.get("p_relevant", np.ones(block.documents.shape, np.float32))[row, slot]
        more = table.iloc[row].assign(origin="promoted", positive_id=self.names[document])
        more = more.assign(positive=self.texts[document], query_weight=more.query_weight * probability)
        for name in [name for name in more.columns if name.startswith("positive_") and name[9:] in block.columns]:
            more[name] = block.columns[name[9:]][row, slot]
        # Each behind the row it comes from, so that the order does not depend on where a block ends.
        order = np.argsort(np.concatenate([np.arange(len(table)), row]), kind="stable")
        return pd.concat([table, more]).iloc[order].reset_index(drop=True)


class _Lists:
    """Cuts values that are sorted by row into one list per row."""

    def __init__(self, row: NDArray[np.int64], rows: int) -> None:
        self._cuts = np.cumsum(np.bincount(row, minlength=rows))[:-1]
        self._rows = rows

    def __call__(self, values: NDArray[Any]) -> list[Any]:
        return [part.tolist() for part in np.split(values, self._cuts)] if self._rows else []


def _ragged(documents: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Return the documents of each row without padding."""
    row, slot = np.nonzero(documents != PADDING)
    cuts = np.cumsum(np.bincount(row, minlength=len(documents)))[:-1]
    return np.split(documents[row, slot], cuts) if len(documents) else []


def of_split(rows: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the rows of queries of one split; of a table that does not say, all are of training queries.

    Examples
    --------
    >>> rows = pd.DataFrame({"query_id": ["a", "b"], "split": ["train", "dev"]})
    >>> of_split(rows, "dev").query_id.tolist(), len(of_split(rows[["query_id"]], "train"))
    (['b'], 2)
    """
    splits = rows["split"] if "split" in rows else pd.Series("train", index=rows.index)
    return rows[splits == split].reset_index(drop=True)


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
    kept = rows[rows.negative_ids.map(len).astype(int) > 0]

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
