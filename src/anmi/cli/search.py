"""``kedro anmi search``: ask what the last run trained, and see which part found what."""

from __future__ import annotations

from typing import Any

import click

from anmi.cli.common import SEARCHES, Saved, command, console, run_option
from anmi.errors import AnmiError, visible


@command(
    'kedro anmi search "mean of an array ignoring nan" --k 3',
    short_help="Search the collection of the last run.",
)
@click.argument("questions", nargs=-1)
@click.option("--k", default=10, show_default=True, help="Documents for each question.")
@click.option(
    "--system",
    default="hybrid",
    show_default=True,
    help="hybrid, or a part of it alone: bm25, dense, sparse, corpus or network.",
)
@run_option
def search(
    context: Any, questions: tuple[str, ...], k: int, system: str, run_id: str | None
) -> Any:
    """Search the collection of the last run, or of --run: one QUESTION or several."""
    from anmi.report.console import hits_table

    if not questions:
        raise AnmiError('there is no question: ask one, as in `kedro anmi search "your question"`')
    saved = Saved(context, *SEARCHES, run_id=run_id)
    name = saved.first(*SEARCHES)
    opened = saved.load(name, "evaluation")
    of = saved.echo_where(name) | {"system": system}
    answers = list(zip(questions, opened.search(list(questions), k, system), strict=True))
    for question, hits in answers:
        if hits:
            console(160, highlight=False).print(hits_table(question, hits, opened.parts))
        else:
            click.echo(visible(f'no document shares a term with "{question}"'))
    return [
        {**of, "question": query, "hits": [hit.as_dict() for hit in hits]}
        for query, hits in answers
    ]
