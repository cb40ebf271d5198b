# mypy: allow-untyped-decorators
"""``kedro anmi results`` and ``kedro anmi audit``: what the last run, or the last audit, brought."""

from __future__ import annotations

import shlex
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import (
    belonging,
    console,
    echo_json,
    echo_places,
    echo_where,
    example,
    json_option,
    load,
    places,
    project,
    run_option,
)
from anmi.errors import masked, visible

RESULT_KEYS: Final = (
    "collection", "recipe", "run", "date", "marks", "machine", "versions", "prompts", "rows", "comparisons", "funnel",
    "expected", "false_negatives", "paths",
)  # fmt: skip


# Of a mining that nothing was trained on.
MINING_KEYS: Final = (
    "recipe", "rows", "negatives_wanted", "coverage", "by_source", "origins", "funnel", "expected",
    "false_negatives",
)  # fmt: skip
_MINED: Final = ("negatives", "training_rows")
_ONWARD: Final = ("adaptation", "training", "evaluation", "reporting")


@click.command(short_help="Print the results of the last run.", epilog=example("kedro anmi results"))
@run_option
@json_option
@env_option
def results(run_id: str | None, as_json: bool, env: str | None) -> None:
    """Print the results of the last run, or of --run; of one that was not evaluated, what was mined."""
    from anmi.hooks.mlflow import tracked_at
    from anmi.hooks.record import Runs, data_root, flatten
    from anmi.hooks.versions import command

    with project(env, as_json=as_json) as context:
        names = ("results", "report", "trained_model", "selection", "selection_summary", *_MINED)
        catalog = belonging(context, *names, run_id=run_id)
        if not catalog.exists("results") and catalog.exists("selection_summary"):
            summary = catalog.load("selection_summary")
            found = {key: summary.get(key) for key in MINING_KEYS} | {"paths": places(catalog, *_MINED)}
            if as_json:
                echo_json(found)
                return
            echo_where(context, catalog, "selection_summary")
            _print_mining(found)
            version = catalog.get("selection_summary").resolve_load_version()
            params = flatten(Runs(data_root(context)).read(version).get("runtime_parameters", {}))
            options = {"pipelines": _ONWARD} | ({"env": [env]} if env else {})
            click.echo(f"\nnext: {command(options, params)}")
            return
        saved = load(catalog, "results", "evaluation,reporting")
        saved = saved | {"paths": saved.get("paths") or places(catalog, "report", "trained_model")}
        if as_json:
            echo_json({key: saved.get(key) for key in RESULT_KEYS})
            return
        echo_where(context, catalog, "results")
        _print(saved)
        click.echo(f"{'tracking database':<18} {masked(tracked_at(context)) or 'switched off'}")
        block = next(iter(catalog.load("selection")), None) if catalog.exists("selection") else None
        if block is not None and len(block):
            option = f" --env {env}" if env else ""
            click.echo(f"\nnext: kedro anmi explain{option} {visible(shlex.quote(str(block.query_ids[0])))}")


def _print_mining(found: dict[str, Any]) -> None:
    """Print what a mining brought that nothing was trained on: negatives, from where, what became of the rest."""
    from anmi.report.console import (
        NOTHING_MINED,
        dropped_table,
        expected_sentence,
        origins_table,
        rejections_table,
        source_table,
    )
    from anmi.report.sentences import false_negatives_lines

    if not any(row["candidates"] for row in found["funnel"]):
        click.echo(NOTHING_MINED)
        return
    tables = (source_table(found["by_source"]), rejections_table(found["funnel"]), origins_table(found["origins"]))
    for made in (*tables, dropped_table(found["funnel"])):
        if made is not None:
            console().print(made)
    full = f"{found['coverage']:.1%} of them with all {found['negatives_wanted']} negatives"
    click.echo(f"recipe {found['recipe']}: {found['rows']:,} rows, {full}")
    said = [expected_sentence(found["expected"]), *false_negatives_lines(found["false_negatives"] or {})]
    for line in filter(None, said):
        click.echo(line)
    echo_places(found["paths"])


def _print(saved: dict[str, Any]) -> None:
    import pandas as pd

    from anmi.report.console import NOTHING_MINED, bucket_table, expected_sentence, rejections_table, results_table
    from anmi.report.sentences import composition, false_negatives_lines, pseudo_query_notice, verdict, warning
    from anmi.retrieval.prompts import in_words

    out = console()
    measured, compared = pd.DataFrame(saved["rows"]), pd.DataFrame(saved["comparisons"])
    if len(measured):
        out.print(results_table(measured, compared))
    if by_bucket := bucket_table(measured):
        out.print(by_bucket)
    said = [
        pseudo_query_notice(saved.get("test_queries")),
        verdict(measured, compared),
        composition(saved.get("hybrid")),
    ]
    for sentence in filter(None, [*said, warning(measured, compared)]):
        click.echo(sentence)
    if any(row["candidates"] for row in saved["funnel"]):
        out.print(rejections_table(pd.DataFrame(saved["funnel"])))
    else:
        click.echo(NOTHING_MINED)
    if expected := expected_sentence(saved.get("expected")):
        click.echo(expected)
    # What a label alone cannot show: known only where the collection holds its own truth.
    for line in false_negatives_lines(saved.get("false_negatives") or {}):
        click.echo(line)
    if saved.get("marks"):
        click.echo(f"marks: {saved['marks']}")
    quarantined = saved.get("quarantined")
    if quarantined:
        click.echo("quarantined: " + ", ".join(f"{count} x {reason}" for reason, count in quarantined.items()))
    prompts = saved.get("prompts") or {}
    if any(prompts.values()):
        click.echo(f"{'prompts':<18} {in_words(prompts)}")
    echo_places(saved.get("paths") or {})


@click.command(epilog=example("kedro anmi audit"))
@json_option
@env_option
def audit(as_json: bool, env: str | None) -> None:
    """Print what the last audit found of recipes and judges."""
    with project(env, as_json=as_json) as context:
        catalog = belonging(context, "audit_summary", "audit_recipes", "audit_judges")
        summary = load(catalog, "audit_summary", "audit")
        if as_json:
            echo_json(summary)
            return
        from anmi.report.console import judges_table, recipes_table

        out = console()
        out.print(recipes_table(catalog.load("audit_recipes"), summary))
        out.print(judges_table(catalog.load("audit_judges")))
        for name, reason in summary["failed"].items():
            click.echo(f"{name} cannot be run on this collection: {reason}")
