# mypy: allow-untyped-decorators
"""``kedro run`` with plain errors: Kedro's own command and options; what becomes of an error is ours."""

from __future__ import annotations

from copy import copy
from typing import Any, Final

import click
from kedro.framework.cli.project import run as kedro_run

from anmi.cli.common import example, plain_errors, told_of_interruption
from anmi.cli.params import split_params
from anmi.hooks.retraining import EXIT_HELP, RetrainHooks

_EXAMPLE: Final = example("kedro run", 'kedro run --params "collection=docs:docs/**/*.md"')

# What asks for less than a whole run, whose end is then no search.
_PARTS: Final = (
    "pipeline", "pipelines", "tags", "node_names", "from_nodes", "to_nodes", "from_inputs", "to_outputs", "namespaces",
)  # fmt: skip


def _run(**options: Any) -> Any:
    assert kedro_run.callback is not None
    with plain_errors(), told_of_interruption():
        result = kedro_run.callback(**options)
    code = exit_code()
    if code:
        raise click.exceptions.Exit(code)
    if not any(options[name] for name in _PARTS):
        env = f" --env {options['env']}" if options["env"] else ""
        click.echo(f'\nnext: kedro anmi results{env} · kedro anmi search{env} "your question"', err=True)
    return result


def exit_code() -> int:
    """Return how a run that came to its end ended; not 0 only where a retraining kept the champion."""
    from kedro.framework.project import settings

    return next((hook.exit_code for hook in settings.HOOKS if isinstance(hook, RetrainHooks)), 0)


def _options() -> list[click.Parameter]:
    """Return Kedro's options; those that hold parameters say what cannot be read of them."""
    options = [copy(option) for option in kedro_run.params]
    for option in options:
        if option.name in ("params", "runner_params"):
            option.callback = split_params
    return options


run = click.Command("run", callback=_run, params=_options(), help=f"{kedro_run.help}\n\n{EXIT_HELP}", epilog=_EXAMPLE)
