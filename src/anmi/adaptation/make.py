"""Pseudo-queries of a corpus: made, numbered, filtered and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pandas as pd
from tqdm.auto import tqdm

from anmi.adaptation.filters import KEPT, FilterOptions, reasons
from anmi.adaptation.kinds import KINDS, Document, Material, QuestionOptions
from anmi.adaptation.written import Writer
from anmi.corpus.splits import choose
from anmi.corpus.texts import column
from anmi.retrieval.terms import Terms

COLUMNS: Final = ("query_id", "text", "document_id", "positive_text", "kind", "weight", "split")
DROPPED: Final = ("query_id", "text", "document_id", "kind", "reason")


@dataclass(frozen=True)
class PseudoQueries:
    """What was made of a corpus.

    Attributes
    ----------
    kept
        :data:`COLUMNS`.
    dropped
        :data:`DROPPED`.
    summary
        ``documents``, ``new``, and under ``kinds`` for each how many were ``made``, ``kept``, ``dropped`` by
        reason, and of how many ``documents`` there are any.
    """

    kept: pd.DataFrame
    dropped: pd.DataFrame
    summary: dict[str, Any]


def make_pseudo_queries(
    corpus: pd.DataFrame,
    kinds: Sequence[str],
    *,
    language: str,
    seed: int,
    terms: Terms | None = None,
    views: int = 5,
    most_documents: int = 100_000,
    new: Mapping[str, str] = MappingProxyType({}),
    copies: frozenset[str] = frozenset(),
    barred: frozenset[str] = frozenset(),
    filters: FilterOptions | None = None,
    question: QuestionOptions | None = None,
    writer: Writer | None = None,
    show_progress: bool = True,
) -> PseudoQueries:
    """Let the documents of a corpus ask for themselves.

    Parameters
    ----------
    corpus
        ``document_id, title, text, metadata``.
    kinds
        Names of :data:`anmi.adaptation.kinds.KINDS`.
    language
        ISO 639-1 code.
    seed
        Keys the draws of every document.
    terms
        Of the corpus, as they were cut for BM25; None cuts them where a dictionary does.
    views
        Pseudo-queries of a kind and document, at most.
    most_documents
        Documents that are asked at most, chosen by a hash of their ids.
    new
        By document id the split, ``dev`` or ``test``, of documents that training must not see; the others are for it.
    copies, barred
        See :func:`anmi.adaptation.filters.reasons`.
    filters
        What is dropped; the defaults where None.
    question
        Where metadata say what a document is about; the defaults where None.
    writer
        The language model that the kind ``llm`` asks.
    show_progress
        Draw a bar.

    Returns
    -------
    PseudoQueries
        What one document gives depends on no other document, but for boiler-plate and the idf of keyphrases.

    Raises
    ------
    AnmiError
        The kind ``llm`` has no language model or a wrong one.
    """
    split = corpus.document_id.map(new).fillna("train").to_numpy(object)
    asked = choose(corpus.document_id.tolist(), most_documents, seed)
    metadata = corpus["metadata"] if "metadata" in corpus else pd.Series("{}", index=corpus.index)
    columns = (corpus.document_id, corpus.title, corpus.text, metadata)
    documents = [
        Document(name, title, text, language, about)
        for name, title, text, about in (zip(*(each[asked] for each in columns), strict=True) if kinds else ())
    ]
    own = None if terms is None else replace(terms, counts=terms.counts[asked])
    write = None if writer is None else partial(writer.write, seed=seed)
    material = Material(documents, language, question or QuestionOptions(), new, write, own)
    makers = {kind: KINDS[kind].fit(material) for kind in kinds}
    columns_of: dict[str, list[str]] = {name: [] for name in COLUMNS if name != "weight"}
    shown = tqdm(documents, "pseudo-queries", unit="document", disable=not (show_progress and kinds) or None)
    for document, part in zip(shown, split[asked].tolist() if kinds else (), strict=True):
        name = document.document_id
        for kind, make in makers.items():
            found = make(document, views, seed)
            columns_of["query_id"] += [f"{kind}:{place}:{name}" for place in range(len(found))]
            columns_of["text"] += [view.query for view in found]
            columns_of["positive_text"] += [view.positive for view in found]
            for column_name, value in (("document_id", name), ("kind", kind), ("split", part)):
                columns_of[column_name] += [value] * len(found)
    # As Python's own strings for now: to make others of texts that are dropped takes longer than finding out which.
    made = pd.DataFrame(columns_of, dtype=object)
    why = reasons(made, copies, filters or FilterOptions(), barred)
    dropped = _texts(made.assign(reason=why)[why != KEPT], DROPPED)
    kept = _texts(made.assign(weight=1.0)[why == KEPT], COLUMNS)
    counts = {kind: _counted(kind, made, kept, dropped) for kind in kinds}
    summary = {"documents": len(corpus), "new": len(new), "kinds": counts}
    return PseudoQueries(kept, dropped, summary)


def _texts(made: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the named columns, those of strings as pandas' own kind of texts."""
    return pd.DataFrame({
        name: made[name].to_numpy(float) if name == "weight" else column(made[name]) for name in names
    })  # fmt: skip


def _counted(kind: str, made: pd.DataFrame, kept: pd.DataFrame, dropped: pd.DataFrame) -> dict[str, Any]:
    mine = kept[kept.kind == kind]
    return {
        "made": int((made.kind == kind).sum()),
        "kept": len(mine),
        "documents": int(mine.document_id.nunique()),
        "dropped": {str(why): int(n) for why, n in dropped[dropped.kind == kind].reason.value_counts().items()},
    }
