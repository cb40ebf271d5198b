"""Commands around retraining: ``kedro anmi champion`` and ``kedro anmi rollback``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from anmi.cli.common import command, console, table
from anmi.errors import AnmiError, nearest

if TYPE_CHECKING:
    from anmi.datasets.model_registry import Entry, ModelRegistry

_SHOWN: Final = 10
model_option = click.option(
    "--model",
    "name",
    metavar="NAME",
    help="The registered model; by default that of the configured collection.",
)


def _registry(context: Any, name: str | None) -> tuple[ModelRegistry, str]:
    """Open the registry of the tracking server, and say which model is meant."""
    from anmi.datasets.model_registry import ModelRegistry
    from anmi.hooks.mlflow import tracked_at
    from anmi.pipelines.params import RetrainParams, model_name

    if not (uri := tracked_at(context)):
        raise AnmiError(
            "there is no model registry, since tracking is switched off: set `enabled: true`"
        )
    params = RetrainParams.model_validate(context.params.get("retrain") or {})
    model = name or model_name(params, str(context.params["collection"]))
    registry = ModelRegistry(uri)
    models = registry.names()
    if model not in models:
        hint = (
            f"{nearest(model, models)}; give one by --model"
            if models
            else "run `kedro run --pipelines retrain`"
        )
        raise AnmiError(f'no model "{model}" is registered: {hint}')
    return registry, model


@command("kedro anmi rollback")
@click.option(
    "--to",
    "target",
    type=click.IntRange(min=1),
    metavar="VERSION",
    help="Take this version instead.",
)
@model_option
def rollback(context: Any, target: int | None, name: str | None) -> Any:
    """Make the previous champion champion again.

    A rolled-back model is not promoted again: if the next retraining gives exactly its weights, the
    champion stays.
    """
    registry, model = _registry(context, name)
    before, after = roll_back(registry, model, target)
    click.echo(f'champion of "{model}": from {before or "none"} to {after}')
    return {"model": model, "before": before.version if before else None, "champion": after.version}


def roll_back(
    registry: ModelRegistry, model: str, target: int | None
) -> tuple[Entry | None, Entry]:
    """Move the alias ``champion`` to a version, or to the champion before; return the present and the new champion."""
    from anmi.datasets.model_registry import CHAMPION, DIGEST, ROLLED_BACK
    from anmi.hooks.record import now

    before = registry.at(model, CHAMPION)
    number = target if target is not None else before.previous if before else None
    if number is None:
        versions = ", ".join(str(entry.version) for entry in registry.entries(model)) or "none"
        raise AnmiError(
            f'"{model}" has no champion before this one: name a version by --to (there are:'
            f" {versions})"
        )
    if before is not None and before.version == number:
        raise AnmiError(f'{before} is the champion of "{model}" already: name another by --to')
    after = registry.entry(model, number)
    if DIGEST not in after.tags or not registry.has_files(after):
        raise AnmiError(
            f'the files of {after} of "{model}" are gone or were not registered by retraining: name'
            " another by --to"
        )
    registry.note(after, ROLLED_BACK, None)
    registry.set_champion(after, before)
    if before is not None:
        registry.note(before, ROLLED_BACK, now())
    return before, after


@command(
    "kedro anmi champion", short_help="Show the champion, the challenger and the last decisions."
)
@model_option
def champion(context: Any, name: str | None) -> Any:
    """Show the champion, the challenger and the last decisions."""
    registry, model = _registry(context, name)
    aliases = registry.aliases(model)
    entries = registry.entries(model)
    by_version = {entry.version: _line(entry) for entry in entries}
    for alias in ("champion", "challenger"):
        click.echo(f"{alias:<12} {by_version.get(aliases.get(alias, 0), 'none')}")
    decisions = table(
        "Last decisions",
        "version,created,nDCG@10,decision,why",
        plain="version,created,nDCG@10,decision",
    )
    for entry in entries[:_SHOWN]:
        decision = "rolled back" if "rolled_back" in entry.tags else entry.tags.get("decision", "")
        ndcg, reasons = (entry.tags.get(tag, "") for tag in ("ndcg", "reasons"))
        decisions.add_row(str(entry.version), entry.created, ndcg, decision, reasons)
    console().print(decisions)
    click.echo(f'load it: mlflow.sentence_transformers.load_model("models:/{model}@champion")')
    shown = [
        {
            "version": entry_shown.version,
            "created": entry_shown.created,
            "mlflow_run": entry_shown.run,
            **entry_shown.tags,
        }
        for entry_shown in entries
    ]
    return {"model": model, "aliases": aliases, "versions": shown[:_SHOWN]}


def _line(entry: Entry) -> str:
    recipe, encoder, ndcg = (entry.tags.get(tag, "?") for tag in ("recipe", "encoder", "ndcg"))
    before = f", before it {entry.previous}" if entry.previous is not None else ""
    return f"{entry} of {entry.created}: recipe {recipe}, encoder {encoder}, nDCG@10 {ndcg}{before}"
