"""``kedro anmi explain``: what judges said of a query's candidates, and which rule decided."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from anmi.cli.common import Saved, command, console, run_option
from anmi.errors import AnmiError, each_text, nearest, visible

_WIDTH: Final = 200
_SHOWN: Final = (
    "selection",
    "corpus",
    "queries",
    "qrels",
    "quarantine",
    "fused_judge",
    "selection_summary",
    "related_documents",
)


@command(
    "kedro anmi explain numpy.abs --top 5",
    short_help="Show a query's candidates, and why each was taken or not.",
)
@click.argument("query")
@click.option(
    "--top", default=20, show_default=True, type=click.IntRange(min=0), help="Candidates to show."
)
@click.option(
    "--doc", "document_id", metavar="ID", help="Show everything about this document instead."
)
@run_option
def explain(context: Any, query: str, top: int, document_id: str | None, run_id: str | None) -> Any:
    """Show a query's candidates, each judge's score, and why each candidate was taken or not.

    QUERY is the id of a query or its text. It shows the first --top candidates and all that were
    taken; --json prints all.
    """
    from anmi.report.explanation import explain

    saved = Saved(context, *_SHOWN, run_id=run_id)
    corpus, queries = (saved.load(name, "ingestion") for name in ("corpus", "queries"))
    selection = saved.load("selection", "mining")
    place = saved.echo_where("selection")
    query_id = _query_id(query, queries)
    block = _block(selection, query_id, saved)
    query_rows = queries[queries["query_id"] == query_id]
    text = str(query_rows["text"].iloc[0]) if len(query_rows) else ""
    fused, summary = (saved.load(name, default={}) for name in ("fused_judge", "selection_summary"))
    decisions = explain(
        block, corpus, fused, text, context.params["seed"], summary.get("negatives_wanted")
    )
    document = {"query_id": query_id, "query": text} | decisions
    if document_id is not None:
        itself = (
            str(query_rows["same_as"].iloc[0])
            if len(query_rows) and "same_as" in query_rows
            else ""
        )
        document = _only(document, block, corpus, document_id, saved, itself)
    _print(document, top, document_id)
    return place | document


def _query_id(query: str, queries: Any) -> str:
    """Return the id of the first query of a text; what is no query's text is taken for an id."""
    from anmi.corpus.texts import normalised

    if (queries["query_id"] == query).any():
        return query
    is_of_text = queries["text"].map(normalised) == normalised(query)
    return str(next(iter(queries["query_id"][is_of_text]), query))


def _block(shards: Any, query_id: str, saved: Saved) -> Any:
    """Return the block of a query alone; an error says why no shard holds it."""
    import numpy as np

    ids: set[str] = set()
    for block in shards:
        if (places := np.flatnonzero(block.query_ids == query_id)).size:
            return block.take(places)
        ids.update(block.query_ids.tolist())
    gone = saved.load("quarantine")
    for row in () if gone is None else gone[gone.kind == "query"].itertuples():
        if row.id == query_id:
            raise AnmiError(
                f'query "{query_id}" was set aside when the collection was read: {row.reason}'
            )
    if not ids:
        from anmi.report.console import NOTHING_MINED

        raise AnmiError(f'there is no query "{query_id}" to explain: {NOTHING_MINED}')
    raise AnmiError(f'the selection has no query "{query_id}": {nearest(query_id, ids)}')


def _only(
    decisions: dict[str, Any], block: Any, corpus: Any, document_id: str, saved: Saved, itself: str
) -> dict[str, Any]:
    """Keep what is about one document; say why where it is no candidate."""
    from anmi.corpus.related import copies
    from anmi.report.explanation import not_a_candidate

    mine = [
        candidate
        for candidate in decisions["candidates"]
        if candidate["document_id"] == document_id
    ]
    reason = None
    if not mine:
        place = corpus.index[corpus["document_id"] == document_id]
        if not len(place):
            near = nearest(document_id, corpus["document_id"].tolist())
            raise AnmiError(f'the corpus has no document "{document_id}": {near}')
        related = saved.load("related_documents")
        labels = saved.load("qrels", "ingestion")
        group = {} if related is None else copies(related)
        labelled = labels.document_id[labels.query_id == decisions["query_id"]].tolist()
        reason = not_a_candidate(int(place[0]), block, corpus, group, itself, labelled)
    first, *others = decisions["positives"]
    shown = [first, *(positive for positive in others if positive["document_id"] == document_id)]
    return decisions | {"positives": shown, "candidates": mine, "not_a_candidate": reason}


def _print(decisions: dict[str, Any], top: int, document_id: str | None) -> None:
    from anmi.report.explanation import candidates_table, document_table, number

    # What would command the terminal is written out: ids and texts come from the collection.
    decisions = each_text(decisions, visible)
    document_id = each_text(document_id, visible)
    # Where the width is not known, a wide one: rather long lines than cut ones.
    out = console(None if "COLUMNS" in os.environ else _WIDTH, highlight=False, markup=False)
    out.print(f"{decisions['query_id']}: {decisions['query']}", style="bold")
    if dropped := decisions["dropped"]:
        out.print(
            ": ".join(filter(None, (f"dropped by {dropped['step']}", dropped["rule"]))), style="red"
        )
    out.print(", ".join(f"{name}: {number(value)}" for name, value in decisions["figures"].items()))
    if document_id is None:
        out.print(candidates_table(decisions, top, out.width))
        return
    if decisions["not_a_candidate"]:
        out.print(
            f"{document_id} is not a candidate: {decisions['not_a_candidate']}", style="yellow"
        )
    for document in [*decisions["candidates"], *decisions["positives"]]:
        if document["document_id"] == document_id:
            out.print(document_table(decisions, document))
