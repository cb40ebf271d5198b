# mypy: allow-untyped-decorators
"""``kedro anmi negatives``: what the last mining run brought."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.errors import AnmiError

KEYS: Final = (
    "recipe", "rows", "dev_rows", "negatives_wanted", "coverage", "by_source", "origins", "funnel", "expected", "leak",
    "paths",
)  # fmt: skip
_PLACES: Final = ("negatives", "training_rows")
_WIDTH: Final = 120


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as one JSON document.")
@env_option
def negatives(as_json: bool, env: str | None) -> None:
    """Print what the last mining run brought: how many negatives, from where, and what became of the rest."""
    from anmi.cli import _context, _saved, _silence, belonging

    with _silence() if as_json else nullcontext(), _context(env) as context:
        catalog = belonging(context, "selection_summary", *_PLACES)
        summary = _saved(catalog, "selection_summary", "mining")
        if "by_source" not in summary:
            raise AnmiError(
                "the last mining run was made by an earlier version, which counted nothing by source: "
                "run `kedro run --pipelines mining` again"
            )
        found = {key: summary.get(key) for key in KEYS} | {"paths": _places(catalog)}
        if as_json:
            click.echo(json.dumps(found, indent=2, ensure_ascii=False))
            return
        _print(found)


def _places(catalog: Any) -> dict[str, str]:
    names = [name for name in _PLACES if catalog.exists(name)]
    return {name: catalog.get(name).place() for name in names}


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    from anmi.report.console import rejections_table
    from anmi.report.leak import leak_lines
    from anmi.report.negatives_console import dropped_table, expected_sentence, origins_table, source_table

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(source_table(found["by_source"]))
    console.print(rejections_table(found["funnel"]))
    console.print(origins_table(found["origins"]))
    dropped = dropped_table(found["funnel"])
    if dropped is not None:
        console.print(dropped)
    click.echo(
        f"recipe {found['recipe']}: {found['rows']:,} rows, {found['coverage']:.1%} of them with all "
        f"{found['negatives_wanted']} negatives"
    )
    if found["dev_rows"]:
        click.echo(f"and {found['dev_rows']:,} rows of dev queries for a refit, which are counted nowhere else here")
    if expected := expected_sentence(found["expected"]):
        click.echo(expected)
    for line in leak_lines(found["leak"] or {}):
        click.echo(line)
    for name, place in found["paths"].items():
        # Not through the console, which would break a long path.
        click.echo(f"{name.replace('_', ' '):<18} {place}")
