# mypy: allow-untyped-decorators
"""The project's commands: ``kedro run`` with plain errors, ``kedro anmi results`` and ``kedro anmi explain``."""

from __future__ import annotations

import json
import logging
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any, Final

import click
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.cli.utils import CONTEXT_SETTINGS, env_option

from anmi.cli_ablation import ablation
from anmi.cli_audit import audit
from anmi.cli_deploy import airflow
from anmi.cli_explain import explain
from anmi.cli_export import export
from anmi.cli_mining import negatives
from anmi.cli_package import package
from anmi.cli_params import split_params
from anmi.cli_retrain import champion, rollback
from anmi.cli_runs import prune, reproduce, resume, runs
from anmi.cli_store import store
from anmi.cli_task import task
from anmi.datasets.disk import unwritable
from anmi.errors import AnmiError, visible
from anmi.hooks.retraining import EXIT_CODES, EXIT_HELP, AlreadyRetraining, RetrainHooks

RESULT_KEYS: Final = (
    "date", "machine", "versions", "prompts", "rows", "comparisons", "funnel", "expected", "leak", "paths",
)  # fmt: skip
_WIDTH: Final = 120
_SAID_BY_KEDRO: Final = ("Failed to find the pipeline named", "Duplicate keys found in")


@click.group(context_settings=CONTEXT_SETTINGS, name="anmi")
def cli() -> None:
    """Commands of this project."""


def user_error(error: BaseException) -> str | None:
    """Return the one sentence that a user needs, or None where the error is a defect of ours.

    Kedro wraps what a dataset raises, so causes are looked at as well.
    """
    from kedro.io.core import DatasetNotFoundError, VersionNotFoundError
    from kedro.validation.exceptions import ParameterValidationError
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    outer: BaseException | None = error
    chain: list[BaseException] = []
    while outer is not None and outer not in chain:
        chain.append(outer)
        outer = outer.__cause__ or outer.__context__
    for found in chain:
        if isinstance(found, AnmiError):
            return str(found)
    for found in chain:
        if isinstance(found, VersionNotFoundError):
            name = str(error).split(":", 1)[0]
            return f'nothing has been saved as "{name}" yet: run the pipeline that makes it first'
        if isinstance(found, OmegaConfBaseException):
            return _reference(found)
        said = isinstance(found, ValueError) and str(found).startswith(_SAID_BY_KEDRO)
        if said or isinstance(found, (ParameterValidationError, DatasetNotFoundError, YAMLError)):
            cure = " Correct the YAML there." if isinstance(found, YAMLError) else ""
            return " ".join(str(found).split()) + cure
        if isinstance(found, OSError) and (told := unwritable(found)):
            return str(told)
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
            from anmi.hooks.secrets import mask_error

            mask_error(error)
            raise
        raise (_Refused if isinstance(error, AlreadyRetraining) else click.ClickException)(message) from None


class _Refused(click.ClickException):
    exit_code = EXIT_CODES["refused"]


def exit_code() -> int:
    """Return how a run that came to its end ended; not 0 only where a retraining kept the champion."""
    from kedro.framework.project import settings

    return next((hook.exit_code for hook in settings.HOOKS if isinstance(hook, RetrainHooks)), 0)


@contextmanager
def told_of_interruption() -> Iterator[None]:
    """Let the hooks close the run's records on Ctrl-C and when a scheduler ends the process."""

    def stop(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, AnmiError) as error:
        # An error before the first node is no pipeline's error to Kedro; hooks that have closed their records know it.
        from kedro.framework.project import settings

        # As Kedro calls hooks: the last registered first, so the manifest is complete when tracking reads it.
        for hook in reversed(settings.HOOKS):
            if hasattr(hook, "interrupted"):
                hook.interrupted(error)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run(**options: Any) -> Any:
    from anmi.hooks.unchanged import Unchanged, may_skip

    assert kedro_run.callback is not None
    with plain_errors(), told_of_interruption(), may_skip():
        try:
            result = kedro_run.callback(**options)
        except Unchanged as nothing_to_do:
            click.echo(str(nothing_to_do))
            return None
    code = exit_code()
    if code:
        raise click.exceptions.Exit(code)
    return result


def _options() -> list[click.Parameter]:
    """Return Kedro's options; those that hold parameters say what cannot be read of them."""
    options = [copy(option) for option in kedro_run.params]
    for option in options:
        if option.name in ("params", "runner_params"):
            option.callback = split_params
    return options


# Kedro's own command with Kedro's own options; only what becomes of an error, or of a challenger, is ours.
run = click.Command("run", callback=_run, params=_options(), help=f"{kedro_run.help}\n\n{EXIT_HELP}")
cli.add_command(run)
cli.add_command(package)


@cli.group(name="anmi")
def anmi() -> None:
    """Look at what the last run brought."""


anmi.add_command(store)
anmi.add_command(audit)
anmi.add_command(ablation)
anmi.add_command(champion)
anmi.add_command(rollback)
anmi.add_command(negatives)
anmi.add_command(explain)
anmi.add_command(export)
anmi.add_command(task)
anmi.add_command(airflow)
anmi.add_command(runs)
anmi.add_command(reproduce)
anmi.add_command(resume)
anmi.add_command(prune)


@contextmanager
def _context(env: str | None) -> Iterator[Any]:
    from kedro.framework.session import KedroSession

    with plain_errors(), KedroSession.create(env=env) as session:
        yield session.load_context()


def belonging(context: Any, *names: str) -> Any:
    """Return the catalog, in which these datasets, as far as they are there, belong together; see :func:`settle`."""
    from kedro.framework.project import pipelines

    from anmi.hooks.record import data_root
    from anmi.lineage.versions import Origins, settle

    catalog = context.catalog
    found = {name: catalog.get(name) for name in names if catalog.exists(name)}
    settle(found, Origins(data_root(context), pipelines.values()))
    return catalog


def _saved(catalog: Any, name: str, pipeline: str) -> Any:
    if name not in catalog or not catalog.exists(name):
        raise AnmiError(f'there is no "{name}" yet: run `kedro run --pipelines {pipeline}` (or `make run`) first')
    return catalog.load(name)


@anmi.command()
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON document.")
@env_option
def results(as_json: bool, env: str | None) -> None:
    """Print the results of the last run."""
    with _silence() if as_json else nullcontext(), _context(env) as context:
        catalog = belonging(context, "results", "report", "trained_model")
        if not catalog.exists("results") and catalog.exists("selection_summary"):
            raise AnmiError(
                'there is no "results" yet, since nothing was evaluated: `kedro anmi negatives` shows what was mined, '
                "and `kedro run --pipelines training,evaluation,reporting` goes on from there"
            )
        saved = _saved(catalog, "results", "evaluation,reporting")
        saved = saved | {"paths": saved.get("paths") or _places(catalog)}
        if as_json:
            click.echo(json.dumps({key: saved.get(key) for key in RESULT_KEYS}, indent=2, ensure_ascii=False))
            return
        _print_results(saved)
        click.echo(f"{'tracking database':<18} {_tracking(context)}")
        block = next(iter(catalog.load("selection")), None) if catalog.exists("selection") else None
        if block is not None and len(block):
            option = f" --env {env}" if env else ""
            click.echo(f"\nnext: kedro anmi explain{option} {visible(shlex.quote(str(block.query_ids[0])))}")


@contextmanager
def _silence() -> Iterator[None]:
    """Keep log lines, which Kedro's handler prints to the standard output, out of a JSON document."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)


def _places(catalog: Any) -> dict[str, str]:
    """Return where the newest version of what people open by hand lies."""
    found = {name: catalog.get(name) for name in ("report", "trained_model") if catalog.exists(name)}
    return {name: dataset.place() for name, dataset in found.items()}


def _tracking(context: Any) -> str:
    from anmi.hooks.record import data_root
    from anmi.hooks.tracking import read_settings, tracking_uri, without_password

    settings = read_settings(context)
    return without_password(tracking_uri(settings, data_root(context))) if settings.enabled else "switched off"


def _print_results(saved: dict[str, Any]) -> None:
    import pandas as pd
    from rich.console import Console

    from anmi.report.console import rejections_table, results_table
    from anmi.report.leak import leak_lines
    from anmi.report.negatives_console import expected_sentence
    from anmi.retrieval.prompts import in_words

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(results_table(pd.DataFrame(saved["rows"]), pd.DataFrame(saved["comparisons"])))
    console.print(rejections_table(pd.DataFrame(saved["funnel"])))
    if expected := expected_sentence(saved.get("expected")):
        click.echo(expected)
    # What a label alone cannot show: known only where the collection holds its own truth.
    for line in leak_lines(saved.get("leak") or {}):
        click.echo(line)
    quarantined = saved.get("quarantined")
    if quarantined:
        click.echo("quarantined: " + ", ".join(f"{count} x {reason}" for reason, count in quarantined.items()))
    prompts = saved.get("prompts") or {}
    if any(prompts.values()):
        click.echo(f"{'prompts':<18} {in_words(prompts)}")
    for name, place in (saved.get("paths") or {}).items():
        # Not through the console, which would break a long path.
        click.echo(f"{name.replace('_', ' '):<18} {place}")
