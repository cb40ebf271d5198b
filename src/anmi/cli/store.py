# mypy: allow-untyped-decorators
"""Commands that look into the store and clear it: ``kedro anmi store stats`` and ``kedro anmi store prune``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import (
    confirm_removal,
    console,
    echo_json,
    example,
    json_option,
    project,
    size_text,
    store_path,
    table,
)
from anmi.errors import AnmiError

if TYPE_CHECKING:
    from anmi.store import Store
    from anmi.store.registry import Record
    from anmi.store.upkeep import Model, Pruned, Stats

_SHOWN: Final = 12


@click.group(
    name="store", short_help="Look into the cache of embeddings, or clear it.", epilog=example("kedro anmi store stats")
)
def store() -> None:
    """Look into the cache of embeddings and judgments, or clear it."""


@contextmanager
def _opened(env: str | None, *, as_json: bool = False) -> Iterator[Store]:
    """Open the store of the catalog; one that is not there is not made."""
    from anmi.store import Store

    with project(env, as_json=as_json) as context:
        path = store_path(context)
        if not (path / "data.mdb").exists():
            raise AnmiError(f"there is no store in {path} yet: `kedro run` makes it, or set ANMI_STORE")
        with Store(path) as found:
            yield found


@store.command(epilog=example("kedro anmi store stats"))
@json_option
@env_option
def stats(as_json: bool, env: str | None) -> None:
    """Show what the store holds: a line per model whose embeddings or judgments it keeps."""
    with _opened(env, as_json=as_json) as found:
        held = found.stats()
    if as_json:
        echo_json(_document(held))
        return
    _print(records_table(held.records), models_table(held.models))
    click.echo(f"{held.path}: {size_text(held.file_size)}, of which {size_text(held.free_size)} are free")


@store.command(epilog=example("kedro anmi store prune --older-than 90 --dry-run"))
@click.option(
    "--older-than", type=click.FloatRange(min=0, max=36_500), metavar="DAYS", help="What was not used for so long."
)
@click.option("--fingerprint", "fingerprints", multiple=True, help="Only these, by their start; may be repeated.")
@click.option("--keep", multiple=True, metavar="FINGERPRINT", help="Never these, by their start; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@env_option
def prune(
    older_than: float | None,
    fingerprints: tuple[str, ...],
    keep: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    env: str | None,
) -> None:
    """Remove embeddings, judgments and models that are no longer used; what is needed again is computed again.

    Without --older-than and --fingerprint only leftovers of killed processes go. With both, what meets both.
    """
    with _opened(env, as_json=as_json) as found:
        planned = found.prune(older_than, fingerprints, keep, dry_run=True)
        if (planned.records or planned.models) and not as_json:
            _print(records_table(planned.records), models_table(planned.models))
        if dry_run and not as_json:
            click.echo(_summary(planned, "would be removed"))
        elif not dry_run and (planned.records or planned.models):
            confirm_removal(yes=yes, as_json=as_json)
        done = planned if dry_run else found.prune(older_than, fingerprints, keep)
    if as_json:
        echo_json(_pruned_document(done, removed=not dry_run))
        return
    if not dry_run:
        click.echo(_summary(done, "removed"))
    if done.in_use:
        click.echo("another process has the store open: models and the size of the file stay until it has ended")
    elif not dry_run:
        click.echo(f"the file had {size_text(done.size_before)} and has {size_text(done.size_after)}")


def _summary(pruned: Pruned, verb: str) -> str:
    entries = sum(record.entries for record in pruned.records)
    values, models = (sum(sizes) for sizes in ([r.size for r in pruned.records], [m.size for m in pruned.models]))
    return (
        f"{verb}: {entries:,} values under {len(pruned.records)} fingerprints ({size_text(values)}), "
        f"{len(pruned.models)} folders of models ({size_text(models)})"
    )


def _pruned_document(pruned: Pruned, *, removed: bool) -> dict[str, Any]:
    return {
        "removed": removed,
        "fingerprints": [_record(record) for record in pruned.records],
        "models": [_model(model) for model in pruned.models],
        "in_use": pruned.in_use,
        "size_before": pruned.size_before,
        "size_after": pruned.size_after,
    }


def _print(*tables: Any) -> None:
    for found in tables:
        if found.row_count:
            console().print(found)


def _document(held: Stats) -> dict[str, Any]:
    return {
        "path": str(held.path),
        "file_size": held.file_size,
        "free_size": held.free_size,
        "fingerprints": [_record(record) for record in held.records],
        "models": [_model(model) for model in held.models],
    }


def _record(record: Record) -> dict[str, Any]:
    return asdict(record) | {"kind": record.kind, "size": record.size}


def _model(model: Model) -> dict[str, Any]:
    return asdict(model) | {"path": str(model.path)}


def records_table(records: list[Record]) -> Any:
    """Return a table of fingerprints; the size is that of keys and values."""
    columns = "fingerprint,name,kind,numbers,values,size,created,last used"
    made = table(
        "Embeddings and judgments", columns, plain="fingerprint,created,last used", right="numbers,values,size"
    )
    for record in records:
        numbers = (f"{record.dimension:,}", f"{record.entries:,}", size_text(record.size))
        days = (record.created[:10], record.last_used[:10])
        made.add_row(*_plain(record.fingerprint[:_SHOWN], record.name, record.kind, *numbers, *days))
    return made


def models_table(models: list[Model]) -> Any:
    """Return a table of the folders of models."""
    made = table("Models", "model,kind,size,last used", plain="model,last used", right="size")
    for model in models:
        made.add_row(*_plain(model.path.name, model.kind, size_text(model.size), model.last_used[:10]))
    return made


def _plain(*cells: str) -> list[Any]:
    from rich.text import Text

    return [Text(cell) for cell in cells]
