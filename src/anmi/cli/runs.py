# mypy: allow-untyped-decorators
"""Commands on earlier runs: ``kedro anmi runs``, ``resume`` and ``prune``."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from anmi import buckets
from anmi.cli.common import closing_records, command, console, store_path, table
from anmi.errors import AnmiError
from anmi.hooks.record import UNFINISHED, VERSION, Runs, data_root

_DAY: Final = 86_400.0


@command("kedro anmi runs", short_help="List the runs, or show one of them.")
@click.argument("run_id", required=False)
def runs(context: Any, run_id: str | None) -> Any:
    """List the runs with recipe, collection and status; with RUN_ID print the `run.json` of one."""
    history = Runs(data_root(context))
    if run_id is not None:
        record = history.get(run_id)
        click.echo(json.dumps(record, indent=2, ensure_ascii=False))
        return record
    records = history.all()[::-1]
    listing = table("Runs", "run,status,pipelines,recipe,collection,start,end", plain="run,status")
    for record in records:
        parameters = record["parameters"]
        filters = record.get("filters", {})
        chosen = [f"{name}={','.join(values)}" for name, values in filters.items()]
        cells = (
            record["run_id"],
            record["status"],
            " ".join([",".join(record["pipelines"]), *chosen]),
            parameters.get("recipe"),
            parameters.get("collection"),
            record["start"],
            record["end"] or "",
        )
        listing.add_row(*map(str, cells))
    if records:
        console(140).print(listing)
    else:
        click.echo(f"nothing was run under {history.root} yet: `kedro run` does")
    return records


@command("kedro anmi resume", short_help="Go on with a run that was killed or failed.")
@click.argument("run_id", required=False)
def resume(context: Any, run_id: str | None) -> Any:
    """Go on with a run that was killed or failed: RUN_ID, or the last one.

    It skips nodes whose results are saved and runs the others with the run's parameters, under the
    same run id.
    """
    from kedro.framework.session import KedroServiceSession

    record = resumable(Runs(data_root(context)), run_id)
    env = None if record["environment"] == "local" else record["environment"]
    with closing_records(), KedroServiceSession.create(env=env) as session:
        session.run(
            run_id=record["run_id"],
            pipeline_names=record["pipelines"],
            runtime_params=record["runtime_parameters"],
            only_missing_outputs=True,
            **record["filters"],
        )
    click.echo(f"run {record['run_id']} is complete")
    return {"run_id": record["run_id"]}


def resumable(run_records: Runs, run_id: str | None) -> dict[str, Any]:
    """Return the record of the run to go on with, by default the last that did not end well."""
    if run_id is None:
        unfinished = [record for record in run_records.all() if record["status"] in UNFINISHED]
        if not unfinished:
            raise AnmiError(
                f"no run under {run_records.root} was killed or has failed: there is nothing to"
                " resume"
            )
        return unfinished[-1]
    record = run_records.get(run_id)
    if record["status"] == "finished":
        raise AnmiError(
            f"run {record['run_id']} has finished: there is nothing to resume, `kedro run` makes a"
            " new one"
        )
    if record["status"] == "running" and "://" not in run_records.root:
        raise AnmiError(
            f"run {record['run_id']} is still running: wait for it, or end its process first"
        )
    return record


@command(
    "kedro anmi prune --keep 5 --dry-run", short_help="Remove what the newest runs do not need."
)
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, metavar="N", help="Finished runs to keep."
)
@click.option(
    "--unused",
    type=click.FloatRange(min=0, max=36_500),
    metavar="DAYS",
    help="Also clear the store of what was not used for this many days.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(context: Any, keep: int, unused: float | None, dry_run: bool, yes: bool) -> Any:
    """Remove artifacts that neither the N newest finished runs nor models with an alias need.

    Running runs are kept too, and the last run if it can be resumed. With --unused, embeddings,
    judgments and models leave the store, too; later runs compute them again if they need them.
    """
    if not (yes or dry_run) and click.get_current_context().params["as_json"]:
        raise click.UsageError(
            "--json asks nothing: add --yes to remove, or --dry-run to see what would go"
        )
    history = Runs(data_root(context))
    records = history.all()
    reasons = kept(records, keep, aliased_runs(context, records))
    entries = context.config_loader["catalog"].values()
    places = {str(entry["filepath"]) for entry in entries if entry.get("versioned")}
    removable = list(removals(history, records, reasons, places))
    for text in [
        f"kept: {name} ({reason})" for name, reason in sorted(reasons.items())
    ] + removable:
        click.echo(text)
    if not dry_run and removable:
        if not yes:
            click.confirm("Remove these?", abort=True)
        # Records last, so that what is left after a crash still says whose it is.
        for place in sorted(removable, key=lambda place: place.startswith(f"{history.root}/runs/")):
            buckets.remove(place)
    click.echo(
        f"{'would be removed' if dry_run else 'removed'}: {len(removable):,} versions, records and"
        " leftovers"
    )
    document: dict[str, Any] = {"removed": not dry_run, "kept": reasons, "removals": removable}
    if unused is not None and not dry_run and (store_path(context) / "data.mdb").exists():
        from anmi.store import Store

        with Store(store_path(context)) as store:
            values, folders = store.prune(unused)
        click.echo(
            f"removed from the store: values of {values} fingerprints and {folders} folders of"
            " models"
        )
        document["store"] = {"values": values, "folders": folders}
    return document


def kept(
    records: Sequence[Mapping[str, Any]], number: int, aliased: Collection[str]
) -> dict[str, str]:
    """Return the runs to keep, each with the reason.

    Parameters
    ----------
    records
        Of all runs, the oldest first.
    number
        How many finished runs to keep.
    aliased
        Ids of Kedro's or of MLflow's runs whose model an alias stands for.

    Examples
    --------
    >>> finished = {"status": "finished", "loaded": {}, "saved": {}}
    >>> runs = [finished | {"run_id": f"r{number}"} for number in range(3)]
    >>> runs[2]["loaded"] = {"corpus": {"version": "r0"}}
    >>> kept(runs, 1, ())
    {'r2': 'among the newest', 'r0': 'r2 loaded from it'}
    """
    by_id = {str(record["run_id"]): record for record in records}
    finished = [name for name, record in by_id.items() if record["status"] == "finished"]
    reasons = dict.fromkeys(reversed(finished[-number:]), "among the newest")
    for name, record in by_id.items():
        if record["status"] == "running":
            reasons.setdefault(name, "still running")
        elif name in aliased or record.get("tracking_run") in aliased:
            reasons.setdefault(name, "its model has an alias")
        elif record["status"] in UNFINISHED and record is records[-1]:
            reasons.setdefault(name, "can be resumed")
    # The registry may know runs of which there is no record here.
    reasons |= {
        name: "its model has an alias"
        for name in aliased
        if VERSION.fullmatch(name) and name not in reasons
    }
    waiting = list(reasons)
    while waiting:
        name = waiting.pop()
        record = by_id.get(name, {})
        others = {
            artifact.get("version")
            for kind in ("loaded", "saved")
            for artifact in record.get(kind, {}).values()
        }
        for version in sorted(others - reasons.keys() - {None}):
            reasons[str(version)] = f"{name} loaded from it"
            waiting.append(str(version))
    return reasons


def removals(
    run_records: Runs,
    records: Sequence[Mapping[str, Any]],
    keep: Collection[str],
    places: Collection[str],
) -> Iterator[str]:
    """Yield paths or URLs of what may go: versions and records of other runs, and leftovers.

    What is newer than the last record belongs to a run that just began. A version of a run of which
    nothing is known is an error, as it may be needed.
    """
    last = records[-1]["run_id"] if records else ""
    ids = {record["run_id"] for record in records}
    running = {record["run_id"] for record in records if record["status"] == "running"}
    for place in sorted(places):
        for version in buckets.names(place):
            if (
                not VERSION.fullmatch(version)
                or version > last
                or version in running
                or version in keep
            ):
                continue
            if version not in ids:
                record = f"{run_records.root}/runs/{version}/run.json"
                raise AnmiError(
                    f"{place}/{version} is of a run without {record}: put that back, or remove the"
                    " version"
                )
            yield f"{place}/{version}"
    if "://" not in run_records.root:
        # What killed writes left more than a day ago; newer ones may be somebody's.
        for path in sorted(Path(run_records.root).rglob(".*.tmp")):
            if time.time() - path.stat().st_mtime > _DAY:
                yield str(path)
    yield from (
        f"{run_records.root}/runs/{record['run_id']}"
        for record in records
        if record["run_id"] not in keep
    )


def aliased_runs(context: Any, records: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the runs, of Kedro or of MLflow, whose model an alias in the registry stands for.

    A registry that cannot be asked, or that does not know the last run that was tracked, is an
    error: what it needs might be removed.
    """
    from anmi.datasets.model_registry import ModelRegistry, registry_errors
    from anmi.hooks.mlflow import tracked_at

    tracked = [str(record["tracking_run"]) for record in records if record.get("tracking_run")]
    if not tracked or not (uri := tracked_at(context)):
        return set()
    registry = ModelRegistry(uri)
    lost = (
        "set MLFLOW_TRACKING_URI to the store in which the last run was tracked, or put it back"
        " from a copy"
    )
    with registry_errors(uri, "the model registry is not that of these runs", lost):
        registry.client.get_run(tracked[-1])
    aliased = {
        (name, version) for name in registry.names() for version in registry.aliases(name).values()
    }
    entries = [registry.entry(*name_and_version) for name_and_version in aliased]
    return {name for entry in entries for name in (entry.tags.get("run_id", ""), entry.run) if name}
