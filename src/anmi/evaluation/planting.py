"""Truth that is hidden from the mining, so that a miner can be audited before anything is trained.

Two kinds: *hidden* positives (a query with several keeps half of them, or one, and the others are no longer labelled)
and *equivalents* (documents in truth relevant though no label ever said so, :mod:`anmi.corpus.sources`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi import seeds
from anmi.candidates import Candidates
from anmi.corpus.texts import normalised
from anmi.corpus.types import empty
from anmi.errors import AnmiError
from anmi.seeds import choose

Kinds = Literal["auto", "hidden", "equivalents"]
Hide = Literal["half", "all_but_one"]
HIDDEN: Final = "hidden"
EQUIVALENT: Final = "equivalent"
_PAIR: Final = ["query_id", "document_id"]
_NEEDS: Final = {
    "hidden": "training queries with two positives of different text",
    "equivalents": "equivalents (queries of equal text as in api_docs, or documents whose metadata hold triples)",
}


@dataclass(frozen=True)
class Planting:
    """The audit version of a collection.

    Attributes
    ----------
    queries
        Training queries that have planted truth, in the columns of the collection's queries.
    qrels
        What the mining may know of them, in the columns of the collection's qrels.
    truth
        ``query_id, document_id, kind``, kind ``hidden`` or ``equivalent``: relevant, unlabelled, and allowed as
        candidates. Holds every document of a planted text.
    """

    queries: pd.DataFrame
    qrels: pd.DataFrame
    truth: pd.DataFrame


def plant(
    queries: pd.DataFrame, qrels: pd.DataFrame, equivalents: pd.DataFrame, copies: Mapping[str, str], *,
    kinds: Kinds = "auto", hide: Hide = "half", limit: int = 0, seed: int,
) -> Planting:  # fmt: skip
    """Hide positives and gather equivalents of the training queries.

    Documents of the same text are one document here: a text that is known to be relevant is never planted (the
    mining would exclude it anyway), and every copy of a planted text is planted.

    Parameters
    ----------
    queries
        ``query_id, text, split``.
    qrels
        ``query_id, document_id, relevance``; every label above 0 counts.
    equivalents
        ``query_id, document_id``; may be empty.
    copies
        For each document that is a copy, the first one of the same text.
    kinds
        ``hidden``, ``equivalents``, or ``auto`` for both as far as the collection offers them.
    hide
        ``half`` of a query's positives, rounded down, or ``all_but_one``, which leaves a judge no query with several to
        learn from.
    limit
        Most queries kept, chosen by a hash of the text; 0 keeps all.
    seed
        Keys which positives stay known and which queries are kept.

    Raises
    ------
    AnmiError
        The collection offers none of the kinds asked for; says what it would need.

    Examples
    --------
    >>> queries = pd.DataFrame({"query_id": ["q"], "text": ["?"], "split": ["train"]})
    >>> qrels = pd.DataFrame({"query_id": ["q", "q"], "document_id": ["a", "b"], "relevance": [1, 1]})
    >>> none = pd.DataFrame({"query_id": [], "document_id": []})
    >>> planted = plant(queries, qrels, none, {}, seed=1)
    >>> sorted([*planted.qrels.document_id, *planted.truth.document_id])
    ['a', 'b']
    """
    train = queries[queries["split"] == "train"]
    known = qrels[(qrels["relevance"] > 0) & qrels["query_id"].isin(train["query_id"])]
    first = pd.Series(dict(copies), dtype=object)
    parts = [empty(*_PAIR, "kind")]
    if kinds in ("auto", "hidden"):
        hidden = _hidden(known, _text(known["document_id"], first), hide, seed)
        parts.append(known.loc[hidden, _PAIR].assign(kind=HIDDEN))
        known = known[~hidden]
    if kinds in ("auto", "equivalents"):
        offered = equivalents[equivalents["query_id"].isin(known["query_id"])]
        parts.append(offered[_PAIR].assign(kind=EQUIVALENT))
    truth = _unknown(pd.concat(parts, ignore_index=True), known, first)
    if truth.empty:
        lacking = " and no ".join(need for kind, need in _NEEDS.items() if kinds in ("auto", kind))
        raise AnmiError(
            f"the collection has no {lacking}, so there is no truth to plant (audit.kinds: {kinds}); audit one that "
            "has such, or add labels"
        )
    asked = train[train["query_id"].isin(truth["query_id"])]
    if limit and limit < len(asked):
        asked = asked[choose([normalised(text) for text in asked["text"]], limit, seed)]
    truth = truth[truth["query_id"].isin(asked["query_id"])]
    known = known[known["query_id"].isin(asked["query_id"])].reset_index(drop=True)
    return Planting(asked.reset_index(drop=True), known, _with_copies(truth, first))


def without_source(corpus: pd.DataFrame) -> pd.DataFrame:
    """Return the corpus without ``metadata.triples``, of which equivalents are made.

    A judge that compares triples would be measured against itself.

    Examples
    --------
    >>> corpus = pd.DataFrame({"document_id": ["a"], "metadata": ['{"triples": [["x", "is", "y"]], "size": 1}']})
    >>> without_source(corpus).metadata.tolist()
    ['{"size": 1}']
    """

    def stripped(text: str) -> str:
        if '"triples"' not in text:
            return text
        known = json.loads(text)
        return json.dumps({key: value for key, value in known.items() if key != "triples"}, ensure_ascii=False)

    return corpus.assign(metadata=[stripped(text) for text in corpus["metadata"]])


def _text(documents: pd.Series, first: pd.Series) -> NDArray[np.object_]:
    """Return for every document the first one that has its text."""
    found: NDArray[np.object_] = documents.map(first).fillna(documents).to_numpy(dtype=object)
    return found


def _hidden(known: pd.DataFrame, text: NDArray[np.object_], hide: Hide, seed: int) -> NDArray[np.bool_]:
    """Return which labels are hidden: of every query's texts half or all but one, by the query's own stream."""
    pairs = pd.DataFrame({"query_id": known["query_id"].to_numpy(), "text": text})
    texts = pairs.drop_duplicates().sort_values(["query_id", "text"], ignore_index=True)
    texts = texts[texts["query_id"].duplicated(keep=False)]
    # Which place each text has in its query's own random order; those of the first places stay.
    count = texts.groupby("query_id").size()
    orders = [seeds.stream(seed, "audit/known", str(query)).permutation(n) for query, n in count.items()]
    place = np.concatenate([*orders, np.zeros(0, np.int64)])
    stay = texts["query_id"].map((count + 1) // 2 if hide == "half" else count.clip(upper=1)).to_numpy()
    gone = pd.MultiIndex.from_frame(texts[place >= stay])
    result: NDArray[np.bool_] = pd.MultiIndex.from_frame(pairs).isin(gone)
    return result


def _unknown(truth: pd.DataFrame, known: pd.DataFrame, first: pd.Series) -> pd.DataFrame:
    """Leave out what has the text of a known positive, and what was hidden already."""
    labelled = pd.MultiIndex.from_arrays([known["query_id"], _text(known["document_id"], first)])
    text = _text(truth["document_id"], first)
    found = pd.MultiIndex.from_arrays([truth["query_id"], text]).isin(labelled)
    return truth[~found].drop_duplicates(_PAIR).reset_index(drop=True)


def _with_copies(truth: pd.DataFrame, first: pd.Series) -> pd.DataFrame:
    """Add the other documents of each planted text, under the same kind."""
    copies = pd.DataFrame({"text": [*first.to_numpy(), *first.unique()], "copy": [*first.index, *first.unique()]})
    merged = truth.assign(text=_text(truth["document_id"], first)).merge(copies, on="text")
    added = merged[["query_id", "copy", "kind"]].rename(columns={"copy": "document_id"})
    return pd.concat([truth, added], ignore_index=True).drop_duplicates(_PAIR).reset_index(drop=True)


class PlantedTruth:
    """Tells which candidates of a block are planted.

    Parameters
    ----------
    truth
        ``query_id, document_id``.
    document_ids
        By document index.
    """

    def __init__(self, truth: pd.DataFrame, document_ids: pd.Series) -> None:
        names = truth["query_id"].unique()
        self._row = pd.Series(np.arange(len(names)), index=names)
        self._documents = len(document_ids)
        position = pd.Series(np.arange(len(document_ids)), index=document_ids.to_numpy())
        rows = self._row.loc[truth["query_id"]].to_numpy()
        self._keys = np.unique(rows * self._documents + position.loc[truth["document_id"]].to_numpy())

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self, block: Candidates) -> NDArray[np.int64]:
        """Return one number per (query, candidate), -1 where the query has no planted truth, [Q, M]."""
        rows = self._row.reindex(block.query_ids).fillna(-1).to_numpy(np.int64)[:, None]
        return np.where((rows >= 0) & block.filled, rows * self._documents + block.documents, -1)

    def mask(self, block: Candidates) -> NDArray[np.bool_]:
        """Return True where a candidate is planted, [Q, M]."""
        return np.isin(self.keys(block), self._keys)
