# mypy: allow-untyped-decorators
"""``kedro anmi audit``: what the last audit found."""

from __future__ import annotations

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import belonging, console, echo_json, example, json_option, load, project


@click.command(epilog=example("kedro anmi audit"))
@json_option
@env_option
def audit(as_json: bool, env: str | None) -> None:
    """Print what the last audit found of recipes and judges."""
    with project(env, as_json=as_json) as context:
        catalog = belonging(context, "audit_summary", "audit_recipes", "audit_judges")
        summary = load(catalog, "audit_summary", "audit")
        if as_json:
            echo_json(summary)
            return
        from anmi.report.console import judges_table, recipes_table

        out = console()
        out.print(recipes_table(catalog.load("audit_recipes"), summary))
        out.print(judges_table(catalog.load("audit_judges")))
        for name, reason in summary["failed"].items():
            click.echo(f"{name} cannot be run on this collection: {reason}")
