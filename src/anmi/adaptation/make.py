"""The module makes, numbers, filters and counts the pseudo-queries of a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_letters
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field
from tqdm.auto import tqdm

from anmi.adaptation.kinds import KINDS, Document, Make, Material, QuestionOptions
from anmi.adaptation.written import Writer
from anmi.corpus.sentences import UNSPACED, count_words
from anmi.corpus.texts import column, normalised
from anmi.ragged import Int32s
from anmi.retrieval.terms import Terms
from anmi.seeds import choose

KEPT: Final = ""
# From ``text, document_id, positive_text`` to the ranks of the documents.
Rank = Callable[[pd.DataFrame], Int32s]
# A title or heading of one word is a query that people type; a sentence or a run of words of one is
# none.
_LETTERS: Final = ascii_letters.encode()
_BLANKS: Final = bytes(code for code in range(128) if chr(code).isspace())
_NAMES: Final = ("title", "heading", "keyphrase", "question", "llm", "doc2query")


class FilterOptions(BaseModel):
    """What a pseudo-query has to be like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    least_words: int = Field(4, ge=1)
    most_words: int = Field(150, ge=1)
    least_positive_words: int = Field(3, ge=1)
    most_documents: int = Field(2, ge=1)
    least_letters: float = Field(0.5, ge=0, le=1)
    round_trip: int | None = Field(None, ge=1, le=100)


def reasons(
    pseudo_queries: pd.DataFrame,
    copies: frozenset[str],
    options: FilterOptions,
    held_out: frozenset[str] = frozenset(),
    rank: Rank | None = None,
) -> pd.Series[str]:
    """Return why each pseudo-query is dropped, empty where it is kept.

    Parameters
    ----------
    pseudo_queries
        ``text, document_id, positive_text, kind, split``.
    copies
        Documents with the text of another one before them: one of a group is enough.
    options
        Bounds.
    held_out
        Normalised texts of dev and test queries.
    rank
        See :func:`anmi.adaptation.round_trip.document_ranks`; unused where the options ask for no
        round trip.

    Returns
    -------
    pandas.Series
        The first of these that holds. ``test_query``: a dev or test query asks the same. ``copy``:
        another document with the same text already has pseudo-queries. ``too_short``, ``too_long``:
        the query. ``little_left``: the document without it. ``code_or_table``: too few letters.
        ``boilerplate``: several documents ask it. ``repeats``: the document still says it.
        ``not_found``: a search does not find the document; in training only, since measuring what
        is found already would say nothing.
    """
    texts = pseudo_queries.text
    positives = pseudo_queries.positive_text
    kinds = pseudo_queries.kind
    document_ids = pseudo_queries.document_id
    forms = [normalised(text) for text in texts]
    words = np.array([count_words(text) for text in texts])
    # The copies of a document ask what it asks, and are no reason to drop it.
    is_copy = document_ids.isin(copies).to_numpy(bool)
    askers = {*zip(np.array(forms, object)[~is_copy], document_ids[~is_copy], strict=True)}
    documents_asking = Counter(form for form, _ in askers)
    repeats = [
        kind != "keyphrase" and _repeats(positive, form)
        for kind, form, positive in zip(kinds, forms, positives, strict=True)
    ]
    least_words = np.where(kinds.isin(_NAMES), 1, options.least_words)
    is_dropped = {
        "test_query": [form in held_out for form in forms],
        "copy": is_copy,
        "too_short": words < least_words,
        "too_long": words > options.most_words,
        "little_left": [not _has_words(text, options.least_positive_words) for text in positives],
        "code_or_table": [_letters(text) < options.least_letters for text in texts],
        "boilerplate": [documents_asking[form] > options.most_documents for form in forms],
        "repeats": repeats,
        KEPT: np.ones(len(forms), bool),
    }
    first_reason = np.argmax(np.array([*is_dropped.values()], bool), axis=0)
    reason = pd.Series(np.array([*is_dropped], object)[first_reason], index=pseudo_queries.index)
    if rank is not None and options.round_trip is not None:
        in_training = pseudo_queries[(reason == KEPT) & (pseudo_queries.split == "train")]
        is_late = rank(in_training) > options.round_trip
        reason[in_training.index[is_late]] = "not_found"
    return reason


def _repeats(text: str, form: str) -> bool:
    """Tell whether a text, once normalised, holds a normalised run of words.

    Examples
    --------
    >>> _repeats("They say: it rains, all day.", "it rains all day")
    True
    """
    if text.isascii() and form.isascii():
        # To normalise takes far longer than to see that one of the words is missing, most likely
        # one of the longest.
        lowered = text.lower()
        if not all(word in lowered for word in sorted(form.split(), key=len, reverse=True)):
            return False
    return _holds(normalised(text), form)


def _holds(text: str, form: str) -> bool:
    """Tell whether a text holds a run of words, both normalised.

    Examples
    --------
    >>> _holds("it rains today", "rain"), _holds("今天下雨了", "下雨")
    (False, True)
    """
    before, after = (
        "" if UNSPACED.match(character) else " " for character in (form[:1], form[-1:])
    )
    return f"{before}{form}{after}" in f" {text} "


def _has_words(text: str, count: int) -> bool:
    """Tell whether a text has at least so many words; a long one is not counted to its end."""
    if text.isascii():
        return len(text.split(maxsplit=count)) >= count
    return count_words(text) >= count


def _letters(text: str) -> float:
    """Return the share of letters, with their marks, among what is no white-space."""
    if text.isascii():
        filled = text.encode().translate(None, _BLANKS)
        return (len(filled) - len(filled.translate(None, _LETTERS))) / max(len(filled), 1)
    solid = "".join(text.split())
    letters = sum(character.isalpha() or not character.isascii() for character in solid)
    return letters / max(len(solid), 1)


COLUMNS: Final = ("query_id", "text", "document_id", "positive_text", "kind", "weight", "split")
DROPPED: Final = ("query_id", "text", "document_id", "kind", "reason")


@dataclass(frozen=True)
class PseudoQueries:
    """What was made of a corpus.

    Attributes
    ----------
    queries
        Those that are kept: :data:`COLUMNS`.
    dropped
        :data:`DROPPED`.
    summary
        ``documents``, ``new``, and under ``kinds`` for each how many were ``made``, ``kept``,
        ``dropped`` by reason, and of how many ``documents`` there are any.
    """

    queries: pd.DataFrame
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
    held_out: frozenset[str] = frozenset(),
    filters: FilterOptions | None = None,
    question: QuestionOptions | None = None,
    writer: Writer | None = None,
    rank: Rank | None = None,
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
        By document id the split, ``dev`` or ``test``, of documents that training must not see; the
        others are for it.
    copies, held_out, rank
        See :func:`anmi.adaptation.make.reasons`.
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
        What one document gives depends on no other document, but for boiler-plate and the idf of
        keyphrases.

    Raises
    ------
    AnmiError
        The kind ``llm`` has no language model or a wrong one.
    """
    splits = corpus.document_id.map(new).fillna("train").to_numpy(object)
    is_asked = choose(corpus.document_id.tolist(), most_documents, seed) & bool(kinds)
    documents = _documents(corpus[is_asked], language)
    write = None if writer is None else partial(writer.write, seed=seed)
    material = Material(
        documents,
        language,
        question or QuestionOptions(),
        new,
        write,
        None if terms is None else replace(terms, counts=terms.counts[is_asked]),
    )
    makers = {kind: KINDS[kind](material) for kind in kinds}
    disable = not (show_progress and kinds) or None
    progress = tqdm(documents, "pseudo-queries", unit="document", disable=disable)
    pseudo_queries = _asked(
        zip(progress, splits[is_asked].tolist(), strict=True),
        makers,
        views,
        seed,
    )
    reason = reasons(pseudo_queries, copies, filters or FilterOptions(), held_out, rank)
    pseudo_queries = pseudo_queries.assign(reason=reason, weight=1.0)
    counts = {kind: _counted(pseudo_queries[pseudo_queries.kind == kind]) for kind in kinds}
    return PseudoQueries(
        _texts(pseudo_queries[reason == KEPT], COLUMNS),
        _texts(pseudo_queries[reason != KEPT], DROPPED),
        {"documents": len(corpus), "new": len(new), "kinds": counts},
    )


def _asked(
    documents: Iterable[tuple[Document, str]],
    makers: Mapping[str, Make],
    views: int,
    seed: int,
) -> pd.DataFrame:
    """Return what documents, each with its split, ask: :data:`COLUMNS` without ``weight``.

    Cells are Python's own strings for now: to make others of texts that are dropped takes longer
    than finding out which.
    """
    rows: dict[str, list[str]] = {name: [] for name in COLUMNS if name != "weight"}
    for document, split in documents:
        document_id = document.document_id
        for kind, make in makers.items():
            document_views = make(document, views, seed)
            count = len(document_views)
            rows["query_id"] += [f"{kind}:{number}:{document_id}" for number in range(count)]
            rows["text"] += [view.query for view in document_views]
            rows["positive_text"] += [view.positive for view in document_views]
            rows["document_id"] += [document_id] * count
            rows["kind"] += [kind] * count
            rows["split"] += [split] * count
    return pd.DataFrame(rows, dtype=object)


def _documents(corpus: pd.DataFrame, language: str) -> list[Document]:
    metadata = corpus["metadata"] if "metadata" in corpus else ["{}"] * len(corpus)
    columns = (corpus.document_id, corpus.title, corpus.text, metadata)
    return [
        Document(document_id, title, text, language, about)
        for document_id, title, text, about in zip(*columns, strict=True)
    ]


def _texts(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the named columns, those of strings as pandas' own kind of texts."""
    return pd.DataFrame(
        {
            name: table[name].to_numpy(float) if name == "weight" else column(table[name])
            for name in names
        }
    )


def _counted(of_kind: pd.DataFrame) -> dict[str, Any]:
    is_kept = of_kind.reason == KEPT
    dropped = of_kind.reason[~is_kept].value_counts()
    return {
        "made": len(of_kind),
        "kept": int(is_kept.sum()),
        "documents": int(of_kind.document_id[is_kept].nunique()),
        "dropped": {str(reason): int(count) for reason, count in dropped.items()},
    }
