# mypy: allow-untyped-decorators
"""``kedro anmi negatives``: what the last mining run brought."""

from __future__ import annotations

from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import belonging, console, echo_json, echo_places, example, json_option, load, places, project
from anmi.errors import AnmiError

KEYS: Final = (
    "recipe", "rows", "dev_rows", "negatives_wanted", "coverage", "by_source", "origins", "funnel", "expected",
    "false_negatives", "paths",
)  # fmt: skip
_PLACES: Final = ("negatives", "training_rows")


@click.command(
    short_help="Print what the last mining brought, and what it rejected.", epilog=example("kedro anmi negatives")
)
@json_option
@env_option
def negatives(as_json: bool, env: str | None) -> None:
    """Print what the last mining run brought: how many negatives, from where, and what became of the rest."""
    with project(env, as_json=as_json) as context:
        catalog = belonging(context, "selection_summary", *_PLACES)
        summary = load(catalog, "selection_summary", "mining")
        if "by_source" not in summary:
            raise AnmiError(
                "the last mining run was made by an earlier version, which counted nothing by source: "
                "run `kedro run --pipelines mining` again"
            )
        found = {key: summary.get(key) for key in KEYS} | {"paths": places(catalog, *_PLACES)}
        if as_json:
            echo_json(found)
            return
        _print(found)


def _print(found: dict[str, Any]) -> None:
    from anmi.report.console import NOTHING_MINED, rejections_table
    from anmi.report.false_negatives import false_negatives_lines
    from anmi.report.negatives_console import dropped_table, expected_sentence, origins_table, source_table

    if not any(row["candidates"] for row in found["funnel"]):
        click.echo(NOTHING_MINED)
        return
    out = console()
    out.print(source_table(found["by_source"]))
    out.print(rejections_table(found["funnel"]))
    out.print(origins_table(found["origins"]))
    dropped = dropped_table(found["funnel"])
    if dropped is not None:
        out.print(dropped)
    click.echo(
        f"recipe {found['recipe']}: {found['rows']:,} rows, {found['coverage']:.1%} of them with all "
        f"{found['negatives_wanted']} negatives"
    )
    if found["dev_rows"]:
        click.echo(f"and {found['dev_rows']:,} rows of dev queries for a refit, which are counted nowhere else here")
    if expected := expected_sentence(found["expected"]):
        click.echo(expected)
    for line in false_negatives_lines(found["false_negatives"] or {}):
        click.echo(line)
    echo_places(found["paths"])
