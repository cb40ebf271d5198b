# mypy: allow-untyped-decorators
"""``kedro anmi opensearch``: the sparse search of the last run as files for OpenSearch or Elasticsearch."""

from __future__ import annotations

from pathlib import Path

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import belonging, echo_json, example, json_option, load, plain_errors, project
from anmi.errors import AnmiError


@click.command(
    short_help="Write the sparse search for OpenSearch or Elasticsearch.",
    epilog=example('kedro anmi opensearch for_opensearch --question "mean of an array"'),
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--question", default="", help="Write searches for this question, too.")
@click.option(
    "--search",
    "made",
    type=click.Path(path_type=Path),
    help="A search folder, instead of the one that the last run made.",
)
@json_option
@env_option
def opensearch(folder: Path, question: str, made: Path | None, as_json: bool, env: str | None) -> None:
    """Write the sparse search to FOLDER as mapping, documents and weights for OpenSearch or Elasticsearch."""
    from anmi.files import aside
    from anmi.search.hybrid import HybridSearch
    from anmi.search.opensearch import export_opensearch

    folder = folder.resolve()
    with plain_errors():
        if folder.is_dir() and any(folder.iterdir()):
            raise AnmiError(f"{folder} is not empty; name a new or empty folder")
        search = HybridSearch.load(made) if made is not None else None
    with project(env, as_json=as_json) if search is None else plain_errors() as context:
        if search is None:
            search = load(belonging(context, "search_index"), "search_index", "evaluation")
        with aside(folder) as path:
            count = export_opensearch(search, path, question)
    if as_json:
        echo_json({"documents": count, "folder": str(folder)})
        return
    click.echo(f"{count:,} documents in {folder}; to load them:")
    click.echo(f"  curl -X PUT URL/INDEX -H 'Content-Type: application/json' --data-binary @{folder}/index.json")
    click.echo(
        f"  curl URL/INDEX/_bulk -H 'Content-Type: application/x-ndjson' --data-binary @{folder}/documents.ndjson"
    )
