"""``kedro anmi champion`` shows the deployed model, and goes back to an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from anmi.cli.common import command, console, table
from anmi.errors import AnmiError, nearest

if TYPE_CHECKING:
    from anmi.datasets.model_registry import Entry, ModelRegistry

_SHOWN: Final = 10


@command(
    "kedro anmi champion", short_help="Show the champion and the last decisions, or roll back."
)
@click.option("--rollback", is_flag=True, help="Make the previous champion champion again.")
@click.option(
    "--to",
    "version",
    type=click.IntRange(min=1),
    metavar="VERSION",
    help="Make this version champion.",
)
@click.option(
    "--model",
    "name",
    metavar="NAME",
    help="The registered model; by default that of the configured collection.",
)
def champion(context: Any, rollback: bool, version: int | None, name: str | None) -> Any:
    """Show the champion, the challenger and the last decisions.

    With --rollback or --to another version becomes champion. The one that it replaces is not
    promoted again: if the next retraining gives exactly its weights, the champion stays.
    """
    registry, model = _registry(context, name)
    if rollback or version is not None:
        replaced, entry = roll_back(registry, model, version)
        click.echo(f'champion of "{model}": from {replaced or "none"} to {entry}')
        replaced_version = replaced.version if replaced else None
        return {"model": model, "before": replaced_version, "champion": entry.version}
    return _show(registry, model)


def _registry(context: Any, name: str | None) -> tuple[ModelRegistry, str]:
    """Open the registry of the tracking server, and return the name of the model with it."""
    from anmi.datasets.model_registry import ModelRegistry
    from anmi.hooks.mlflow import tracked_at
    from anmi.pipelines.params import RetrainParams, model_name

    uri = tracked_at(context)
    if not uri:
        raise AnmiError(
            "there is no model registry, since tracking is switched off: set `enabled: true`"
        )
    params = RetrainParams.model_validate(context.params.get("retrain") or {})
    model = name or model_name(params, str(context.params["collection"]))
    registry = ModelRegistry(uri)
    models = registry.names()
    if model not in models:
        hint = "run `kedro run --pipelines retrain`"
        if models:
            hint = f"{nearest(model, models)}; give one by --model"
        raise AnmiError(f'no model "{model}" is registered: {hint}')
    return registry, model


def roll_back(
    registry: ModelRegistry, model: str, version: int | None
) -> tuple[Entry | None, Entry]:
    """Make a version champion, by default the previous champion.

    Returns
    -------
    tuple
        The champion that is replaced, None where there was none, and the new one.
    """
    from anmi.datasets.model_registry import CHAMPION, DIGEST, ROLLED_BACK
    from anmi.hooks.record import now

    current = registry.at(model, CHAMPION)
    if version is None and current is not None:
        version = current.previous
    if version is None:
        versions = ", ".join(str(entry.version) for entry in registry.entries(model)) or "none"
        raise AnmiError(
            f'"{model}" has no champion before this one: name a version by --to (there are:'
            f" {versions})"
        )
    if current is not None and current.version == version:
        raise AnmiError(f'{current} is the champion of "{model}" already: name another by --to')
    entry = registry.entry(model, version)
    if DIGEST not in entry.tags or not registry.has_files(entry):
        raise AnmiError(
            f'the files of {entry} of "{model}" are gone or were not registered by retraining: name'
            " another by --to"
        )
    registry.note(entry, ROLLED_BACK, None)
    registry.set_champion(entry, current)
    if current is not None:
        registry.note(current, ROLLED_BACK, now())
    return current, entry


def _show(registry: ModelRegistry, model: str) -> dict[str, Any]:
    """Print the champion, the challenger and the last decisions."""
    aliases = registry.aliases(model)
    entries = registry.entries(model)
    descriptions = {entry.version: _described(entry) for entry in entries}
    for alias in ("champion", "challenger"):
        click.echo(f"{alias:<12} {descriptions.get(aliases.get(alias, 0), 'none')}")
    decisions = table(
        "Last decisions",
        "version,created,nDCG@10,decision,why",
        plain="version,created,nDCG@10,decision",
    )
    versions = []
    for entry in entries[:_SHOWN]:
        tags = entry.tags
        decision = "rolled back" if "rolled_back" in tags else tags.get("decision", "")
        ndcg = tags.get("ndcg", "")
        decisions.add_row(
            str(entry.version), entry.created, ndcg, decision, tags.get("reasons", "")
        )
        facts = {"version": entry.version, "created": entry.created, "mlflow_run": entry.run}
        versions.append(facts | tags)
    console().print(decisions)
    click.echo(f'load it: mlflow.sentence_transformers.load_model("models:/{model}@champion")')
    return {"model": model, "aliases": aliases, "versions": versions}


def _described(entry: Entry) -> str:
    """Return a line about a version."""
    recipe, encoder, ndcg = (entry.tags.get(tag, "?") for tag in ("recipe", "encoder", "ndcg"))
    previous = f", before it {entry.previous}" if entry.previous is not None else ""
    return (
        f"{entry} of {entry.created}: recipe {recipe}, encoder {encoder}, nDCG@10 {ndcg}{previous}"
    )
