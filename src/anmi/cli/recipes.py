# mypy: allow-untyped-decorators
"""``kedro anmi recipes``: the recipes with what each needs, or one of them with all that it extends."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import console, echo_json, example, json_option, project, table

# Of a text in the table; `kedro anmi recipes NAME` has all of it.
_LONGEST: Final = 100


@click.command(
    short_help="List the recipes, or show one with all that it extends.",
    epilog=example("kedro anmi recipes", "kedro anmi recipes anmi"),
)
@click.argument("name", required=False)
@json_option
@env_option
def recipes(name: str | None, as_json: bool, env: str | None) -> None:
    """List the recipes with what each needs, or show the steps and the training of NAME, what it extends included."""
    with project(env, as_json=as_json) as context:
        book, training = context.params["recipes"], context.params["training"]
        found = [one(book, each, training) for each in ([name] if name else book.names())]
        chosen = context.params["recipe"]
    if as_json:
        echo_json(found[0] if name else found)
    elif name:
        _print_one(found[0])
    else:
        _print_all(found, chosen)


def one(book: Any, name: str, training: Any) -> dict[str, Any]:
    """Return a recipe for JSON, with the training options that a run would use.

    Raises
    ------
    AnmiError
        There is none of the name; the message has the nearest.
    """
    from anmi.pipelines.training.params import merged_options

    recipe = book.get(name)
    options = merged_options(recipe, training)
    return {
        "recipe": name,
        "description": recipe.description,
        "source": recipe.source,
        "extends": recipe.extends,
        "needs": needs(recipe, options),
        "cost": cost(options, training.refit),
        "negatives": recipe.negatives,
        "pool": recipe.pool,
        "steps": [{item.name: item.params.model_dump(mode="json", exclude_unset=True)} for item in recipe.steps],
        "mining": recipe.mining,
        "training": options.model_dump(mode="json", exclude_defaults=True),
    }


def needs(recipe: Any, options: Any) -> list[str]:
    """Return what a run of a recipe takes besides the packaged models and a processor; mostly nothing."""
    found = []
    if _asks_cross_encoder(recipe):
        found.append("a cross-encoder, trained here")
    for name, judge in (recipe.mining.get("elo") or {}).get("pairwise", {}).items():
        what = "a chat endpoint" if "chat" in judge else "a classifier"
        found.append(f"{what} in elo.pairwise.{name}")
    if options.sources.kind == "mixed":
        found.append("a graph: a collection by kg:")
    if options.masked_lm is not None:
        found.append("a masked language model in training.options.masked_lm, and a GPU")
    return found


def _asks_cross_encoder(recipe: Any) -> bool:
    """Tell whether a recipe reads what the cross-encoder says; ratings may rest on other judges alone."""
    from anmi.pipelines.elo.params import EloParams
    from anmi.selection.recipe import OF_CROSS_ENCODER, OF_ELO

    rated_by = (recipe.mining.get("elo") or {}).get("judges", EloParams().judges)
    rated = recipe.requires & OF_ELO and "cross" in rated_by
    return bool(recipe.requires & (OF_CROSS_ENCODER - OF_ELO) or rated)


def cost(options: Any, refit: bool) -> str:
    """Say what training a recipe takes, in passes over its rows: the time follows from the collection and the encoder.

    A second pass, where there is one, is over the rows of training and dev.
    """
    passes = f"up to {options.epochs} epochs" + (", then again with dev" if refit else "")
    drawn = f"{options.negatives or 0} negatives a row"
    parts = [passes, "no labelled row" if options.labels == 0 else drawn]
    if options.pseudo_queries.kinds:
        parts.append(f"{len(options.pseudo_queries.kinds)} pseudo-queries a document and epoch")
    if options.companion is not None:
        parts.append("two retrievers, one after the other")
    return "; ".join(parts)


def _print_all(found: list[dict[str, Any]], chosen: str) -> None:
    from rich.text import Text

    made = table("Recipes", "recipe,what it does,source,needs", plain="recipe")
    for each in found:
        mark = " (chosen)" if each["recipe"] == chosen else ""
        texts = (textwrap.shorten(each[name], _LONGEST, placeholder=" …") for name in ("description", "source"))
        made.add_row(*map(Text, (each["recipe"] + mark, *texts, "; ".join(each["needs"]))))
    console(160).print(made)
    click.echo(f"next: kedro anmi recipes {chosen} shows its steps; kedro run --params recipe=NAME takes another")


def _print_one(found: Mapping[str, Any]) -> None:
    from anmi.runs.record import flatten

    click.echo(f"{found['recipe']}: {' '.join(found['description'].split())}")
    named = {"source": found["source"], "extends": found["extends"], "needs": "; ".join(found["needs"])}
    for name, text in {**named, "cost": found["cost"]}.items():
        if text:
            click.echo(f"{name:<10} {text}")
    click.echo(f"{'negatives':<10} {found['negatives']}" + (f" of a pool of {found['pool']}" if found["pool"] else ""))
    for number, step in enumerate(found["steps"], 1):
        (name, params), *_ = step.items()
        told = ", ".join(f"{key}={value}" for key, value in params.items())
        click.echo(f"step {number:<5} {name}" + (f": {told}" if told else ""))
    for branch in ("mining", "training"):
        for name, value in flatten(found[branch]).items():
            if name:
                click.echo(f"{branch:<10} {name}={value}")
