# mypy: allow-untyped-decorators
"""Commands on earlier runs: ``kedro anmi runs``, ``reproduce``, ``resume`` and ``prune``."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import (
    confirm_removal,
    console,
    echo_json,
    example,
    json_option,
    plain_errors,
    project,
    silence,
    size_text,
    table,
    told_of_interruption,
)
from anmi.errors import AnmiError

if TYPE_CHECKING:
    from anmi.runs.manifests import Runs
    from anmi.runs.prune import Removal
    from anmi.runs.reproduce import Reproduction

_WIDTH: Final = 140
_KEYS: Final = ("run_id", "status", "pipelines", "recipe", "collection", "start", "seconds", "bytes", "resumed_from")


@contextmanager
def _found(env: str | None, *, as_json: bool = False) -> Iterator[tuple[Any, Runs]]:
    """Give the project's context, and the runs under its data root."""
    from anmi.runs.manifests import Runs
    from anmi.runs.record import data_root

    with project(env, as_json=as_json) as context:
        yield context, Runs(data_root(context))


def _known(env: str | None) -> Runs:
    """Return the runs under the data root, without the seconds that checking the whole configuration takes."""
    from kedro.framework.session import KedroSession

    from anmi.runs.manifests import Runs
    from anmi.runs.record import data_root

    with plain_errors(), KedroSession.create(env=env) as session:
        loader = session._get_config_loader()
        return Runs(data_root(SimpleNamespace(config_loader=loader, project_path=session._project_path)))


@click.command(short_help="List the runs: what ran on what, and how it ended.", epilog=example("kedro anmi runs"))
@json_option
@env_option
def runs(as_json: bool, env: str | None) -> None:
    """List the runs: what each ran on what, how it ended, and how much of it is there."""
    with _found(env, as_json=as_json) as (context, known):
        rows = [_row(manifest, size) for manifest, size in _with_sizes(context, known)]
        if as_json:
            echo_json(rows)
            return
        if not rows:
            raise AnmiError(f"nothing was run under {known.root} yet: `kedro run` does")
        console(_WIDTH).print(_runs_table(rows))


@click.command(
    short_help="Make a run's selection again, and compare byte by byte.", epilog=example("kedro anmi reproduce latest")
)
@click.argument("run_id")
@click.option("--keep", is_flag=True, help="Keep the folder that the repetition was made in.")
@json_option
@env_option
def reproduce(run_id: str, keep: bool, as_json: bool, env: str | None) -> None:
    """Make the selection of RUN_ID again from its manifest, and compare it byte by byte.

    Ends with 0 where it is equal, with 1 where it differs.
    """
    from anmi.runs import reproduce as repeating

    known = _known(env)

    def warn(changed: Mapping[str, str]) -> None:
        for part, text in changed.items():
            click.echo(f"Warning: {part} changed since: {text}", err=True)

    with silence() if as_json else nullcontext(), plain_errors(), told_of_interruption():
        done = repeating.reproduce(known, known.get(run_id), warn, keep=keep)
    if as_json:
        told = {name: {"files": found.files, "counts": found.counts} for name, found in done.differences.items()}
        parts = {"run_id": done.run_id, "equal": done.is_equal, "changed": done.changed, "differences": told}
        echo_json({**parts, "folder": done.folder})
    else:
        _tell(done)
    if not done.is_equal:
        sys.exit(1)


def _tell(done: Reproduction) -> None:
    for name, difference in done.differences.items():
        if not difference:
            click.echo(f"{name}: equal, byte for byte")
            continue
        for part, text in done.changed.items():
            click.echo(f"{part} changed since run {done.run_id}: {text}")
        click.echo(f"{name}: differs: {', '.join(difference.files[:5])}")
        if difference.counts:
            click.echo(f"{name}: " + ", ".join(f"{count:,} {what}" for what, count in difference.counts.items()))
    if done.folder:
        click.echo(f"kept in {done.folder}")


@click.command(short_help="Go on with a run that was killed or failed.", epilog=example("kedro anmi resume"))
@click.argument("run_id", required=False)
@click.option("--force", is_flag=True, help="Also when collection, code, packages or parameters changed since.")
@json_option
@env_option
def resume(run_id: str | None, force: bool, as_json: bool, env: str | None) -> None:
    """Go on with a run that was killed or failed: RUN_ID, or the last of them.

    What it had saved is not made again, and the rest is made under its parameters.
    """
    from anmi.runs import resume as resuming

    with silence() if as_json else nullcontext(), plain_errors(), told_of_interruption():
        manifest = resuming.resumable(_known(env), run_id)
        made, rest = resuming.resume(manifest, force=force)
    if as_json:
        echo_json({"run_id": made, "resumed_from": manifest["run_id"], "nodes": rest.nodes})
        return
    click.echo(f"run {manifest['run_id']} is complete as run {made}: {len(rest.nodes)} nodes were left to run")


@click.command(
    short_help="Remove what the newest runs do not need.", epilog=example("kedro anmi prune --keep 5 --dry-run")
)
@click.option("--keep", type=click.IntRange(min=1), required=True, metavar="N", help="Finished runs to keep.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@env_option
def prune(keep: int, dry_run: bool, yes: bool, as_json: bool, env: str | None) -> None:
    """Remove what neither the N newest finished runs need, nor runs they refer to, nor models with an alias.

    Runs that are still running are kept, and so is the last run where it can be resumed.
    """
    from anmi.runs import prune as pruning

    with _found(env, as_json=as_json) as (context, known):
        manifests = known.all()
        reasons = pruning.kept(manifests, keep, pruning.aliased_runs(context, known.root))
        places, store = _places(context, known.root)
        removals = pruning.plan(known, manifests, reasons, places, store=store)
        if not as_json:
            _tell_plan(reasons, removals)
        if not dry_run and removals:
            confirm_removal(yes=yes, as_json=as_json)
        if not dry_run:
            pruning.remove(removals)
    if as_json:
        echo_json({"removed": not dry_run, "kept": reasons, "removals": [asdict(item) for item in removals]})
        return
    click.echo(_summary(removals, "would be removed" if dry_run else "removed"))


def _tell_plan(reasons: Mapping[str, str], removals: Sequence[Removal]) -> None:
    for name, reason in sorted(reasons.items()):
        click.echo(f"kept: {name} ({reason})")
    if removals:
        console(_WIDTH).print(_removals_table(removals))


def _places(context: Any, root: str) -> tuple[list[str], Path | None]:
    """Return where versioned artifacts lie, and the store."""
    catalog, artifacts, store = context.catalog, [], None
    for name, entry in context.config_loader["catalog"].items():
        if entry.get("versioned"):
            artifacts.append(str(catalog.get(name)._filepath))
        elif entry["type"].endswith("StoreDataset"):
            store = Path(catalog.get(name)._describe()["filepath"])
    return artifacts, store


def _with_sizes(context: Any, known: Runs) -> list[tuple[dict[str, Any], int]]:
    """Return the manifests, the newest first, each with the bytes of its artifacts that are there."""
    from anmi.runs import prune as pruning

    places, _ = _places(context, known.root)
    sizes: dict[str, int] = defaultdict(int)
    for item in pruning.plan(known, [], (), places):
        if item.kind == "version":
            sizes[item.name.rpartition("/")[2]] += item.bytes
    return [(manifest, sizes[manifest["run_id"]]) for manifest in reversed(known.all())]


def _row(manifest: Mapping[str, Any], size: int) -> dict[str, Any]:
    given = manifest.get("parameters") or {}
    times = [manifest.get("start"), manifest.get("end") or manifest.get("updated") or manifest.get("start")]
    seconds = (datetime.fromisoformat(str(times[1])) - datetime.fromisoformat(str(times[0]))).total_seconds()
    values = (
        manifest["run_id"], manifest["status"], list(manifest.get("pipelines", ())), given.get("recipe"),
        given.get("collection"), manifest["start"], seconds, size, manifest.get("resumed_from"),
    )  # fmt: skip
    return dict(zip(_KEYS, values, strict=True))


def _runs_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    from rich.text import Text

    columns = "run,status,pipelines,recipe,collection,seconds,size"
    made = table("Runs", columns, plain="run,status", right="seconds,size")
    for row in rows:
        status = row["status"] + (" (resumed)" if row["resumed_from"] else "")
        texts = (row["run_id"], status, ",".join(row["pipelines"]), str(row["recipe"]), str(row["collection"]))
        made.add_row(*map(Text, texts), f"{row['seconds']:,.0f}", size_text(row["bytes"]))
    return made


def _removals_table(removals: Sequence[Removal]) -> Any:
    from rich.text import Text

    groups: dict[tuple[str, str], list[Removal]] = defaultdict(list)
    for item in removals:
        # Versions by their run, all else by its name.
        groups[item.kind, item.name.rpartition("/")[2] if item.kind == "version" else item.name].append(item)
    made = table("May go", "kind,name,number,files,size", right="number,files,size")
    for (kind, name), items in groups.items():
        counts = f"{len(items):,}", f"{sum(item.files for item in items):,}"
        made.add_row(Text(kind), Text(name), *counts, size_text(sum(item.bytes for item in items)))
    return made


def _summary(removals: Sequence[Removal], verb: str) -> str:
    counts: dict[str, int] = defaultdict(int)
    for item in removals:
        counts[item.kind] += 1
    told = ", ".join(f"{count:,} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items()) or "nothing"
    return f"{verb}: {told} ({size_text(sum(item.bytes for item in removals))})"
