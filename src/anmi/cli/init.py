# mypy: allow-untyped-decorators
"""``kedro anmi init``: the parameters of a user's own data, asked for or given, checked, and written."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from anmi.cli.common import echo_json, example, json_option, plain_errors, project, silence
from anmi.errors import AnmiError

FILE: Final = "parameters.yml"
_HEAD: Final = (
    "# Written by `kedro anmi init`; what stands here goes before conf/base, and --params before both.\n"
    "# conf/base/parameters*.yml lists every setting with its default.\n"
)
_ASKED: Final = {
    "collection": "What is to be searched? A folder of documents as docs:DIR, or one of `kedro anmi collections`",
    "encoder": "Encoder to start from: static (seconds), minilm (better, minutes), or a folder or ORG/NAME",
    "recipe": "Recipe, one of `kedro anmi recipes`",
    "language": "Language of the documents, such as en; empty to recognise it",
}


@click.command(
    short_help="Write conf/local for your own data, by asking or by options.",
    epilog=example('kedro anmi init --collection "docs:docs/**/*.md" --encoder static'),
)
@click.option("--collection", help="What to read, such as docs:DIR or beir:DIR; see `kedro anmi collections`.")
@click.option("--encoder", help="static, minilm, or the folder or ORG/NAME of a sentence-transformers model.")
@click.option("--recipe", help="See `kedro anmi recipes`.")
@click.option("--language", help="ISO 639-1 code; recognised from the documents when left out.")
@click.option("--text-column", help="Of JSONL, CSV and TSV files; text, body or content when left out.")
@click.option("--max-queries", type=click.IntRange(min=1), help="Of training, for a first run that ends soon.")
@click.option("--force", is_flag=True, help="Replace conf/local/parameters.yml.")
@json_option
def init(force: bool, as_json: bool, max_queries: int | None, **given: str | None) -> None:
    """Write conf/local/parameters.yml for your own data, and say what the collection holds.

    What no option gives is asked for where there is a terminal, and keeps its default elsewhere. The collection is read
    first: what cannot be read is not written.
    """
    with plain_errors():
        path = _place() / FILE
        if path.exists() and not force:
            raise AnmiError(f"{path} is there already: change it by hand, or replace it by --force")
    # What is to be replaced may be what is to be put right, so it is not read.
    with silence(), project("base" if path.exists() else None) as context:
        if _is_asked() and not as_json:
            given = {**given, **_answers(given, context.params)}
        chosen = settings({**given, "max_queries": max_queries})
        found = check(chosen, context)
        _write(path, chosen)
    if as_json:
        echo_json({"file": str(path), "parameters": chosen, "collection": found})
        return
    from anmi.cli import described

    described.echo(found)
    click.echo(f"\nwritten: {path}\nnext: kedro run, and then kedro anmi results")


def _place() -> Path:
    """Return the folder of what belongs to this copy of the project alone."""
    from kedro.framework.project import settings as project_settings
    from kedro.utils import find_kedro_project

    source = Path(project_settings.CONF_SOURCE)
    if source.exists() and not source.is_dir():
        raise AnmiError(f"the configuration {source} is an archive, which init cannot write to: unpack it first")
    project_path = find_kedro_project(Path.cwd()) or Path.cwd()
    return Path(project_path, source, "local")


def _is_asked() -> bool:
    return sys.stdin.isatty()


def _answers(given: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, str]:
    """Ask for what was not given; what is confirmed without a word keeps its default."""
    defaults = {"collection": None, "encoder": str(base["encoder"]), "recipe": str(base["recipe"]), "language": ""}
    asked = {name: text for name, text in _ASKED.items() if given[name] is None}
    return {name: click.prompt(text, default=defaults[name]).strip() for name, text in asked.items()}


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be written: what was given, where it belongs.

    Raises
    ------
    AnmiError
        No collection is named.

    Examples
    --------
    >>> settings({"collection": "docs:notes", "encoder": None, "language": "de", "max_queries": 500})
    {'collection': 'docs:notes', 'ingestion': {'language': 'de', 'max_queries': 500}}
    """
    if not given["collection"]:
        raise AnmiError(
            "no collection is named: give --collection, such as docs:FOLDER; `kedro anmi collections` lists the kinds"
        )
    top = {name: given.get(name) for name in ("collection", "encoder", "recipe")}
    inner = {name: given.get(name) for name in ("language", "text_column", "max_queries")}
    chosen: dict[str, Any] = {name: value for name, value in top.items() if value}
    ingestion = {name: value for name, value in inner.items() if value}
    return {**chosen, "ingestion": ingestion} if ingestion else chosen


def check(chosen: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Return what the collection holds, after what a run would refuse was refused.

    Raises
    ------
    AnmiError
        Recipe, encoder or language are unknown, or the collection cannot be read.
    """
    from anmi.cli.described import describe
    from anmi.corpus.language import language_code
    from anmi.hooks.checks import check_encoder
    from anmi.pipelines.training.params import merged_options

    recipe = context.params["recipes"].get(chosen.get("recipe", context.params["recipe"]))
    check_encoder(chosen.get("encoder", "static"), context.project_path)
    ingestion = chosen.get("ingestion") or {}
    if "language" in ingestion:
        language_code(ingestion["language"])
    read_by = context.params["ingestion"].model_copy(update=ingestion)
    found = describe(chosen["collection"], read_by, int(context.params["seed"]))
    asks_corpus = merged_options(recipe, context.params["training"]).pseudo_queries.kinds
    if not (found["queries"]["train"] or asks_corpus):
        raise AnmiError(
            f'no training query of "{chosen["collection"]}" has a label, and the recipe learns from labels alone: take '
            "--recipe anmi, which learns from the documents"
        )
    return found


def _write(path: Path, chosen: Mapping[str, Any]) -> None:
    import yaml

    from anmi.files import aside, disk_errors

    with plain_errors(), disk_errors(path), aside(path) as file:
        file.write_text(_HEAD + yaml.safe_dump(dict(chosen), sort_keys=False, allow_unicode=True), encoding="utf-8")
