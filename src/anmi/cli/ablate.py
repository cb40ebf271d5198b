# mypy: allow-untyped-decorators
"""``kedro anmi ablate``: recipes side by side, one ``kedro run`` for each cell, over one store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import click

from anmi.cli.common import command, opened_project, store_path
from anmi.errors import AnmiError, nearest

if TYPE_CHECKING:
    import pandas as pd

METRIC: Final = "ndcg@10"
# Kept of every query, for those who compare by another one.
KEPT: Final = (METRIC, "mrr@10", "recall@10", "f2@10", "rank")
# Systems that are compared beside what is trained.
_COMPARED: Final = ("hybrid", "bm25", "zero_shot", "network", "bm25_and_network")
_NAMED: Final = re.compile(r"([\w/-]+)=(.*)")
_SETTING: Final = re.compile(r"[\w-]+(\.[\w-]+)+=.*")
_SECONDS_BETWEEN_LINES: Final = 60.0
_SIGNIFICANT: Final = 0.05
_FOLDER: Final = re.compile(r"[^\w.-]+")


class Cell(NamedTuple):
    """One run: a system, which is a recipe with settings, on a collection, with a seed."""

    folder: Path
    collection: str
    system: str
    seed: int
    params: dict[str, str]

    @property
    def kept(self) -> dict[str, Any] | None:
        """The record of the finished cell; None where there is none of these settings."""
        file = self.folder / "cell.json"
        record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        return record if record.get("params") == self.params else None


def named(text: str, settings: Sequence[str] = ()) -> tuple[str, str, dict[str, str]]:
    """Return the name, the value and the settings of ``[NAME=]VALUE`` and ``SETTING=VALUE`` parts.

    Examples
    --------
    >>> named("random=dnh_linear", ["training.options.curriculum=none"])
    ('random', 'dnh_linear', {'training.options.curriculum': 'none'})
    """
    match = _NAMED.fullmatch(text)
    name, value = match.groups() if match else (",".join([text, *settings]), text)
    return name, value, dict(part.split("=", 1) for part in settings)


def cells(
    systems: Sequence[str],
    collections: str,
    seeds: str,
    common: str,
    output: Path,
    env: str | None = None,
) -> list[Cell]:
    """Return all cells, collection by collection."""
    groups: list[list[str]] = []
    for part in filter(None, collections.split(",")):
        if _SETTING.fullmatch(part) and groups:
            groups[-1].append(part)
        else:
            groups.append([part])
    base = {
        # Figures are of the first training.
        "final": "never",
        **({"env": env} if env else {}),
        **dict(part.split("=", 1) for part in filter(None, common.split(","))),
    }
    planned = []
    for group, text, seed in product(groups, systems, map(int, seeds.split(","))):
        place, collection, of_collection = named(group[0], group[1:])
        recipe, _, settings = text.partition(":")
        name, recipe, of_system = named(recipe, list(filter(None, settings.split(","))))
        folder = output / _FOLDER.sub("_", place) / _FOLDER.sub("_", name) / f"seed{seed}"
        params = (
            base
            | {"collection": collection, "recipe": recipe, "seed": str(seed)}
            | of_collection
            | of_system
        )
        planned.append(Cell(folder, place, name, seed, params))
    return planned


@command(
    "kedro anmi ablate in_batch naive_top --collections api_docs --seeds 1,2,3",
    short_help="Compare recipes over collections and seeds.",
)
@click.argument("systems", nargs=-1, required=True)
@click.option(
    "--collections",
    default="api_docs",
    show_default=True,
    help="`[NAME=]COLLECTION[,SETTING=VALUE…],…`.",
)
@click.option("--seeds", default="1", show_default=True, help="Seeds, separated by commas.")
@click.option("--params", default="", help="Settings of all cells, as for `kedro run`.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    default=Path("data/ablations"),
    show_default=True,
    help="Folder of the cells and the table.",
)
def ablate(
    context: Any, systems: tuple[str, ...], collections: str, seeds: str, params: str, output: Path
) -> Any:
    """Run recipes on collections with seeds, and compare the others with the first recipe.

    SYSTEMS are recipes, `[NAME=]RECIPE[:SETTING=VALUE,…]`. Each cell is a `kedro run` in its own
    folder; all share the store. A cell that has run with the same settings is not run again.
    `ablation.md` and `ablation.json` in the output folder hold the table: means with intervals, and
    paired tests over queries.
    """
    try:
        todo = cells(systems, collections, seeds, params, output, context.env)
    except ValueError as error:
        raise AnmiError(
            f"SETTING=VALUE and whole numbers as seeds are expected ({error})"
        ) from None
    recipes = context.params["recipes"].names()
    for name in (cell.params["recipe"] for cell in todo):
        if name not in recipes:
            raise AnmiError(f'there is no recipe "{name}": {nearest(name, recipes)}')
    store = store_path(context).resolve()
    failed = [cell for cell in todo if cell.kept is None and not run(cell, store, context.env)]
    document = write(output, [cell for cell in todo if cell not in failed], failed)
    for line in verdict(document):
        click.echo(line)
    click.echo(f"table {output / 'ablation.md'}")
    return document | {"ok": not failed}


def run(cell: Cell, store: Path, env: str | None) -> bool:
    """Run a cell and keep what is compared; tell whether it came to its end."""
    started = time.monotonic()
    log = cell.folder / "log.txt"
    cell.folder.mkdir(parents=True, exist_ok=True)
    (cell.folder / "cell.json").unlink(missing_ok=True)
    settings = ",".join(f"{name}={value}" for name, value in cell.params.items() if name != "env")
    command = [str(Path(sys.executable).with_name("kedro")), "run", "--params", settings]
    command += ["--env", env] if env else []
    place = {"ANMI_DATA_ROOT": str(cell.folder), "ANMI_STORE": str(store)}
    tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{cell.folder.parents[2] / 'mlflow.db'}"}
    name = f"{cell.collection}, {cell.system}, seed {cell.seed}"
    click.echo(f"{name}: started", err=True)
    with log.open("w", encoding="utf-8") as stream:
        environment = {**tracking, **os.environ, **place}
        process = subprocess.Popen(
            command, env=environment, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            code = _watched(process, name, log, started)
        except BaseException:
            process.terminate()
            raise
    if code:
        click.echo(f"{name}: failed, {log} says why: {_last_line(log)}", err=True)
        return False
    # For what is left of this command, which opens nothing else.
    os.environ.update(place)
    with opened_project(env) as context:
        queries, facts = measured(context.catalog, cell.params["recipe"])
    queries.to_parquet(cell.folder / "queries.parquet", index=False)
    seconds = round(time.monotonic() - started, 1)
    text = json.dumps({"params": cell.params, "seconds": seconds, "facts": facts}, indent=1)
    (cell.folder / "cell.json").write_text(text, encoding="utf-8")
    mean = queries[(queries.judgments == "original") & (queries.system == "trained")][METRIC].mean()
    click.echo(f"{name}: nDCG@10 {mean:.4f}, {seconds:.0f} s", err=True)
    return True


def _watched(process: subprocess.Popen[bytes], name: str, log: Path, started: float) -> int:
    """Wait for a run, with a line a minute; return its exit code."""
    while True:
        try:
            return process.wait(_SECONDS_BETWEEN_LINES)
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - started
            click.echo(f"{name}: {seconds:.0f} s, {_last_line(log)}", err=True)


def _last_line(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def verdict(document: dict[str, Any]) -> list[str]:
    """Say what differs between the systems besides their recipes, and which one is ahead."""
    lines = []
    settings = [cell["params"] for cell in document["cells"]]
    varied = {name for params in settings for name in params} - {"collection", "recipe", "seed"}
    differing = sorted(
        name for name in varied if len({params.get(name) for params in settings}) > 1
    )
    if settings:
        lines.append(
            f"settings that differ besides recipe, collection and seed: {', '.join(differing)}"
            if differing
            else "all settings but recipe, collection and seed are equal"
        )
    for row in document["rows"]:
        if row["difference"] is None or (row["bucket"], row["judgments"]) != ("all", "original"):
            continue
        relation = "not clearly different from"
        if row["p_holm"] < _SIGNIFICANT:
            relation = "above" if row["difference"] > 0 else "below"
        lines.append(
            f"{row['collection']}: {row['system']} is {relation} {row['baseline']}"
            f" ({row['difference']:+.4f} nDCG@10, p = {row['p_holm']:.4f} after Holm,"
            f" {row['queries']:,} queries)"
        )
    return lines


def measured(catalog: Any, recipe: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the metrics of every query, by labels and by completed judgments, and facts."""
    import pandas as pd

    from anmi.evaluation.metrics import completed_judgments, evaluate, of_documents

    scores, runs, qrels, equivalents = map(
        catalog.load, ("query_metrics", "runs", "qrels", "equivalents")
    )
    names = {recipe: "trained"} | {name: name for name in _COMPARED}
    tables = [scores[["query_id", "system", *KEPT]].assign(judgments="original")]
    qrels = qrels[qrels.query_id.isin(scores.query_id)]
    if len(equivalents) and len(qrels):
        judged = of_documents(completed_judgments(qrels, equivalents), catalog.load("corpus"))
        for system, ranking in runs.groupby("system"):
            table = evaluate(judged, ranking, (10,)).reset_index()
            tables.append(table[["query_id", METRIC]].assign(system=system, judgments="completed"))
    queries = pd.concat(tables).merge(catalog.load("query_buckets"), on="query_id")
    queries = queries[queries.system.isin(names)].replace({"system": names})
    selected = catalog.load("selection_summary")
    facts = {
        "train_seconds": catalog.load("training_summary").get("seconds"),
        "rows": selected.get("rows"),
        "coverage": selected.get("coverage"),
        "false_negative_rate": (catalog.load("results")["false_negatives"] or {}).get("share"),
    }
    knowledge = catalog.load("knowledge_metrics").get(recipe, {})
    return queries.reset_index(drop=True), facts | {
        k: v for k, v in knowledge.items() if isinstance(v, float)
    }


def rows(finished: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Yield a row by collection, judgments, bucket and system; the first one is the baseline."""
    import pandas as pd

    from anmi.evaluation.generalisation import PSEUDO

    if not finished:
        return
    tables = [
        pd.read_parquet(cell.folder / "queries.parquet").assign(
            collection=cell.collection, cell=cell.system
        )
        for cell in finished
    ]
    queries = pd.concat(tables)
    buckets = pd.concat([queries[queries.bucket != PSEUDO].assign(bucket="all"), queries])
    keys = ["collection", "judgments", "bucket"]
    for group, metrics in buckets.groupby(keys, sort=False):
        labels = dict(zip(keys, cast("tuple[str, ...]", group), strict=True))
        for row in _compared(metrics):
            cells = [
                cell
                for cell in finished
                if (cell.collection, cell.system) == (labels["collection"], row["system"])
            ]
            facts = pd.DataFrame([(cell.kept or {})["facts"] for cell in cells]).mean().to_dict()
            yield {**labels, **row, "seeds": len(cells), "facts": facts}


def _compared(metrics: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the mean of every system over queries that all were measured on, and its test."""
    from anmi.evaluation.significance import compare, holm, interval

    trained, hybrid = (
        metrics[metrics.system == system].pivot_table(
            index="query_id", columns="cell", values=METRIC, sort=False
        )
        for system in ("trained", "hybrid")
    )
    trained = trained.dropna()
    if trained.empty:
        return
    baseline, *others = trained
    asked_by = metrics.drop_duplicates("query_id").set_index("query_id").asked_by
    settings: Any = {"seed": 1, "groups": asked_by[trained.index].to_numpy()}
    tests = {
        system: compare(trained[system].to_numpy(), trained[baseline].to_numpy(), **settings)
        for system in others
    }
    adjusted = holm([test.p_value for test in tests.values()]).tolist()
    p_holm = dict(zip(others, adjusted, strict=True))
    for system in trained:
        mean, low, high = interval(trained[system].to_numpy(), **settings)
        test = tests.get(system)
        yield {
            "system": system,
            "queries": len(trained),
            "ndcg_10": mean,
            "low": low,
            "high": high,
            "baseline": baseline,
            "difference": test.difference if test else None,
            "p_value": test.p_value if test else None,
            "p_holm": p_holm.get(system),
            "hybrid_ndcg_10": float(hybrid[system].mean()),
        }


def write(output: Path, finished: Sequence[Cell], failed: Sequence[Cell]) -> dict[str, Any]:
    """Write the table of the cells, as JSON and as Markdown."""
    from anmi.buckets import write_text

    records, failures = (
        [cell._asdict() | {"folder": str(cell.folder.relative_to(output))} for cell in cells]
        for cells in (finished, failed)
    )
    document = {"cells": records, "failed": failures, "rows": list(rows(finished))}
    lines = [
        "# Ablation",
        "",
        f"{len(finished)} cells, {len(failed)} failed. Queries count by their mean over seeds.",
        *("- " + line for line in verdict(document)),
    ]
    section = None
    for row in document["rows"]:
        title = f"## {row['collection']}, {row['judgments']} judgments, {row['bucket']} queries"
        if title != section:
            head = (
                f"| recipe | nDCG@10 of {row['queries']} | 95 % | − {row['baseline']} | p (Holm) |"
                " with BM25 | training, s |"
            )
            lines += ["", title, "", head, "|---|---:|---:|---:|---:|---:|---:|"]
        section = title
        has_test = row["p_holm"] is not None
        cells = [
            row["system"],
            f"{row['ndcg_10']:.4f}",
            f"{row['low']:.4f} to {row['high']:.4f}",
            f"{row['difference']:+.4f}" if has_test else "",
            f"{row['p_holm']:.4f}" if has_test else "",
            f"{row['hybrid_ndcg_10']:.4f}",
            f"{row['facts']['train_seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    write_text(str(output / "ablation.json"), json.dumps(document, indent=1, ensure_ascii=False))
    write_text(str(output / "ablation.md"), "\n".join([*lines, ""]))
    return document
