# mypy: allow-untyped-decorators
"""``kedro anmi collections``: the kinds of collections that can be read, or what one of them holds."""

from __future__ import annotations

from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli import described
from anmi.cli.common import console, echo_json, example, json_option, project, silence, table

# An example of every kind, and the extra that it needs or may need.
EXAMPLES: Final = {
    "api_docs": ("api_docs", ""),
    "beir": ("beir:../shared/data/scifact", ""),
    "kg": ("kg:../shared/data/kg_webnlg", "rdf, for graphs in RDF"),
    "pairs": ("pairs:../shared/data/pairs/*.jsonl", ""),
    "docs": ("docs:docs/**/*.md", "pdf, for PDF"),
    "ir_datasets": ("ir_datasets:beir/scifact/train", "ir-datasets"),
}


@click.command(
    short_help="List what can be read, or say what a collection holds.",
    epilog=example("kedro anmi collections", 'kedro anmi collections "docs:docs/**/*.md"'),
)
@click.argument("source", required=False)
@json_option
@env_option
def collections(source: str | None, as_json: bool, env: str | None) -> None:
    """List the kinds of collections that can be read, or read SOURCE and say what it holds.

    SOURCE is what the parameter `collection` takes; it is read under the settings of ingestion, and nothing is kept.
    """
    if source is None:
        found = kinds()
        if as_json:
            echo_json(found)
        else:
            _print(found)
        return
    with silence(), project(env) as context:
        read = described.describe(source, context.params["ingestion"], int(context.params["seed"]))
    if as_json:
        echo_json(read)
    else:
        described.echo(read)
        click.echo(f'\nnext: kedro anmi init --collection "{source}"')


def kinds() -> list[dict[str, str]]:
    """Return every kind of collection, with what follows its name, what is read, an example and the extra it needs."""
    from anmi.corpus.kinds import READERS
    from anmi.corpus.sources import reader_of

    found = []
    for name, (_, argument) in READERS.items():
        doc = reader_of(name).__doc__ or ""
        written, extra = EXAMPLES[name]
        form = f"{name}:{argument}" if argument else name
        found.append({"kind": name, "form": form, "reads": doc.split("\n")[0], "example": written, "extra": extra})
    return found


def _print(found: list[dict[str, Any]]) -> None:
    made = table("Collections", "collection,what is read,example,extra", plain="collection,example")
    for kind in found:
        made.add_row(kind["form"].replace("[", r"\["), kind["reads"], kind["example"], kind["extra"])
    console().print(made)
    click.echo('next: kedro anmi collections "docs:docs/**/*.md" says what one of them holds')
