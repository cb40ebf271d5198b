# mypy: allow-untyped-decorators
"""``kedro run`` with plain errors: Kedro's own command and options; what becomes of an error is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Final

import click
import yaml
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.cli.utils import _split_params

from anmi.cli.common import closing_records, example, plain_errors
from anmi.errors import AnmiError
from anmi.hooks.retraining import EXIT_HELP, RetrainHooks


def split_params(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Return what Kedro makes of ``KEY=VALUE,…``.

    Raises
    ------
    click.ClickException
        A value is no YAML, or refers to something in a way that cannot be read.
    """
    try:
        return _split_params(context, option, value)
    except click.ClickException as error:
        if "," not in str(value):
            raise
        told = f"{error.message.rstrip('.')}; a value that holds a comma, such as a path, goes into"
        raise click.UsageError(f"{told} conf/local/parameters.yml", context) from None
    except Exception as error:
        raise click.ClickException(str(AnmiError(_sentence(str(value), error)))) from None


def _sentence(given: str, error: Exception) -> str:
    for item in given.split(","):
        name, _, text = item.partition("=")
        if reason := _reason(item):
            return (
                f'parameter "{name.strip()}": {text} cannot be read as YAML ({reason}); put the value in quotes that '
                "the shell leaves alone, and a list or several names with values into conf/local/parameters.yml"
            )
    return f"--params {given} cannot be read ({_first_line(error)}); write KEY=VALUE, and each key once"


def _reason(item: str) -> str:
    from omegaconf import OmegaConf

    try:
        OmegaConf.from_dotlist([item])
    except Exception as error:
        return _first_line(error)
    return ""


def _first_line(error: Exception) -> str:
    return (getattr(error, "problem", None) or str(error)).split("\n")[0]


_EXAMPLE: Final = example("kedro run", 'kedro run --params "collection=docs:docs/**/*.md"')

# What asks for less than a whole run, whose end is then no search.
_PARTS: Final = (
    "pipeline", "pipelines", "tags", "node_names", "from_nodes", "to_nodes", "from_inputs", "to_outputs", "namespaces",
)  # fmt: skip


def _run(**options: Any) -> Any:
    assert kedro_run.callback is not None
    with plain_errors(), closing_records():
        try:
            result = kedro_run.callback(**options)
        except (TypeError, AttributeError, UnicodeDecodeError) as error:
            # Of what OmegaConf cannot read or put over a branch, its errors name neither file nor parameter.
            lists = list(_lists(options["params"])) if "incompatible container" in str(error) else []
            if lists:
                told = f'parameter "{lists[0]}": settings by name were expected, as in {lists[0]}.NAME=VALUE'
                raise AnmiError(told) from None
            if (damaged := _damaged(Path(options["conf_source"] or "conf"), options["env"] or "local")) is not None:
                raise AnmiError(damaged) from None
            raise
    code = exit_code()
    if code:
        raise click.exceptions.Exit(code)
    if not any(options[name] for name in _PARTS):
        env = f" --env {options['env']}" if options["env"] else ""
        click.echo(f'\nnext: kedro anmi results{env} · kedro anmi search{env} "your question"', err=True)
    return result


def _lists(params: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the dotted names of parameters that are lists."""
    for name, value in params.items():
        path = f"{place}.{name}" if place else name
        if isinstance(value, Mapping):
            yield from _lists(value, path)
        elif isinstance(value, list):
            yield path


def _damaged(source: Path, environment: str) -> str | None:
    """Say which file of the configuration cannot be read as settings by name."""
    for path in sorted(path for env in ("base", environment) for path in (source / env).glob("**/*.y*ml")):
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            return f"{path} is not UTF-8 (byte {error.start}); convert it to UTF-8"
        except yaml.YAMLError:
            continue
        if not isinstance(content, dict | None):
            return f"{path} holds {type(content).__name__}; settings by name were expected, as in `seed: 1`"
    return None


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
