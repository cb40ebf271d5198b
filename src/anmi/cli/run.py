# mypy: allow-untyped-decorators
"""``kedro run``: Kedro's own command and options, with plain errors."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

import click
import yaml
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.cli.utils import _split_params

from anmi.cli.common import closing_records, example, plain_errors
from anmi.errors import AnmiError
from anmi.hooks.run import EXIT_CODES, NothingMissing, RunHooks

_EXAMPLE: Final = example("kedro run", 'kedro run --params "collection=docs:docs/**/*.md"')
_EXIT_HELP: Final = (
    "\b\nExit codes of --pipelines retrain:\n"
    f"  {EXIT_CODES['promoted']}   the challenger was promoted to champion\n"
    f"  {EXIT_CODES['kept']}  the champion was kept; `kedro anmi champion` says why\n"
    f"  {EXIT_CODES['refused']}  another retraining is under way\n"
    f"  {EXIT_CODES['failed']}   an error; the champion is the one before"
)
# Options that ask for less than a whole run, whose end is then no search.
_PARTS: Final = (
    "pipeline",
    "pipelines",
    "tags",
    "node_names",
    "from_nodes",
    "to_nodes",
    "from_inputs",
    "to_outputs",
    "namespaces",
)


def split_params(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Return what Kedro reads from ``KEY=VALUE,…``; say what to do where it cannot."""
    try:
        return _split_params(context, option, value)
    except Exception as error:
        # OmegaConf raises many kinds of errors, some over several lines.
        reason = (
            getattr(error, "problem", None) or str(getattr(error, "message", error)).split("\n")[0]
        )
        raise click.UsageError(
            str(
                AnmiError(
                    f"--params {value} cannot be read ({reason}): write KEY=VALUE, each key once,"
                    " and put a value that holds a comma or braces, such as a list, into"
                    " conf/local/parameters.yml"
                )
            ),
            context,
        ) from None


def _run(**options: Any) -> Any:
    assert kedro_run.callback is not None
    with plain_errors(), closing_records():
        try:
            result = kedro_run.callback(**options)
        except NothingMissing as error:
            click.echo(str(error), err=True)
            return None
        except (TypeError, AttributeError, UnicodeDecodeError) as error:
            # Kedro names the parameter or the file in none of these, which come while it reads the
            # configuration.
            if not any(
                "omegaconf" in frame.f_code.co_filename.lower()
                for frame, _ in walk_tb(error.__traceback__)
            ):
                raise
            damaged = _damaged(Path(options["conf_source"] or "conf"), options["env"] or "local")
            raise AnmiError(
                f"{damaged or '--params'} cannot be merged with the rest"
                f" ({str(error).splitlines()[0]}): settings by name were expected, in UTF-8, as in"
                " `bm25: {depth: 50}`"
            ) from None
    from kedro.framework.project import settings

    decision = next(
        (hook.record.decision for hook in settings.HOOKS if isinstance(hook, RunHooks)), ""
    )
    if code := EXIT_CODES.get(decision, 0):
        raise click.exceptions.Exit(code)
    if not any(options[name] for name in _PARTS):
        env = f" --env {options['env']}" if options["env"] else ""
        click.echo(
            f'\nnext: kedro anmi results{env} · kedro anmi search{env} "your question"', err=True
        )
    return result


def _damaged(source: Path, environment: str) -> Path | None:
    """Return the file of the configuration that holds no settings by name, if there is one."""
    for path in sorted(
        path for env in ("base", environment) for path in (source / env).glob("**/*.y*ml")
    ):
        with suppress(UnicodeDecodeError, yaml.YAMLError):
            if isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict | None):
                continue
        return path
    return None


def _options() -> list[click.Parameter]:
    """Return Kedro's options; those that hold parameters say what cannot be read of them."""
    options = [copy(option) for option in kedro_run.params]
    for option in options:
        if option.name in ("params", "runner_params"):
            option.callback = split_params
    return options


run = click.Command(
    "run",
    callback=_run,
    params=_options(),
    help=f"{kedro_run.help}\n\n{_EXIT_HELP}",
    epilog=_EXAMPLE,
)
