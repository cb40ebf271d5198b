# mypy: allow-untyped-decorators
"""``kedro anmi ablation``: what the last ablation found."""

from __future__ import annotations

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import belonging, echo_json, echo_places, example, json_option, load, project


@click.command(epilog=example("kedro anmi ablation"))
@json_option
@env_option
def ablation(as_json: bool, env: str | None) -> None:
    """Print the table of the last ablation."""
    with project(env, as_json=as_json) as context:
        catalog = belonging(context, "ablation_results", "ablation_report")
        results = load(catalog, "ablation_results", "ablation")
        if as_json:
            echo_json(results)
            return
        from anmi.report.ablation import console, show

        show(results, console())
        echo_places({"report": catalog.get("ablation_report").place()})
