# mypy: allow-untyped-decorators
"""``kedro anmi doctor``: is everything there that a run needs, what is slow here, and what to do about it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import echo_json, example, json_option, silence


@click.command(
    short_help="Check all that a run needs, and say what to do.",
    epilog=example("kedro anmi doctor"),
)
@json_option
@env_option
def doctor(as_json: bool, env: str | None) -> None:
    """Check environment, models, data, tracking, store and disk, and say what to do about what is amiss.

    The configured collection is read for it. Ends with 0 where nothing is a problem, else with 1;
    warnings are none.
    """
    from anmi.cli.checkup import PROBLEM, examine

    with silence():
        found = examine(env)
    problems = [finding for finding in found if finding.level == PROBLEM]
    if as_json:
        echo_json({"ok": not problems, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found)
    if problems:
        sys.exit(1)


def _print(found: list[Any]) -> None:
    from anmi.errors import visible

    for section, findings in groupby(found, lambda finding: finding.section):
        click.echo(section)
        for finding in findings:
            click.echo(visible(f"  {finding.level:<8} {finding.name}: {finding.text}"))
            if finding.todo:
                click.echo(visible(f"{'':<11}→ {finding.todo}"))
    counted = {level: sum(finding.level == level for finding in found) for level in ("problem", "warning")}
    told = ", ".join(f"{number} {level}{'s' * (number != 1)}" for level, number in counted.items() if number)
    todo = "do what the arrows say, and ask again" if counted["problem"] else "kedro run"
    click.echo(f"\n{told or 'all is well'}; next: {todo}")
