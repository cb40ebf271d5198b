"""The module makes, numbers, filters and counts the pseudo-queries of a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_letters
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field
from tqdm.auto import tqdm

from anmi.adaptation.kinds import KINDS, Document, Material, QuestionOptions
from anmi.adaptation.written import Writer
from anmi.corpus.sentences import UNSPACED, count_words
from anmi.corpus.texts import column, normalised
from anmi.ragged import Bools, Int32s
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
    made: pd.DataFrame,
    copies: frozenset[str],
    options: FilterOptions,
    held_out: frozenset[str] = frozenset(),
    rank: Rank | None = None,
) -> pd.Series[str]:
    """Return why each pseudo-query is dropped, empty where it is kept.

    Parameters
    ----------
    made
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
        of a document of that text there are pseudo-queries already. ``too_short``, ``too_long``:
        the query. ``little_left``: the document without it. ``code_or_table``: too few letters.
        ``boilerplate``: several documents ask it. ``repeats``: the document still says it.
        ``not_found``: a search does not find the document; in training only, since measuring what
        is found already would say nothing.
    """
    forms = [normalised(text) for text in made.text]
    words = np.array([count_words(text) for text in made.text])
    left = np.array(
        [not _has_words(text, options.least_positive_words) for text in made.positive_text], bool
    )
    # The copies of a document ask what it asks, and are no reason to drop it.
    originals = {
        pair for pair in zip(forms, made.document_id, strict=True) if pair[1] not in copies
    }
    asked = Counter(form for form, _ in originals)
    shown = zip(made.kind, forms, made.positive_text, strict=True)
    repeats = [kind != "keyphrase" and _repeats(text, form) for kind, form, text in shown]
    least = np.where(made.kind.isin(_NAMES), 1, options.least_words)
    found: dict[str, Bools] = {
        "test_query": np.array([form in held_out for form in forms], bool),
        "copy": made.document_id.isin(copies).to_numpy(bool),
        "too_short": words < least,
        "too_long": words > options.most_words,
        "little_left": left,
        "code_or_table": np.array(
            [_letters(text) < options.least_letters for text in made.text], bool
        ),
        "boilerplate": np.array([asked[form] > options.most_documents for form in forms], bool),
        "repeats": np.array(repeats, bool),
    }
    names = np.array([*found, KEPT], dtype=object)
    first = np.argmax(np.array([*found.values(), np.ones(len(made), bool)]), axis=0)
    why = pd.Series(names[first], index=made.index)
    if rank is not None and options.round_trip is not None:
        in_training = made[(why == KEPT) & (made.split == "train")]
        is_late = rank(in_training) > options.round_trip
        why[in_training.index[is_late]] = "not_found"
    return why


def _repeats(text: str, form: str) -> bool:
    """Tell whether a text, once normalised, holds a normalised run of words.

    Examples
    --------
    >>> _repeats("They say: it rains, all day.", "it rains all day"), _repeats("It rained all day.", "it rains")
    (True, False)
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
    >>> _holds("it rains today", "rain"), _holds("today it rains", "it rains"), _holds("今天下雨了", "下雨")
    (False, True, True)
    """
    before, after = (
        "" if UNSPACED.match(character) else " " for character in (form[:1], form[-1:])
    )
    return f"{before}{form}{after}" in f" {text} "


def _has_words(text: str, least: int) -> bool:
    """Tell whether a text has at least so many words; a long one is not counted to its end."""
    return (
        len(text.split(maxsplit=least)) >= least if text.isascii() else count_words(text) >= least
    )


def _letters(text: str) -> float:
    """Return the share of letters, with their marks, among what is no white-space."""
    if text.isascii():
        filled = text.encode().translate(None, _BLANKS)
        return (len(filled) - len(filled.translate(None, _LETTERS))) / max(len(filled), 1)
    solid = "".join(text.split())
    return sum(character.isalpha() or not character.isascii() for character in solid) / max(
        len(solid), 1
    )


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
        ``documents``, ``new``, and under ``kinds`` for each how many were ``made``, ``kept``,
        ``dropped`` by reason, and of how many ``documents`` there are any.
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
    split = corpus.document_id.map(new).fillna("train").to_numpy(object)
    asked = choose(corpus.document_id.tolist(), most_documents, seed)
    metadata = corpus["metadata"] if "metadata" in corpus else pd.Series("{}", index=corpus.index)
    columns = (corpus.document_id, corpus.title, corpus.text, metadata)
    documents = [
        Document(name, title, text, language, about)
        for name, title, text, about in (
            zip(*(each[asked] for each in columns), strict=True) if kinds else ()
        )
    ]
    own = None if terms is None else replace(terms, counts=terms.counts[asked])
    write = None if writer is None else partial(writer.write, seed=seed)
    material = Material(documents, language, question or QuestionOptions(), new, write, own)
    makers = {kind: KINDS[kind](material) for kind in kinds}
    columns_of: dict[str, list[str]] = {name: [] for name in COLUMNS if name != "weight"}
    shown = tqdm(
        documents, "pseudo-queries", unit="document", disable=not (show_progress and kinds) or None
    )
    for document, part in zip(shown, split[asked].tolist() if kinds else (), strict=True):
        name = document.document_id
        for kind, make in makers.items():
            found = make(document, views, seed)
            columns_of["query_id"] += [f"{kind}:{place}:{name}" for place in range(len(found))]
            columns_of["text"] += [view.query for view in found]
            columns_of["positive_text"] += [view.positive for view in found]
            for column_name, value in (("document_id", name), ("kind", kind), ("split", part)):
                columns_of[column_name] += [value] * len(found)
    # As Python's own strings for now: to make others of texts that are dropped takes longer than
    # finding out which.
    made = pd.DataFrame(columns_of, dtype=object)
    why = reasons(made, copies, filters or FilterOptions(), held_out, rank)
    dropped = _texts(made.assign(reason=why)[why != KEPT], DROPPED)
    kept = _texts(made.assign(weight=1.0)[why == KEPT], COLUMNS)
    counts = {kind: _counted(kind, made, kept, dropped) for kind in kinds}
    return PseudoQueries(
        kept, dropped, {"documents": len(corpus), "new": len(new), "kinds": counts}
    )


def _texts(made: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the named columns, those of strings as pandas' own kind of texts."""
    return pd.DataFrame(
        {
            name: made[name].to_numpy(float) if name == "weight" else column(made[name])
            for name in names
        }
    )


def _counted(
    kind: str, made: pd.DataFrame, kept: pd.DataFrame, dropped: pd.DataFrame
) -> dict[str, Any]:
    mine = kept[kept.kind == kind]
    return {
        "made": int((made.kind == kind).sum()),
        "kept": len(mine),
        "documents": int(mine.document_id.nunique()),
        "dropped": {
            str(why): int(n)
            for why, n in dropped[dropped.kind == kind].reason.value_counts().items()
        },
    }
