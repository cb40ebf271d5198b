# mypy: allow-untyped-decorators
"""The project's commands: ``kedro run`` with plain errors, ``kedro anmi results`` and ``kedro anmi explain``."""

from __future__ import annotations

import difflib
import json
import logging
import math
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import click
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.cli.utils import CONTEXT_SETTINGS, env_option

from anmi.cli_audit import audit
from anmi.cli_store import store
from anmi.errors import AnmiError

RESULT_KEYS: Final = ("date", "machine", "versions", "rows", "comparisons", "funnel", "leak", "paths")
_TEXT_START: Final = 60
_WIDTH: Final = 120
_WIDE: Final = 320
_REASONS: Final = 3
_SMALL: Final = 0.05


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
        if isinstance(found, (ParameterValidationError, OmegaConfBaseException, DatasetNotFoundError)):
            return " ".join(str(found).split())
        if isinstance(found, ValueError) and str(found).startswith("Failed to find the pipeline named"):
            return " ".join(str(found).split())
    return None


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error that the user can do something about as one sentence, without a traceback."""
    try:
        yield
    except Exception as error:
        message = user_error(error)
        if message is None:
            raise
        raise click.ClickException(message) from None


@contextmanager
def told_of_interruption() -> Iterator[None]:
    """Let the hooks close the run's records on Ctrl-C and when a scheduler ends the process."""

    def stop(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
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
            return kedro_run.callback(**options)
        except Unchanged as nothing_to_do:
            click.echo(str(nothing_to_do))
            return None


# Kedro's own command with Kedro's own options; only what becomes of an error is ours.
run = click.Command("run", callback=_run, params=kedro_run.params, help=kedro_run.help)
cli.add_command(run)


@cli.group(name="anmi")
def anmi() -> None:
    """Look at what the last run brought."""


anmi.add_command(store)
anmi.add_command(audit)


@contextmanager
def _context(env: str | None) -> Iterator[Any]:
    from kedro.framework.session import KedroSession

    with plain_errors(), KedroSession.create(env=env) as session:
        yield session.load_context()


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
        catalog = context.catalog
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
            click.echo(f"\nnext: kedro anmi explain{option} {shlex.quote(str(block.query_ids[0]))}")


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
    return {name: str(dataset._get_load_path()) for name, dataset in found.items()}


def _tracking(context: Any) -> str:
    from anmi.hooks.record import data_root
    from anmi.hooks.tracking import read_settings, tracking_uri, without_password

    settings = read_settings(context)
    return without_password(tracking_uri(settings, data_root(context))) if settings.enabled else "switched off"


def _print_results(saved: dict[str, Any]) -> None:
    import pandas as pd
    from rich.console import Console

    from anmi.report.console import rejections_table, results_table

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(results_table(pd.DataFrame(saved["rows"]), pd.DataFrame(saved["comparisons"])))
    console.print(rejections_table(pd.DataFrame(saved["funnel"])))
    leak = saved.get("leak")
    if leak:
        # What a label alone cannot show: known only where the collection holds its own truth.
        click.echo(
            f"selected negatives that are in truth relevant: {leak['count']} of {leak['total']} "
            f"({leak['share']:.1%}, 95 % interval {leak['low']:.1%} to {leak['high']:.1%})"
        )
    quarantined = saved.get("quarantined")
    if quarantined:
        click.echo("quarantined: " + ", ".join(f"{count} x {reason}" for reason, count in quarantined.items()))
    for name, place in (saved.get("paths") or {}).items():
        # Not through the console, which would break a long path.
        click.echo(f"{name.replace('_', ' '):<18} {place}")


@anmi.command()
@click.argument("query_id")
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=0), help="Candidates to show.")
@env_option
def explain(query_id: str, top: int, env: str | None) -> None:
    """Show every candidate of a query, what each judge said, and why it was or was not taken.

    The first --top candidates are shown, and those further down that were taken.
    """
    from rich.console import Console

    with _context(env) as context:
        catalog = context.catalog
        rows = find_rows(_saved(catalog, "selection", "mining"), query_id)
        corpus, queries = _saved(catalog, "corpus", "ingestion"), _saved(catalog, "queries", "ingestion")
        text = queries.loc[queries["query_id"] == query_id, "text"]
        fused = catalog.load("fused_judge") if catalog.exists("fused_judge") else {}
        fold = _fold(fused, text.iloc[0] if len(text) else "", context.params["seed"])
        console = Console(width=None if sys.stdout.isatty() else _WIDE)
        console.print(f"{query_id}: {text.iloc[0] if len(text) else ''}", style="bold", markup=False, highlight=False)
        for row in rows:
            if row.query_verdict[0]:
                console.print(f"dropped by {row.legend[row.query_verdict[0]]}", style="red", markup=False)
            for name, values in row.query_columns.items():
                console.print(f"{name}: {_number(values[0])}", markup=False, highlight=False)
            console.print(explanation(row, corpus, top, reasons(row, fused, fold)))


def find_rows(shards: Any, query_id: str) -> list[Any]:
    """Return the rows of a query, one block each.

    Raises
    ------
    AnmiError
        No shard holds the query; the message names the nearest ids.
    """
    import numpy as np

    found, known = [], set()
    for block in shards:
        known.update(block.query_ids.tolist())
        found += [block.take(np.array([row])) for row in np.flatnonzero(block.query_ids == query_id)]
    if not found:
        close = difflib.get_close_matches(query_id, known, n=3, cutoff=0.3) or sorted(known)[:3]
        hint = f"the nearest are {', '.join(close)}" if close else "the selection is empty"
        raise AnmiError(f'the selection has no query "{query_id}": {hint}')
    return found


def _fold(fused: dict[str, Any], query: str, seed: int) -> int:
    """Return whose coefficients judged a query: 0 for shipped ones."""
    from anmi.judging.teacher import fold_of

    return int(fold_of([query], len(fused["models"]), seed)[0]) if len(fused.get("models", [])) > 1 else 0


def reasons(row: Any, fused: dict[str, Any], fold: int = 0) -> list[str] | None:
    """Say for each candidate of a one-query block which evidence moved the fused judge most.

    Parameters
    ----------
    row
        A block of one query.
    fused
        The artifact ``fused_judge``.
    fold
        Of the query.

    Returns
    -------
    list of str
        Such as ``likeness_terms +2.1, coverage -0.8``: the three largest, in log-odds against an average candidate.
        None where no evidence was gathered.
    """
    import numpy as np

    from anmi.judging.fused import EVIDENCE
    from anmi.judging.fusing import contributions

    if not fused.get("models") or any(name not in row.columns for name in EVIDENCE):
        return None
    parts = contributions(row, fused, fold)
    values = np.stack([part[0] for part in parts.values()], axis=1)
    names = list(parts)
    order = np.argsort(-np.abs(values), axis=1)[:, :_REASONS]
    return [
        ", ".join(f"{names[k]} {each[k]:+.1f}" for k in best if abs(each[k]) >= _SMALL)
        for each, best in zip(values, order, strict=True)
    ]


def explanation(row: Any, corpus: Any, top: int, why: list[str] | None = None) -> Any:
    """Return the table of one query.

    Parameters
    ----------
    row
        A block of one query.
    corpus
        ``document_id, title, text``; a document's index is its row.
    top
        Candidates to show from the front; negatives are shown wherever they stand.
    why
        Which evidence decided, by candidate; see :func:`reasons`.

    Returns
    -------
    rich.table.Table
        Positives first, then candidates in their order.
    """
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    from anmi.candidates import NEGATIVE, SOURCES
    from anmi.judging.evidence import KINDS

    table = Table()
    # The kinds of evidence stand in one column by what they weigh, which leaves room for the judges.
    names = [name for name in row.columns if name not in KINDS or why is None]
    # What a student is trained towards is no judgment of its own.
    names = [name for name in names if name != "soft_label"]
    for name in ("rank", "document", "start", "source", *names, "verdict", "weight", *(("evidence",) if why else ())):
        number = name in names or name in ("rank", "weight")
        # An id is there to be copied; texts wrap instead.
        table.add_column(name, justify="right" if number else "left", no_wrap=name == "document")

    def add(rank: str, document: int, source: str, numbers: list[str], last: list[str], style: str) -> None:
        entry = corpus.iloc[document]
        start = " ".join(f"{entry['title'] or ''} {entry['text']}".split())[:_TEXT_START]
        cells = (rank, str(entry["document_id"]), start, source, *numbers, *last)
        table.add_row(*(Text(cell) for cell in cells), style=style)

    for place in np.flatnonzero(row.positives[0] >= 0):
        measured = [_number(row.positive_columns[n][0, place]) if n in row.positive_columns else "" for n in names]
        add("+", row.positives[0, place], "qrels", measured, ["positive", "", *([""] if why else [])], "green")
    filled = np.flatnonzero(row.filled[0])
    shown = filled[(np.arange(len(filled)) < top) | (row.verdict[0, filled] == NEGATIVE)]
    for place in shown:
        code = int(row.verdict[0, place])
        sources = "+".join(name for name, bit in SOURCES.items() if row.source[0, place] & bit)
        measured = [_number(row.columns[n][0, place]) for n in names]
        weight = _number(row.weight[0, place]) if code == NEGATIVE else ""
        style = "bold" if code == NEGATIVE else "" if code == 0 else "dim"
        last = [row.legend[code], weight, *([why[place]] if why else [])]
        add(str(place + 1), row.documents[0, place], sources, measured, last, style)
    table.caption = f"{len(shown)} of {len(filled)} candidates; bold: taken as negatives, dim: rejected by the step"
    return table


def _number(value: float) -> str:
    """Format a measurement; NaN, which means not measured, is left empty.

    Examples
    --------
    >>> _number(12.0), _number(0.123456), _number(float("nan"))
    ('12', '0.123', '')
    """
    return "" if math.isnan(value) else f"{value:.4g}" if abs(value) >= 1 else f"{value:.3f}"
