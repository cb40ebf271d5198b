# mypy: allow-untyped-decorators
"""``kedro anmi ablation``: what the last ablation found."""

from __future__ import annotations

import json
from contextlib import nullcontext

import click
from kedro.framework.cli.utils import env_option


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON document.")
@env_option
def ablation(as_json: bool, env: str | None) -> None:
    """Print the table of the last ablation."""
    from anmi.cli import _context, _saved, _silence, belonging

    with _silence() if as_json else nullcontext(), _context(env) as context:
        catalog = belonging(context, "ablation_results", "ablation_report", "ablation_table")
        results = _saved(catalog, "ablation_results", "ablation")
        if as_json:
            click.echo(json.dumps(results, indent=2, ensure_ascii=False))
            return
        from anmi.report.ablation_console import console, show

        show(results, console())
        for name, place in (("report", "ablation_report"), ("markdown", "ablation_table")):
            # Not through the console, which would break a long path.
            click.echo(f"{name:<18} {catalog.get(place).place()}")
