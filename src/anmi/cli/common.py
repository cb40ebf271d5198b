# mypy: allow-untyped-decorators
"""What the commands share: plain errors, the project's context, what is saved, the console, ``--json``."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import click

from anmi.errors import AnmiError, causes, nearest, visible
from anmi.files import unwritable
from anmi.hooks.retraining import EXIT_CODES, AlreadyRetraining

# What Kedro says of names that are not there, and what they are names of.
_UNKNOWN: Final = {
    "node": re.compile(r"does not contain nodes named \['([^']*)'"),
    "dataset": re.compile(r"does not contain datasets named \['([^']*)'"),
    "namespace": re.compile(r"following namespaces: \['([^']*)'"),
    "pipeline": re.compile(r"Failed to find the pipeline named '([^']*)'"),
}

json_option = click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")


def example(*lines: str) -> str:
    """Return how the help of a command ends: one example or more, line by line.

    Examples
    --------
    >>> print(example("kedro anmi results --json").partition("Example:")[2])
    <BLANKLINE>
      kedro anmi results --json
    """
    # After a backspace alone on its line click leaves the lines of a paragraph as they are.
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def confirm_removal(*, yes: bool, as_json: bool) -> None:
    """Ask whether something may be removed, unless that was said already.

    Raises
    ------
    click.UsageError
        It was not said, and who reads JSON cannot be asked.
    """
    if as_json and not yes:
        raise click.UsageError("--json asks nothing: add --yes to remove, or --dry-run to see what would go")
    if not yes:
        click.confirm("Remove these?", abort=True)


def user_error(error: BaseException) -> str | None:
    """Return the one sentence that a user needs, or None where the error is a defect of ours.

    Kedro wraps what a dataset raises, so causes are looked at as well.
    """
    from kedro.config import MissingConfigException
    from kedro.io.core import DatasetNotFoundError, VersionNotFoundError
    from kedro.validation.exceptions import ParameterValidationError
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    for found in causes(error):
        if isinstance(found, AnmiError):
            return str(found)
    for found in causes(error):
        if isinstance(found, VersionNotFoundError):
            name = str(error).split(":", 1)[0]
            return f'nothing has been saved as "{name}" yet: run the pipeline that makes it first'
        if isinstance(found, OmegaConfBaseException):
            return _reference(found)
        told: object = _misspelt(str(found)) if isinstance(found, ValueError) else None
        if told := told or (unwritable(found) if isinstance(found, OSError) else None):
            return str(told)
        said = isinstance(found, ValueError) and str(found).startswith("Duplicate keys found in")
        kinds = (ParameterValidationError, DatasetNotFoundError, MissingConfigException, YAMLError)
        if said or isinstance(found, kinds):
            cure = " Correct the YAML there." if isinstance(found, YAMLError) else ""
            return " ".join(str(found).split()) + cure
    return None


def _misspelt(text: str) -> str | None:
    """Return what Kedro says of a name that is not there, with the nearest that is."""
    from kedro.framework.project import pipelines

    if text.startswith("Pipeline contains no nodes"):
        return (
            "no node is left by the options that choose among them, such as --tags: `kedro registry describe` lists all"
        )
    for kind, pattern in _UNKNOWN.items():
        if found := pattern.search(text):
            nodes = [] if kind == "pipeline" else [node for each in pipelines.values() for node in each.nodes]
            known = {
                "pipeline": {*pipelines.keys()},
                "node": {node.name for node in nodes},
                "namespace": {str(node.namespace) for node in nodes},
                "dataset": {name for node in nodes for name in (*node.inputs, *node.outputs)},
            }
            return f'there is no {kind} "{found[1]}": {nearest(found[1], sorted(known[kind]))}'
    return None


def _reference(error: Any) -> str:
    """Say which setting refers to something that is not there."""
    place, what = error.full_key or error.key or "?", str(error.msg or error).split("\n")[0]
    return str(
        AnmiError(
            f'"{place}" of the configuration cannot be resolved ({what}): correct what stands in its ${{…}}, or set '
            "the variable of the environment that it names"
        )
    )


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
        raise (_Refused if isinstance(error, AlreadyRetraining) else click.ClickException)(message) from None


class _Refused(click.ClickException):
    exit_code = EXIT_CODES["refused"]


@contextmanager
def closing_records() -> Iterator[None]:
    """Let the hooks close the run's records on Ctrl-C and when a scheduler ends the process."""

    def stop(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, AnmiError) as error:
        # An error before the first node is no pipeline's error to Kedro; hooks that have closed their records know it.
        from kedro.framework.project import settings

        # As Kedro calls hooks: the last registered first, so the record is complete when MLflow is given it.
        for hook in reversed(settings.HOOKS):
            if hasattr(hook, "interrupted"):
                hook.interrupted(error)
        if isinstance(error, KeyboardInterrupt):
            # As the shell says it; click would end with 1, as after any error.
            click.echo("Aborted!", err=True)
            sys.exit(128 + signal.SIGINT)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def project(env: str | None, *, as_json: bool = False) -> Iterator[Any]:
    """Give the project's context; with ``as_json`` no log line comes between what is printed."""
    from kedro.framework.session import KedroSession

    with silence() if as_json else nullcontext(), plain_errors(), KedroSession.create(env=env) as session:
        yield session.load_context()


@contextmanager
def silence() -> Iterator[None]:
    """Keep log lines, which Kedro's handler prints to the standard output, out of a JSON document."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)


run_option = click.option(
    "--run", "run_id", metavar="ID", help="Of which run: its id, or latest for the last finished one."
)


def belonging(context: Any, *names: str, run_id: str | None = None) -> Any:
    """Return the catalog, in which these datasets, as far as they are there, belong together; see :func:`settle`.

    With the id of a run they are those that it made or loaded, and others are not there.
    """
    from kedro.framework.project import pipelines
    from kedro.io.core import Version

    from anmi.hooks.record import Runs, data_root
    from anmi.hooks.versions import settle

    catalog, runs = context.catalog, Runs(data_root(context))
    if run_id is not None:
        run_id = str(runs.get(run_id)["run_id"])
        for name in names:
            catalog.get(name)._version = Version(runs.versions(run_id).get(name, run_id), None)
    found = {name: catalog.get(name) for name in names if catalog.exists(name)}
    settle(found, runs, pipelines.values())
    return catalog


def whereabouts(context: Any, catalog: Any, dataset: str) -> dict[str, str]:
    """Return ``collection, recipe, run, date`` of the run whose version of a dataset is loaded, and a ``notice``."""
    from anmi.hooks.record import Runs, data_root

    run, runs = str(catalog.get(dataset).resolve_load_version()), Runs(data_root(context))
    record = runs.read(run)
    made = record.get("parameters", {}) | record.get("made_from", {})
    told = {"collection": str(made.get("collection", "")), "recipe": str(made.get("recipe", "")), "run": run}
    return told | {"date": str(record.get("start", "")), "notice": runs.notice(run)}


def echo_where(context: Any, catalog: Any, dataset: str, as_json: bool = False) -> dict[str, str]:
    """Print of which run a dataset is that is loaded, and that the latest run failed where it did; return both.

    With ``as_json`` nothing is printed.
    """
    from anmi.report.sentences import where

    place = whereabouts(context, catalog, dataset)
    if as_json:
        return place
    click.echo(visible(where(place["collection"], place["recipe"], place["run"], place["date"])))
    if place["notice"]:
        click.echo(f"warning: {visible(place['notice'])}", err=True)
    return place


def load(catalog: Any, name: str, pipeline: str) -> Any:
    """Load a dataset; where there is none yet, an error names the pipeline that makes it."""
    if name not in catalog or not catalog.exists(name):
        asked = catalog.get(name)._version.load if name in catalog else None
        if asked:
            raise AnmiError(f'run {asked} has no "{name}": `kedro anmi runs {asked}` says what it made')
        raise AnmiError(f'there is no "{name}" yet: run `kedro run --pipelines {pipeline}` (or `make run`) first')
    return catalog.load(name)


def places(catalog: Any, *names: str) -> dict[str, str]:
    """Return where the newest versions of datasets lie, of those that are there."""
    return {name: catalog.get(name).place() for name in names if catalog.exists(name)}


def echo_places(found: dict[str, str]) -> None:
    """Print where things lie; not through the console, which would break a long path."""
    for name, place in found.items():
        click.echo(f"{name.replace('_', ' '):<18} {place}")


def echo_json(value: Any) -> None:
    """Print a value as a JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def console(width: int | None = 120, **options: Any) -> Any:
    """Return a console as wide as the terminal, and this wide where the output goes elsewhere."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width, **options)


def table(title: str, columns: str, *, plain: str = "") -> Any:
    """Return an empty table of these columns, given as words or separated by commas.

    Parameters
    ----------
    title
        Above it.
    columns
        Headings, separated by ``,``.
    plain
        Those whose cells are never broken.
    """
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for name in columns.split(","):
        made.add_column(name, no_wrap=name in plain.split(","))
    return made


def store_path(context: Any) -> Path:
    """Return the folder of the store."""
    return Path(context.catalog.get("store")._describe()["filepath"])


def size_text(size: int) -> str:
    """Write a number of bytes as people read it.

    Examples
    --------
    >>> size_text(999), size_text(41_750_528), size_text(999_950)
    ('999 B', '41.8 MB', '1.0 MB')
    """
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        # What would be rounded to a thousand is one of the next unit.
        if value < 999.95:
            return f"{value:.1f} {unit}" if unit != "B" else f"{size} B"
        value /= 1000
    return f"{value:.1f} TB"
