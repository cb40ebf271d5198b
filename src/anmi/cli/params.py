"""The option ``--params``, whose values are YAML: what cannot be read is named with the sign that is in the way."""

from __future__ import annotations

from typing import Any

import click
from kedro.framework.cli.utils import _split_params

from anmi.errors import AnmiError


def split_params(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Return what Kedro makes of ``KEY=VALUE,…``.

    Raises
    ------
    click.ClickException
        A value is no YAML, or refers to something in a way that cannot be read.
    """
    try:
        return _split_params(context, option, value)
    except click.ClickException:
        raise
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
