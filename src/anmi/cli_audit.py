# mypy: allow-untyped-decorators
"""``kedro anmi audit``: what the last audit found."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Final

import click
from kedro.framework.cli.utils import env_option

_WIDTH: Final = 120


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as one JSON document.")
@env_option
def audit(as_json: bool, env: str | None) -> None:
    """Print what the last audit found of recipes and judges."""
    from anmi.cli import _context, _saved, _silence, belonging

    with _silence() if as_json else nullcontext(), _context(env) as context:
        catalog = belonging(context, "audit_summary", "audit_recipes", "audit_judges", "audit_report")
        summary = _saved(catalog, "audit_summary", "audit")
        if as_json:
            click.echo(json.dumps(summary, indent=2, ensure_ascii=False))
            return
        from rich.console import Console

        from anmi.report.audit_console import judges_table, recipes_table

        console = Console(width=None if sys.stdout.isatty() else _WIDTH)
        console.print(recipes_table(catalog.load("audit_recipes"), summary))
        console.print(judges_table(catalog.load("audit_judges")))
        for name, reason in summary["failed"].items():
            click.echo(f"{name} cannot be run on this collection: {reason}")
        # Not through the console, which would break a long path.
        click.echo(f"{'report':<18} {catalog.get('audit_report').place()}")
