"""A mark of what somebody asked becomes a label of a query, or a question of the next run."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import pandas as pd

from anmi.corpus.marks import Mark, Relevance, current_marks, question_of, questions
from anmi.evaluation.generalisation import FEW
from anmi.serve.run import Run

_EVERY: Final = 5


class TypedQuery(NamedTuple):
    """What a typed text is to a run: one of its queries, or a question of its own.

    Attributes
    ----------
    query_id
        Of the query, or of the question.
    split
        That the query has, or that the question gets.
    is_question
        Whether the text is no query of the collection.
    """

    query_id: str
    split: str | None
    is_question: bool


def typed_query(run: Run, log: list[Mark], text: str) -> TypedQuery:
    """Return what a text is to a run and to the marks so far."""
    splits = questions(log).set_index("query_id")["split"]
    query_id, split = run.query_of(text)
    has_words = bool(question_of(text)[1])
    is_question = has_words and (split is None or query_id in splits.index)
    if is_question:
        split = splits.get(query_id, _next_split(log, splits))
    return TypedQuery(query_id, split, is_question)


def _next_split(log: list[Mark], splits: pd.Series) -> str:
    """Return the split of a new question: test until 20 can measure, then every fifth time."""
    table = current_marks(log)
    answered = splits[splits.index.isin(table["query_id"][table["relevance"] == 1])]
    few = (answered == "test").sum() < FEW
    return "test" if few or len(answered) % _EVERY == _EVERY - 1 else "train"


def mark_of(
    run: Run,
    log: list[Mark],
    text: str,
    document_id: str,
    relevance: Relevance | None,
    by: str,
) -> Mark:
    """Return the mark of a document for a typed text, which becomes a question where it is new.

    Raises
    ------
    AnmiError
        The pair may not be marked, see :meth:`anmi.serve.run.Run.check_pair`.
    """
    query = typed_query(run, log, text)
    question_ids = {query.query_id} if query.is_question else set()
    run.check_pair(query.query_id, document_id, question_ids)
    mark = Mark(query.query_id, document_id, relevance, by)
    if not query.is_question:
        return mark
    return replace(mark, question=question_of(text)[1], split=query.split or "")
