# mypy: allow-untyped-decorators
"""``kedro anmi search``: ask what the last run trained, and see which part found what."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import (
    belonging,
    console,
    echo_json,
    echo_where,
    example,
    json_option,
    load,
    plain_errors,
    project,
    run_option,
    silence,
)
from anmi.errors import AnmiError


@click.command(
    short_help="Search the collection by what the last run trained.",
    epilog=example('kedro anmi search "mean of an array ignoring nan" --k 3'),
)
@click.argument("questions", nargs=-1)
@click.option("--k", default=10, show_default=True, help="Documents for each question.")
@click.option(
    "--system", default="hybrid", show_default=True, help="hybrid, bm25, or a trained retriever alone: dense or sparse."
)
@click.option("--file", type=click.File(encoding="utf-8"), help="Ask every line of a file; - reads the standard input.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="A search folder, instead of the one that the last run made."
)
@run_option
@json_option
@env_option
def search(
    questions: tuple[str, ...],
    k: int,
    system: str,
    file: TextIO | None,
    folder: Path | None,
    run_id: str | None,
    as_json: bool,
    env: str | None,
) -> None:
    """Search the collection by what the last run trained: one QUESTION or several."""
    with silence() if as_json else nullcontext(), plain_errors():
        asked = [*questions, *(line.strip() for line in file or () if line.strip())]
        if not asked:
            raise AnmiError(
                'there is no question: ask one, as in `kedro anmi search "your question"`, or give a --file'
            )
        if folder is not None:
            from anmi.search import HybridSearch

            _answer(HybridSearch.load(folder), asked, k, system, as_json, {})
            return
    with project(env, as_json=as_json) as context:
        catalog = belonging(context, "search_index", run_id=run_id)
        found = load(catalog, "search_index", "evaluation")
        place = echo_where(context, catalog, "search_index", as_json)
        _answer(found, asked, k, system, as_json, place)


def _answer(opened: Any, questions: list[str], k: int, system: Any, as_json: bool, place: dict[str, str]) -> None:
    found = opened.search(questions, k, system)
    if as_json:
        echo_json([
            place | {"question": question, "system": system, "hits": [hit.as_dict() for hit in hits]}
            for question, hits in zip(questions, found, strict=True)
        ])  # fmt: skip
        return
    from anmi.report.console import hits_table

    out = console(160, highlight=False)
    for question, hits in zip(questions, found, strict=True):
        if hits:
            out.print(hits_table(question, hits, list(opened.retrievers)))
        else:
            out.print(f'no document shares a term with "{question}"', markup=False)
