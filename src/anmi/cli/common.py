# mypy: allow-untyped-decorators
"""What the commands share: plain errors, the project's context, saved artifacts, ``--json``."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any, Final, cast

import click
from kedro.framework.cli.utils import env_option

from anmi.errors import AnmiError, causes, visible
from anmi.hooks.run import EXIT_CODES, AlreadyRetraining

# Sentences of Kedro about names that are not there, which say all that a user needs.
_KEDRO: Final = re.compile(
    r"does not contain (nodes|datasets) named|following namespaces|Failed to find the pipeline"
    r"|Pipeline contains no nodes|Duplicate keys found in"
)
# A disk that is full, read-only or of somebody else.
_DISK: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}

# The search that is deployed, and while a run has not come so far the one that is measured.
SEARCHES: Final = ("search_index", "measured_search")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print everything as one JSON document."
)
run_option = click.option(
    "--run",
    "run_id",
    metavar="ID",
    help="The run to use: its id, or latest for the last finished one.",
)


def example(*lines: str) -> str:
    """Return how the help of a command ends: one example or more, line by line."""
    # After a backspace alone on its line click leaves the lines of a paragraph as they are.
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def command(
    *examples: str, short_help: str | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command, with --json and --env, of a function that is given the project's context.

    The function prints for people and returns the document that --json prints in place of that. A
    document that is not ``ok`` ends with the exit code 1.
    """

    def make(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def call(*, as_json: bool, env: str | None, **arguments: Any) -> None:
            with plain_errors():
                # Logs go to the standard output, too.
                with (
                    redirect_stdout(io.StringIO()) if as_json else nullcontext(),
                    opened_project(env) as context,
                ):
                    document = function(context, **arguments)
                if as_json:
                    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
                if isinstance(document, dict) and not document.get("ok", True):
                    sys.exit(1)

        built = click.command(short_help=short_help, epilog=example(*examples))(call)
        return cast("click.Command", env_option(json_option(built)))

    return make


def document_of(shown: click.Command, context: Any, **arguments: Any) -> Any:
    """Return what --json of a command prints; nothing else is printed."""
    function = cast("Any", shown.callback).__wrapped__
    with redirect_stdout(io.StringIO()):
        return function(context, **arguments)


def user_error(error: BaseException) -> str | None:
    """Return the one sentence that a user needs, or None where the error is a defect of ours.

    Kedro wraps what a dataset raises, so causes are looked at as well.
    """
    from kedro.config import MissingConfigException
    from kedro.io.core import DatasetNotFoundError, VersionNotFoundError
    from kedro.validation.exceptions import ParameterValidationError
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    for cause in causes(error):
        if isinstance(cause, AnmiError):
            return str(cause)
    kinds = (ParameterValidationError, DatasetNotFoundError, MissingConfigException, YAMLError)
    for cause in causes(error):
        sentence: object = None
        if isinstance(cause, VersionNotFoundError):
            name = str(error).split(":", 1)[0]
            sentence = (
                f'nothing has been saved as "{name}" yet: run the pipeline that makes it first'
            )
        elif isinstance(cause, OmegaConfBaseException):
            place = cause.full_key or cause.key or "?"
            reason = str(cause.msg or cause).split("\n")[0]
            sentence = AnmiError(
                f'"{place}" of the configuration cannot be resolved ({reason}): correct what stands'
                " in its ${…}, or set the variable of the environment that it names"
            )
        elif isinstance(cause, OSError) and cause.errno in _DISK:
            sentence = cause
        elif isinstance(cause, kinds) or (
            isinstance(cause, ValueError) and _KEDRO.search(str(cause))
        ):
            sentence = str(cause) + (
                " Correct the YAML there." if isinstance(cause, YAMLError) else ""
            )
        if sentence:
            return " ".join(str(sentence).split())
    return None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error that the user can do something about as one sentence, without a traceback."""
    try:
        yield
    except Exception as error:
        message = user_error(error)
        if message is None:
            from anmi.hooks.checks import mask_error

            mask_error(error)
            raise
        raise (_Refused if isinstance(error, AlreadyRetraining) else click.ClickException)(
            message
        ) from None


class _Refused(click.ClickException):
    exit_code = EXIT_CODES["refused"]


@contextmanager
def closing_records() -> Iterator[None]:
    """Let the hooks close the run's records on Ctrl-C and when a scheduler ends the process."""
    process = os.getpid()

    def stop(*_: object) -> None:
        if os.getpid() == process:
            # Kedro's ParallelRunner would wait for nodes that run in other processes.
            for worker in multiprocessing.active_children():
                worker.terminate()
        sys.exit(128 + signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, AnmiError) as error:
        # An error before the first node is no pipeline's error to Kedro; hooks that have closed
        # their records know it.
        from kedro.framework.project import settings

        # As Kedro calls hooks: the last registered first, so the record is complete when MLflow is
        # given it.
        for hook in reversed(settings.HOOKS):
            if hasattr(hook, "on_pipeline_error"):
                hook.on_pipeline_error(error)
        if isinstance(error, KeyboardInterrupt):
            # As the shell says it; click would end with 1, as after any error.
            click.echo("Aborted!", err=True)
            sys.exit(128 + signal.SIGINT)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def opened_project(env: str | None) -> Iterator[Any]:
    """Yield the project's context."""
    from kedro.framework.session import KedroSession

    with KedroSession.create(env=env) as session:
        yield session.load_context()


class Saved:
    """What runs saved: datasets of versions that belong together, see :func:`settle`.

    Parameters
    ----------
    context
        Of the project.
    names
        The datasets, of which some may not be there.
    run_id
        If given, only the versions that this run made or loaded are there.
    """

    def __init__(self, context: Any, *names: str, run_id: str | None = None) -> None:
        from kedro.framework.project import pipelines

        from anmi.hooks.record import Runs, data_root
        from anmi.hooks.versions import settle

        self._catalog = context.catalog
        self.runs = Runs(data_root(context))
        if run_id is not None:
            run_id = str(self.runs.get(run_id)["run_id"])
            versions = self.runs.versions(run_id)
            for name in names:
                self._catalog.get(name).fix_load_version(versions.get(name, run_id))
        settle(
            {name: self._catalog.get(name) for name in names if self.has(name)},
            self.runs,
            pipelines.values(),
        )

    def has(self, *names: str) -> bool:
        """Tell whether datasets are there."""
        return all(map(self._catalog.exists, names))

    def first(self, *names: str) -> str:
        """Return the first of some datasets that is there, the last where none is."""
        return next(filter(self.has, names), names[-1])

    def load(self, name: str, pipeline: str = "", default: Any = None) -> Any:
        """Load a dataset; where there is none, return the default, or name the pipeline to run."""
        if self.has(name):
            return self._catalog.load(name)
        if not pipeline:
            return default
        if version := self._catalog.get(name).load_version:
            raise AnmiError(
                f'run {version} has no "{name}": `kedro anmi runs {version}` says what it made'
            )
        if run_id := self.runs.under_way():
            raise AnmiError(
                f'there is no "{name}" yet, and run {run_id} is under way: wait for it;'
                " `kedro anmi runs` says how far it is"
            )
        raise AnmiError(
            f'there is no "{name}" yet: run `kedro run --pipelines {pipeline}` (or `make run`)'
            " first"
        )

    def places(self, *names: str) -> dict[str, str]:
        """Return where datasets lie, of those that are there."""
        return {name: self._catalog.get(name).place() for name in names if self.has(name)}

    def whereabouts(self, name: str) -> dict[str, str]:
        """Return ``collection, recipe, run, date`` of a dataset, and a ``notice`` of later runs."""
        run = str(self._catalog.get(name).resolve_load_version())
        record = self.runs.read(run)
        parameters = record.get("parameters", {}) | record.get("made_from", {})
        named = {key: str(parameters.get(key, "")) for key in ("collection", "recipe")}
        return named | {
            "run": run,
            "date": str(record.get("start", "")),
            "notice": self.runs.notice(run),
        }

    def echo_where(self, name: str) -> dict[str, str]:
        """Print which run made a dataset, and a warning of a later run that failed; return both."""
        from anmi.report.sentences import where

        place = self.whereabouts(name)
        click.echo(
            visible(where(place["collection"], place["recipe"], place["run"], place["date"]))
        )
        if place["notice"]:
            click.echo(f"warning: {visible(place['notice'])}", err=True)
        return place


def echo_places(paths: dict[str, str]) -> None:
    """Print where things lie; not through the console, which would break a long path."""
    for name, place in paths.items():
        click.echo(f"{name.replace('_', ' '):<18} {place}")


def console(width: int | None = 120, **options: Any) -> Any:
    """Return a console as wide as the terminal, and this wide where the output goes elsewhere."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width, **options)


def table(title: str, columns: str, *, plain: str = "") -> Any:
    """Return an empty table of columns, separated by commas; ``plain`` cells are never broken."""
    from rich.table import Table

    empty_table = Table(title=title, title_justify="left")
    for name in columns.split(","):
        empty_table.add_column(name, no_wrap=name in plain.split(","))
    return empty_table


def store_path(context: Any) -> Path:
    """Return the folder of the store."""
    return Path(context.catalog.get("store")._describe()["filepath"])
