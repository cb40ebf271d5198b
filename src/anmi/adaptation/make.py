"""Pseudo-queries of a corpus: made, numbered, filtered and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pandas as pd
from tqdm.auto import tqdm

from anmi.adaptation.filters import KEPT, FilterOptions, reasons
from anmi.adaptation.held_out import splits
from anmi.adaptation.kinds import KINDS, Document, Material
from anmi.adaptation.views import QuestionOptions
from anmi.adaptation.written import Writer
from anmi.corpus.splits import choose
from anmi.corpus.texts import document_texts

COLUMNS: Final = ("query_id", "text", "document_id", "positive_text", "kind", "weight", "split")
# Also where there are no rows to tell them by.
_TYPES: Final = {name: "float64" if name == "weight" else "str" for name in COLUMNS}
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
        ``documents``, ``held_out``, and under ``kinds`` for each how many were ``made``, ``kept``, ``dropped`` by
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
    views: int = 5,
    held_out: float = 0.1,
    most_documents: int = 100_000,
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
        Keys the draws of every document and which documents are held out.
    views
        Pseudo-queries of a kind and document, at most.
    held_out
        Share of the documents whose pseudo-queries are for dev and test; see :func:`anmi.adaptation.held_out.splits`.
    most_documents
        Documents that are asked at most, chosen by a hash of their ids.
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
    texts = document_texts(corpus)
    split = splits(texts, seed, held_out)
    asked = choose(corpus.document_id.tolist(), most_documents, seed)
    metadata = corpus["metadata"] if "metadata" in corpus else pd.Series("{}", index=corpus.index)
    columns = (corpus.document_id, corpus.title, corpus.text, metadata)
    documents = [
        Document(name, title, text, language, about)
        for name, title, text, about in (zip(*(column[asked] for column in columns), strict=True) if kinds else ())
    ]
    write = None if writer is None else partial(writer.write, seed=seed)
    material = Material(documents, language, question or QuestionOptions(), write)
    makers = {kind: KINDS[kind].fit(material) for kind in kinds}
    rows: list[tuple[Any, ...]] = []
    shown = tqdm(documents, "pseudo-queries", unit="document", disable=not (show_progress and kinds))
    for document, part in zip(shown, split[asked].tolist() if kinds else (), strict=True):
        name = document.document_id
        for kind, make in makers.items():
            rows += [
                (f"{kind}:{place}:{name}", view.query, name, view.positive, kind, 1.0, part)
                for place, view in enumerate(make(document, views, seed))
            ]
    # As Python's own strings for now: to make others of texts that are dropped takes longer than finding out which.
    made = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    why = reasons(made, copies, filters or FilterOptions(), barred)
    dropped = made.assign(reason=why)[list(DROPPED)][why != KEPT].astype("str")
    kept = made[why == KEPT].reset_index(drop=True).astype(_TYPES)
    counts = {kind: _counted(kind, made, kept, dropped) for kind in kinds}
    summary = {"documents": len(corpus), "held_out": int((split != "train").sum()), "kinds": counts}
    return PseudoQueries(kept, dropped.reset_index(drop=True), summary)


def _counted(kind: str, made: pd.DataFrame, kept: pd.DataFrame, dropped: pd.DataFrame) -> dict[str, Any]:
    mine = kept[kept.kind == kind]
    return {
        "made": int((made.kind == kind).sum()),
        "kept": len(mine),
        "documents": int(mine.document_id.nunique()),
        "dropped": {str(why): int(n) for why, n in dropped[dropped.kind == kind].reason.value_counts().items()},
    }
