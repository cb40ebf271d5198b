# mypy: allow-untyped-decorators
"""``kedro anmi compare``: two finished runs side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import console, echo_json, example, json_option, project, table

_METRICS: Final = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
_SHOWN: Final = 30


@click.command(
    short_help="Show two runs side by side, and whether they differ.",
    epilog=example("kedro anmi compare previous latest"),
)
@click.argument("first", default="previous")
@click.argument("second", default="latest")
@click.option("--metric", type=click.Choice(_METRICS), default="ndcg@10", show_default=True, help="Of the table.")
@json_option
@env_option
def compare(first: str, second: str, metric: str, as_json: bool, env: str | None) -> None:
    """Show the parameters, the metrics and the training rows of two finished runs, FIRST and SECOND, side by side.

    A run is named by its id, the start of it, `latest` or `previous`. Metrics are of the queries that both runs were
    measured on, with the interval and the p-value of the paired difference; p-values are not adjusted for their number.
    """
    from anmi.runs.manifests import Runs
    from anmi.runs.record import data_root
    from anmi.runs.side_by_side import side_by_side

    with project(env, as_json=as_json) as context:
        known = Runs(data_root(context))
        found = side_by_side(context, [known.get(name) for name in (first, second)], int(context.params["seed"]))
    if as_json:
        echo_json(found)
    else:
        _print(found, metric)


def _print(found: Mapping[str, Any], metric: str) -> None:
    from rich.text import Text

    from anmi.report.inputs import metric_name

    for place, run in zip(("first", "second"), found["runs"], strict=True):
        click.echo(f"{place:<7} {run['run_id']}: {run['collection']}, recipe {run['recipe']}, encoder {run['encoder']}")
    if not found["same_collection"]:
        click.echo("the collections are not the same files: metrics differ by what is searched as well")
    parameters = found["parameters"]
    if parameters:
        made = table("Parameters that differ", "parameter,first,second")
        for name, values in list(parameters.items())[:_SHOWN]:
            made.add_row(*map(Text, (name, *("–" if value is None else str(value) for value in values))))
        console().print(made)
        if len(parameters) > _SHOWN:
            click.echo(f"and {len(parameters) - _SHOWN} more, by --json")
    else:
        click.echo("no parameter differs")
    _print_metrics(found, metric, metric_name(metric))
    rows = found["training_rows"]
    if not rows:
        click.echo("training rows: one of the runs has none")
    elif rows["same"] == rows["first"] == rows["second"]:
        click.echo(f"training rows: the same {rows['same']:,}")
    else:
        click.echo(
            f"training rows: {rows['first']:,} and {rows['second']:,}; {rows['only_first']:,} only in the first, "
            f"{rows['only_second']:,} only in the second, {rows['other_negatives']:,} with other negatives"
        )


def _print_metrics(found: Mapping[str, Any], metric: str, name: str) -> None:
    from rich.text import Text

    from anmi.report.inputs import between, p_value, signed, system_name

    rows = [row for row in found["metrics"] if row["metric"] == metric]
    if not rows:
        click.echo("metrics: one of the runs was not evaluated, or they have no system in common")
        return
    made = table(name, "system,bucket,queries,first,second,second - first,p", right="queries,first,second,p")
    for row in rows:
        change, p = "–", "–"
        if "difference" in row:
            low, high = (math.nan if row[end] is None else row[end] for end in ("low", "high"))
            change = f"{signed(row['difference'])} [{between(low, high, signed, ', ')}]"
            p = p_value(row["p_value"])
        values = (f"{row['first']:.3f}", f"{row['second']:.3f}")
        made.add_row(*map(Text, (system_name(row["system"]), row["bucket"], f"{row['queries']:,}", *values, change, p)))
    console().print(made)
    queries = found["queries"]
    if not queries["same"]:
        click.echo(
            "the runs have no query in common with the same text and labels: each mean is of the run's own queries"
        )
    elif queries["same"] < max(queries["first"], queries["second"]):
        click.echo(
            f"{queries['same']:,} queries are the same in both, of {queries['first']:,} and {queries['second']:,}; "
            "the table is of those alone"
        )
