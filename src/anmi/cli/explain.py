# mypy: allow-untyped-decorators
"""``kedro anmi explain``: what each judge said of a query's candidates, and which rule decided on them."""

from __future__ import annotations

import difflib
import heapq
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import belonging, console, echo_json, echo_where, example, load, project, run_option
from anmi.errors import AnmiError, each_text, visible

_WIDTH: Final = 200
_LIKELY: Final = 2000
_SHOWN: Final = (
    "selection", "corpus", "queries", "qrels", "quarantine", "fused_judge", "selection_summary", "related_documents",
)  # fmt: skip


@click.command(
    short_help="Show a query's candidates, and why each was taken or not.",
    epilog=example("kedro anmi explain numpy.abs --top 5"),
)
@click.argument("query_id")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=0), help="Candidates to show.")
@click.option("--doc", "document_id", metavar="ID", help="Show everything about this document instead.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document, whatever --top says.")
@run_option
@env_option
def explain(
    query_id: str, top: int, document_id: str | None, as_json: bool, run_id: str | None, env: str | None
) -> None:
    """Show every candidate of a query, what each judge said, and why it was or was not taken.

    The first --top candidates are shown, and those further down that were taken.
    """
    with project(env, as_json=as_json) as context:
        catalog = belonging(context, *_SHOWN, run_id=run_id)
        corpus, queries = load(catalog, "corpus", "ingestion"), load(catalog, "queries", "ingestion")
        selection = load(catalog, "selection", "mining")
        place = echo_where(context, catalog, "selection", as_json)
        block = find_query(selection, query_id, _set_aside(catalog))
        asked = queries[queries["query_id"] == query_id]
        query = str(asked["text"].iloc[0]) if len(asked) else ""
        found = {"query_id": query_id, "query": query}
        found |= _explained(catalog, block, corpus, query, context.params["seed"])
        if document_id is not None:
            found = _only(found, block, corpus, document_id, catalog, _itself(asked))
        if as_json:
            echo_json(place | found)
        else:
            _print(found, top, document_id)


def _itself(asked: Any) -> str:
    """Return the document that the query is itself; empty where there is none."""
    return str(asked["same_as"].iloc[0]) if len(asked) and "same_as" in asked else ""


def _set_aside(catalog: Any) -> dict[str, str]:
    """Return by its id why a query was set aside when the collection was read."""
    if not catalog.exists("quarantine"):
        return {}
    table = catalog.load("quarantine")
    rows = table[table["kind"] == "query"]
    return dict(zip(rows["id"], rows["reason"], strict=True))


def find_query(shards: Any, query_id: str, set_aside: Mapping[str, str] | None = None) -> Any:
    """Return the block of a query alone.

    Parameters
    ----------
    shards
        The selection.
    query_id
        Of the query.
    set_aside
        By id, why queries were set aside when the collection was read.

    Raises
    ------
    AnmiError
        No shard holds the query; the message says why, or names the nearest ids.
    """
    import numpy as np

    known: set[str] = set()
    for block in shards:
        if (places := np.flatnonzero(block.query_ids == query_id)).size:
            return block.take(places)
        known.update(block.query_ids.tolist())
    if set_aside and query_id in set_aside:
        raise AnmiError(f'query "{query_id}" was set aside when the collection was read: {set_aside[query_id]}')
    if not known:
        from anmi.report.console import NOTHING_MINED

        raise AnmiError(f'there is no query "{query_id}" to explain: {NOTHING_MINED}')
    raise AnmiError(f'the selection has no query "{query_id}": {_nearest(query_id, known, "the selection")}')


def _nearest(name: str, known: Iterable[str], what: str) -> str:
    # Comparing with every id of a large corpus takes minutes; one slip leaves the start and the end as they are.
    likely = heapq.nlargest(_LIKELY, known, key=lambda other: _shared(name, other) + _shared(name[::-1], other[::-1]))
    close = difflib.get_close_matches(name, likely, n=3, cutoff=0.3) or sorted(likely)[:3]
    return f"the nearest are {', '.join(close)}" if close else f"{what} is empty"


def _shared(one: str, other: str) -> int:
    """Length of the start that two ids share."""
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def _explained(catalog: Any, block: Any, corpus: Any, query: str, seed: int) -> dict[str, Any]:
    from anmi.report.explanation import explain, fold_of_query

    fused = catalog.load("fused_judge") if catalog.exists("fused_judge") else {}
    summary = catalog.load("selection_summary") if catalog.exists("selection_summary") else {}
    fold = fold_of_query(fused, query, seed)
    return explain(block, corpus, fused, fold, summary.get("negatives_wanted"))


def _only(
    found: dict[str, Any], block: Any, corpus: Any, document_id: str, catalog: Any, itself: str
) -> dict[str, Any]:
    """Keep what is about one document; say why where it is no candidate.

    Raises
    ------
    AnmiError
        The corpus has no such document; the message names the nearest ids.
    """
    from anmi.report.explanation import not_a_candidate

    mine = [candidate for candidate in found["candidates"] if candidate["document_id"] == document_id]
    reason = None
    if not mine:
        place = corpus.index[corpus["document_id"] == document_id]
        if not len(place):
            near = _nearest(document_id, corpus["document_id"].tolist(), "the corpus")
            raise AnmiError(f'the corpus has no document "{document_id}": {near}')
        from anmi.corpus.related import copies

        group = copies(catalog.load("related_documents")) if catalog.exists("related_documents") else {}
        labels = load(catalog, "qrels", "ingestion")
        labelled = labels.document_id[labels.query_id == found["query_id"]].tolist()
        reason = not_a_candidate(int(place[0]), block, corpus, group, itself, labelled)
    first, *others = found["positives"]
    shown = [first, *(positive for positive in others if positive["document_id"] == document_id)]
    return found | {"positives": shown, "candidates": mine, "not_a_candidate": reason}


def _print(found: dict[str, Any], top: int, document_id: str | None) -> None:
    from anmi.report.explanation import candidates_table, document_table, number

    # What would command the terminal is written out: ids and texts come from the collection.
    found, document_id = each_text(found, visible), each_text(document_id, visible)
    # Where the width is not known, a wide one: rather long lines than cut ones.
    out = console(None if "COLUMNS" in os.environ else _WIDTH, highlight=False, markup=False)
    out.print(f"{found['query_id']}: {found['query']}", style="bold")
    if found["dropped"]:
        rule = f": {found['dropped']['rule']}" if found["dropped"]["rule"] else ""
        out.print(f"dropped by {found['dropped']['step']}{rule}", style="red")
    out.print(", ".join(f"{name}: {number(value)}" for name, value in found["figures"].items()))
    if document_id is None:
        out.print(candidates_table(found, top, out.width))
        return
    if found["not_a_candidate"]:
        out.print(f"{document_id} is not a candidate: {found['not_a_candidate']}", style="yellow")
    others = [positive for positive in found["positives"] if positive["document_id"] == document_id]
    for document in [*found["candidates"], *others]:
        out.print(document_table(found, document))
