"""The tables of all formats: tuples of one row, all documents of a query together, and pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.errors import AnmiError
from anmi.selection.export.flat import Collection, ExportOptions, FlatRows, table_of
from anmi.selection.rows import pair_rows


@dataclass(frozen=True)
class _Queries:
    """The documents of Q queries, each document once per query, positives first.

    ``documents`` is sorted by ``query`` (0 … Q − 1), and has ``id, text, score, positive`` besides.
    """

    ids: NDArray[Any]
    texts: NDArray[Any]
    documents: pd.DataFrame

    def lists(self, column: str, keep: NDArray[np.bool_] | None = None) -> list[list[Any]]:
        """Return a column as one list per query."""
        chosen = self.documents if keep is None else self.documents[keep]
        cuts = np.cumsum(np.bincount(chosen["query"], minlength=len(self.ids)))[:-1]
        # Splitting at no cuts gives one part, also where there is no query.
        return [part.tolist() for part in np.split(chosen[column].to_numpy(), cuts)] if len(self.ids) else []

    @property
    def positive(self) -> NDArray[np.bool_]:
        """Which documents are positives."""
        return self.documents.positive.to_numpy(bool)


def _grouped(flat: FlatRows, contrast: bool) -> _Queries:
    """Bring the rows of each query together; with ``contrast`` only queries that have both kinds of documents."""
    rows = flat.rows
    query = pd.factorize(rows.query_id)[0]
    own = {"query": query, "id": rows.positive_id, "text": rows.positive, "score": rows.score, "positive": True}
    other = {"query": query[flat.row], "id": flat.ids, "text": flat.texts, "score": flat.scores, "positive": False}
    both = pd.concat([table_of(own), table_of(other)], ignore_index=True).drop_duplicates(["query", "id"])
    if flat.score is not None:
        unknown = both.score.isna()
        flat.leave_out(f"positives without {flat.score}", int(unknown.sum()))
        both = both[~unknown]
    first = np.unique(query, return_index=True)[1]
    if contrast:
        kinds = [np.bincount(both["query"][both.positive == kind], minlength=len(first)) for kind in (True, False)]
        mixed = (kinds[0] > 0) & (kinds[1] > 0)
        flat.leave_out("queries without a positive or without negatives", int((~mixed).sum()))
        both = both[mixed[both["query"]]]
    both = both.sort_values("query", kind="stable")
    kept, numbers = np.unique(both["query"], return_inverse=True)
    asked = rows.iloc[first[kept]]
    return _Queries(asked.query_id.to_numpy(), asked["query"].to_numpy(), both.assign(query=numbers))


def labelled_pair(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query, document, label``: 1 for a positive and 0 for a negative, or the score asked for."""
    queries = _grouped(flat, contrast=False)
    found = queries.documents
    labels = found.positive.astype(np.int64) if flat.score is None else found.score.astype(np.float32)
    return table_of({
        "query": queries.texts[found["query"]], "document": found.text.to_numpy(), "label": labels.to_numpy(),
    })  # fmt: skip


def labelled_list(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query, documents, labels``, one line per query with both kinds of documents."""
    queries = _grouped(flat, contrast=True)
    found = queries.documents
    labels = found.positive.astype(np.float32) if flat.score is None else found.score.astype(np.float32)
    listed = _Queries(queries.ids, queries.texts, found.assign(label=labels))
    return table_of({
        "query": queries.texts, "documents": listed.lists("text"), "labels": listed.lists("label"),
    })  # fmt: skip


def flagembedding(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query, pos, neg, type``, with a score also ``pos_scores, neg_scores``, and ``prompt`` if there is one.

    ``type`` is what the in-context trainer asks for; the others take it or leave it.
    """
    queries = _grouped(flat, contrast=True)
    positive = queries.positive
    table = {"query": queries.texts, "pos": queries.lists("text", positive), "neg": queries.lists("text", ~positive)}
    if flat.score is not None:
        table |= {"pos_scores": queries.lists("score", positive), "neg_scores": queries.lists("score", ~positive)}
    if options.prompt is not None:
        table["prompt"] = np.full(len(queries.ids), options.prompt, dtype=object)
    return table_of(table | {"type": "normal"})


def tevatron(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query_id, query, positive_passages, negative_passages``; a passage is ``docid, title, text``.

    Tevatron joins title and text by a blank, as we do; so a known title is taken off the text's beginning.
    """
    queries = _grouped(flat, contrast=True)
    found = queries.documents
    titles = _titles(found.id.to_numpy(), collection)
    texts = [
        (title, text[len(title) + 1 :]) if title and text.startswith(f"{title} ") else ("", text)
        for title, text in zip(titles, found.text, strict=True)
    ]
    passages = [
        {"docid": str(document), "title": title, "text": text}
        for document, (title, text) in zip(found.id, texts, strict=True)
    ]
    listed = _Queries(queries.ids, queries.texts, found.assign(passage=pd.Series(passages, found.index, dtype=object)))
    return table_of({
        "query_id": queries.ids,
        "query": queries.texts,
        "positive_passages": listed.lists("passage", queries.positive),
        "negative_passages": listed.lists("passage", ~queries.positive),
    })  # fmt: skip


def _titles(ids: NDArray[Any], collection: Collection | None) -> Sequence[str]:
    if collection is None:
        return [""] * len(ids)
    known = dict(zip(collection.corpus.document_id, collection.corpus.title, strict=True))
    return [str(known.get(document) or "").strip() for document in ids]


def pairs(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return the pair format of :func:`anmi.selection.rows.pair_rows`, one line per row with negatives.

    Raises
    ------
    AnmiError
        The collection is not given, or it is not the one the rows were made of.
    """
    if collection is None:
        raise AnmiError(
            "the pair format names types and language, which only the collection knows; run ingestion first"
        )
    counts = flat.counts
    flat.leave_out("rows without negatives", int((counts == 0).sum()))
    cuts = np.cumsum(counts)[:-1]
    lists = {"negative_ids": np.split(flat.ids, cuts), "negatives": np.split(flat.texts, cuts)}
    found = {name: [part.tolist() for part in parts] if len(counts) else [] for name, parts in lists.items()}
    for kind, table, key, asked in (
        ("document", collection.corpus, "document_id", flat.rows.positive_id),
        ("query", collection.queries, "query_id", flat.rows.query_id),
    ):
        strange = asked[~asked.isin(table[key])]
        if len(strange):
            raise AnmiError(
                f'the newest collection has no {kind} "{strange.iloc[0]}" of the training rows, so these were made '
                "of another one; run mining again"
            )
    rows = flat.rows.assign(**found)
    return pair_rows(rows, collection.corpus, collection.queries, collection.name, collection.language)


# Column names and order follow ``sentence_transformers.util.mine_hard_negatives``; a loss reads columns by their order,
# and every one of them is a text apart from ``label`` and ``scores``, so nothing else may stand in these tables.
def triplet(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query, positive, negative``, one line per negative."""
    _note_empty(flat)
    return table_of({
        "query": flat.rows["query"].to_numpy()[flat.row],
        "positive": flat.rows.positive.to_numpy()[flat.row],
        "negative": flat.texts,
    })  # fmt: skip


def n_tuple(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return ``query, positive, negative_1, …, negative_n``, one line per row that has n negatives."""
    return _tuples(flat, options)[0]


def n_tuple_scores(flat: FlatRows, options: ExportOptions, collection: Collection | None) -> pd.DataFrame:
    """Return an n-tuple with ``scores``: the positive's, then those of the negatives.

    Scores and not their differences: MarginMSELoss takes both (Hofstätter et al. 2020, arXiv 2010.02666),
    DistillKLDivLoss only scores.
    """
    table, kept, slots = _tuples(flat, options)
    positive = flat.rows.score.to_numpy(np.float64)[kept]
    negative = flat.scores[slots].reshape(len(kept), table.shape[1] - 2)
    table["scores"] = list(np.column_stack([positive, negative]).astype(np.float32))
    return table


def _tuples(flat: FlatRows, options: ExportOptions) -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.bool_]]:
    """Return the table, the rows in it, and which negatives are in it, bool [P]."""
    _note_empty(flat)
    counts = flat.counts
    if flat.score is not None:
        unknown = np.isnan(flat.rows.score.to_numpy(np.float64)) & (counts > 0)
        flat.leave_out(f"rows whose positive has no {flat.score}", int(unknown.sum()))
        counts = np.where(unknown, 0, counts)
    wanted = max(options.negatives or int(counts.max(initial=0)), 1)
    full = counts >= wanted
    short = counts[(counts > 0) & ~full]
    if len(short):
        # Tuples must be of one length; what would keep all rows is the least that any of them has.
        flat.leave_out(
            f"rows with fewer than {wanted} negatives (--negatives {short.min()} keeps every row that has any)",
            len(short),
        )
    kept, slots = np.flatnonzero(full), full[flat.row]
    rows = flat.rows.iloc[kept]
    texts = flat.texts[slots].reshape(len(kept), wanted)
    named = {f"negative_{place + 1}": texts[:, place] for place in range(wanted)}
    columns = {"query": rows["query"].to_numpy(), "positive": rows.positive.to_numpy(), **named}
    return table_of(columns), kept, slots


def _note_empty(flat: FlatRows) -> None:
    flat.leave_out("rows without negatives", int((flat.counts == 0).sum()))
