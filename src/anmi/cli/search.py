# mypy: allow-untyped-decorators
"""``kedro anmi search``: ask what the last run trained, and see which part found what."""

from __future__ import annotations

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import Saved, console, echo_json, example, json_option, project, run_option
from anmi.errors import AnmiError, visible


@click.command(
    short_help="Search the collection by what the last run trained.",
    epilog=example('kedro anmi search "mean of an array ignoring nan" --k 3'),
)
@click.argument("questions", nargs=-1)
@click.option("--k", default=10, show_default=True, help="Documents for each question.")
@click.option(
    "--system", default="hybrid", show_default=True, help="hybrid, bm25, or a trained retriever alone: dense or sparse."
)
@run_option
@json_option
@env_option
def search(questions: tuple[str, ...], k: int, system: str, run_id: str | None, as_json: bool, env: str | None) -> None:
    """Search the collection by what the last run trained: one QUESTION or several."""
    with project(env, as_json=as_json) as context:
        if not questions:
            raise AnmiError('there is no question: ask one, as in `kedro anmi search "your question"`')
        saved = Saved(context, "search_index", run_id=run_id)
        opened = saved.load("search_index", "evaluation")
        place = saved.echo_where("search_index", as_json=as_json)
        found = zip(questions, opened.search(list(questions), k, system), strict=True)
        if as_json:
            of = place | {"system": system}
            echo_json([{**of, "question": asked, "hits": [hit.as_dict() for hit in hits]} for asked, hits in found])
            return
        from anmi.report.console import hits_table

        for question, hits in found:
            if hits:
                console(160, highlight=False).print(hits_table(question, hits, list(opened.retrievers)))
            else:
                click.echo(visible(f'no document shares a term with "{question}"'))
