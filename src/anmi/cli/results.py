# mypy: allow-untyped-decorators
"""``kedro anmi results``: what the last run brought."""

from __future__ import annotations

import shlex
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import belonging, console, echo_json, echo_places, example, json_option, load, places, project
from anmi.errors import AnmiError, masked, visible

RESULT_KEYS: Final = (
    "date", "machine", "versions", "prompts", "rows", "comparisons", "funnel", "expected", "false_negatives", "paths",
)  # fmt: skip


@click.command(epilog=example("kedro anmi results"))
@json_option
@env_option
def results(as_json: bool, env: str | None) -> None:
    """Print the results of the last run."""
    with project(env, as_json=as_json) as context:
        catalog = belonging(context, "results", "report", "trained_model")
        if not catalog.exists("results") and catalog.exists("selection_summary"):
            raise AnmiError(
                'there is no "results" yet, since nothing was evaluated: `kedro anmi negatives` shows what was mined, '
                "and `kedro run --pipelines adaptation,training,evaluation,reporting` goes on from there"
            )
        saved = load(catalog, "results", "evaluation,reporting")
        saved = saved | {"paths": saved.get("paths") or places(catalog, "report", "trained_model")}
        if as_json:
            echo_json({key: saved.get(key) for key in RESULT_KEYS})
            return
        _print(saved)
        click.echo(f"{'tracking database':<18} {_tracking(context)}")
        block = next(iter(catalog.load("selection")), None) if catalog.exists("selection") else None
        if block is not None and len(block):
            option = f" --env {env}" if env else ""
            click.echo(f"\nnext: kedro anmi explain{option} {visible(shlex.quote(str(block.query_ids[0])))}")


def _tracking(context: Any) -> str:
    from anmi.runs.record import data_root
    from anmi.runs.tracking import read_settings, tracking_uri

    settings = read_settings(context)
    return masked(tracking_uri(settings, data_root(context))) if settings.enabled else "switched off"


def _print(saved: dict[str, Any]) -> None:
    import pandas as pd

    from anmi.report.by_bucket import bucket_table, composition, standing_in, verdict, warning
    from anmi.report.console import NOTHING_MINED, rejections_table, results_table
    from anmi.report.false_negatives import false_negatives_lines
    from anmi.report.negatives_console import expected_sentence
    from anmi.retrieval.prompts import in_words

    out = console()
    measured, compared = pd.DataFrame(saved["rows"]), pd.DataFrame(saved["comparisons"])
    out.print(results_table(measured, compared))
    if by_bucket := bucket_table(measured):
        out.print(by_bucket)
    for sentence in filter(
        None,
        (
            standing_in(saved.get("test_queries")),
            verdict(measured, compared),
            composition(saved.get("hybrid")),
            warning(measured, compared),
        ),
    ):
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
    quarantined = saved.get("quarantined")
    if quarantined:
        click.echo("quarantined: " + ", ".join(f"{count} x {reason}" for reason, count in quarantined.items()))
    prompts = saved.get("prompts") or {}
    if any(prompts.values()):
        click.echo(f"{'prompts':<18} {in_words(prompts)}")
    echo_places(saved.get("paths") or {})
