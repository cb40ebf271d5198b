# mypy: allow-untyped-decorators
"""Commands around retraining: ``kedro anmi champion`` and ``kedro anmi rollback``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import console, echo_json, example, json_option, project, table
from anmi.errors import AnmiError, nearest

if TYPE_CHECKING:
    from anmi.datasets.model_registry import Entry, ModelRegistry

_SHOWN: Final = 10


@contextmanager
def _registry(env: str | None, name: str | None, *, as_json: bool = False) -> Iterator[tuple[ModelRegistry, str]]:
    """Open the registry of the tracking server, and say which model is meant."""
    from anmi.datasets.model_registry import ModelRegistry
    from anmi.hooks.mlflow import tracked_at
    from anmi.pipelines.params import RetrainParams, model_name

    with project(env, as_json=as_json) as context:
        if not (uri := tracked_at(context)):
            raise AnmiError("there is no model registry, since tracking is switched off: set `enabled: true`")
        params = RetrainParams.model_validate(context.params.get("retrain") or {})
        asked = name or model_name(params, str(context.params["collection"]))
        registry = ModelRegistry(uri)
        known = registry.names()
        if asked not in known:
            hint = f"{nearest(asked, known)}; give one by --model" if known else "run `kedro run --pipelines retrain`"
            raise AnmiError(f'no model "{asked}" is registered: {hint}')
        yield registry, asked


model_option = click.option(
    "--model", "name", metavar="NAME", help="The registered model; that of the configured collection when left out."
)


@click.command(epilog=example("kedro anmi rollback"))
@json_option
@click.option("--to", "target", type=click.IntRange(min=1), metavar="VERSION", help="To this one instead.")
@model_option
@env_option
def rollback(as_json: bool, target: int | None, name: str | None, env: str | None) -> None:
    """Make the champion before this one champion again.

    What is rolled back is not promoted again: the next retraining that comes to the very same weights keeps the
    champion.
    """
    with _registry(env, name, as_json=as_json) as (registry, model):
        before, after = roll_back(registry, model, target)
        if as_json:
            echo_json({"model": model, "before": before.version if before else None, "champion": after.version})
            return
        click.echo(f'champion of "{model}": from {before or "none"} to {after}')


def roll_back(registry: ModelRegistry, model: str, target: int | None) -> tuple[Entry | None, Entry]:
    """Move the alias ``champion``.

    Parameters
    ----------
    registry, model
        Where, and of which registered model.
    target
        Version to go to; the champion before the present one when None.

    Returns
    -------
    before, after
        The two champions.

    Raises
    ------
    AnmiError
        There is no champion before this one, no such version, or its files are gone.
    """
    from anmi.datasets.model_registry import CHAMPION, DIGEST, ROLLED_BACK
    from anmi.hooks.record import now

    before = registry.at(model, CHAMPION)
    wanted = target if target is not None else before.previous if before else None
    if wanted is None:
        known = ", ".join(str(entry.version) for entry in registry.entries(model)) or "none"
        of_which = f"{before} is the first" if before else "there is none"
        raise AnmiError(
            f'"{model}" has no champion before this one ({of_which}): name a version by --to (there are: {known})'
        )
    if before is not None and before.version == wanted:
        raise AnmiError(f'{before} is the champion of "{model}" already: name another by --to')
    after = registry.entry(model, wanted)
    if DIGEST not in after.tags or not registry.has_files(after):
        raise AnmiError(
            f'the files of {after} of "{model}" are gone or were not registered by retraining: name another by --to'
        )
    registry.note(after, ROLLED_BACK, None)
    registry.set_champion(after, before)
    if before is not None:
        registry.note(before, ROLLED_BACK, now())
    return before, after


@click.command(
    short_help="Show the champion, the challenger and the last decisions.", epilog=example("kedro anmi champion")
)
@json_option
@click.option("--last", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="Decisions shown.")
@model_option
@env_option
def champion(as_json: bool, last: int, name: str | None, env: str | None) -> None:
    """Show the champion, the challenger, and what was decided lately."""
    with _registry(env, name, as_json=as_json) as (registry, model):
        aliases, entries = registry.aliases(model), registry.entries(model)
    if as_json:
        shown = [describe(entry) for entry in entries[:last]]
        echo_json({"model": model, "aliases": aliases, "versions": shown})
        return
    by_version = {entry.version: entry for entry in entries}
    for alias in ("champion", "challenger"):
        entry = by_version.get(aliases.get(alias, 0))
        click.echo(f"{alias:<12} {_line(entry) if entry else 'none'}")
    _print_decisions(entries[:last])
    click.echo(f'load it: mlflow.sentence_transformers.load_model("models:/{model}@champion")')


def describe(entry: Entry) -> dict[str, Any]:
    """Return what is noted of a version, for JSON."""
    return {"version": entry.version, "created": entry.created, "mlflow_run": entry.run, **entry.tags}


def _line(entry: Entry) -> str:
    tags = entry.tags
    before = f", before it {entry.previous}" if entry.previous is not None else ""
    return (
        f"{entry} of {entry.created}: recipe {tags.get('recipe', '?')}, encoder {tags.get('encoder', '?')}, "
        f"nDCG@10 {tags.get('ndcg', '?')}{before}"
    )


def _print_decisions(entries: list[Entry]) -> None:
    columns = "version,created,nDCG@10,decision"
    made = table("Last decisions", f"{columns},why", plain=columns)
    for entry in entries:
        tags = entry.tags
        decision = "rolled back" if "rolled_back" in tags else tags.get("decision", "")
        row = (str(entry.version), entry.created, tags.get("ndcg", ""), decision, tags.get("reasons", ""))
        made.add_row(*row)
    console().print(made)
