# mypy: allow-untyped-decorators
"""``kedro anmi export``: training rows for another trainer, a search, or a collection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from anmi.cli.common import SEARCHES, Saved, command, run_option
from anmi.errors import AnmiError

if TYPE_CHECKING:
    from anmi.selection.export import Collection

_OTHERS: Final = {
    "search": (
        "The search of the last run as a folder that needs nothing else, with code that searches it"
        " without ANMI, for agents as well."
    ),
    "vectors": (
        "The search of the last run as dense and sparse vectors in Parquet, for Qdrant and the"
        " like."
    ),
    "mlflow": "The search of the last run as a model that `mlflow models serve` answers with.",
    "mteb": "The collection as a task of MTEB, which `datasets` and `beir:` read as well.",
    "beir": (
        "The collection, with questions asked on the page, as BEIR publishes one: corpus.jsonl,"
        " qrels/test.tsv."
    ),
}
_ROWS: Final = ("training_rows", "encoder_info", "selection_summary")
_COLLECTION: Final = ("corpus", "queries", "collection_info")


def _list_formats(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from anmi.selection.export import FORMATS

    descriptions = {}
    for name, kind in FORMATS.items():
        options = ", ".join(f"--{option}" for option in sorted(kind.takes)).replace("_", "-")
        descriptions[name] = kind.description + (f" Takes {options}." if options else "")
    formatter = click.HelpFormatter(width=100)
    formatter.write_dl([*descriptions.items(), *_OTHERS.items()])
    click.echo(formatter.getvalue(), nl=False)
    context.exit()


@command(
    "kedro anmi export --list",
    "kedro anmi export flagembedding for_flagembedding",
    short_help="Write the training rows in the format of another trainer.",
)
@click.argument("name", metavar="FORMAT")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, resolve_path=True))
@click.option(
    "--negatives",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Per row, best first; default all.",
)
@click.option(
    "--score",
    metavar="NAME",
    help="Judgment for scores and soft labels, such as cross or p_relevant.",
)
@click.option("--prompt", metavar="TEXT", help="Prompt to add to every query.")
@click.option(
    "--by-source", is_flag=True, help="Write separate files for each source of queries (pairs)."
)
@click.option("--force", is_flag=True, help="Replace an earlier export in FOLDER.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_formats,
    help="Show the formats.",
)
@run_option
def export(
    context: Any, name: str, folder: Path, force: bool, run_id: str | None, **settings: Any
) -> Any:
    """Write the rows, the search or the collection of a run to FOLDER, as FORMAT.

    --list shows all formats.
    """
    from anmi.files import aside
    from anmi.report.console import expected_sentence
    from anmi.retrieval.kinds import in_words
    from anmi.selection.export import ExportOptions, find_format, make_export

    if name in _OTHERS:
        return _export_whole(context, name, folder, run_id)
    options = ExportOptions(**settings | {"score": settings["score"] or None})
    find_format(name, options)
    _refuse_to_overwrite(folder, force)
    saved = Saved(context, *_ROWS, *_COLLECTION, run_id=run_id)
    rows = saved.load("training_rows", "mining")
    (source,) = saved.places("training_rows").values()
    place = saved.whereabouts("training_rows")
    summary = saved.load("selection_summary", default={})
    mined = {
        "Recipe": place["recipe"],
        "Run": place["run"],
        "Audit": _audited(context.catalog, place),
        "Quality": expected_sentence(summary.get("expected")),
    }
    collection = _collection(saved) if saved.has(*_COLLECTION) else None
    exported = make_export(rows, name, options, collection, saved.load("encoder_info"), mined)
    try:
        with aside(folder) as path:
            exported.save(path)
    except OSError as error:
        raise AnmiError(
            f"cannot write to {folder}: {error.strerror or error}; choose another folder"
        ) from error
    click.echo(f"{len(exported.table):,} lines of {name} in {folder}, of {source}")
    if any(exported.prompts.values()):
        click.echo(f"prompts, not in the texts: {in_words(exported.prompts)}")
    if exported.score is not None:
        click.echo(f"scores: {exported.score}")
    for reason, count in exported.left_out.items():
        click.echo(f"warning: left out {reason}: {count:,}", err=True)
    click.echo(f"read it with: {exported.how_to_load(folder)}")
    return {
        "format": name,
        "folder": str(folder),
        "lines": len(exported.table),
        "source": source,
        "prompts": exported.prompts,
        "scores": exported.score,
        "left_out": exported.left_out,
        "read_with": exported.how_to_load(folder),
    }


def _audited(catalog: Any, place: dict[str, str]) -> str:
    """Say what the last audit measured of the recipe on this collection, if it did."""
    from anmi.judging.expected import share_sentence

    if not catalog.exists("audit_recipes"):
        return ""
    audit = catalog.load("audit_recipes")
    for row in audit.to_dict("records"):
        recipe = {"collection": row["collection"], "recipe": row["recipe"]}
        if row["negatives"] > 0 and recipe.items() <= place.items():
            ends = (row[f"false_negative_rate{end}"] for end in ("", "_low", "_high"))
            rate = share_sentence(*ends)
            return f"{rate} of {row['negatives']:,} negatives that the recipe chose are false"
    return ""


def _export_whole(context: Any, name: str, folder: Path, run_id: str | None) -> dict[str, Any]:
    """Write the search, or the collection."""
    from anmi.datasets.model_registry import search_folder
    from anmi.files import aside
    from anmi.search.exports import export_vectors
    from anmi.selection.export import export_collection

    if folder.is_dir() and any(folder.iterdir()):
        raise AnmiError(f"{folder} is not empty; name a new or empty folder")
    with aside(folder) as path:
        if name in ("mteb", "beir"):
            saved = Saved(context, "qrels", *_COLLECTION, run_id=run_id)
            qrels = saved.load("qrels", "ingestion")
            count = export_collection(_collection(saved), qrels, path, lines=name == "beir")
        else:
            saved = Saved(context, *SEARCHES, run_id=run_id)
            search = saved.load(saved.first(*SEARCHES), "evaluation")
            count = len(search.document_ids)
            if name == "vectors":
                count = export_vectors(search, path)
            elif name == "mlflow":
                search_folder(search, path)
            else:
                search.save(path)
    click.echo(f"{count:,} documents in {folder}")
    return {"format": name, "folder": str(folder), "documents": count}


def _refuse_to_overwrite(folder: Path, force: bool) -> None:
    from anmi.selection.export import may_replace

    if not folder.exists() or not any(folder.iterdir()):
        return
    # Replacing takes everything away that lies there, so it is done to exports only.
    if (strange := may_replace(folder)) is not None:
        raise AnmiError(
            f'{folder} holds "{strange}", which no export wrote; name a new or empty folder'
        )
    if not force:
        raise AnmiError(
            f"{folder} holds an export already; add --force to replace it, or name another folder"
        )


def _collection(saved: Saved) -> Collection:
    from anmi.selection.export import Collection

    corpus, queries, info = (saved.load(name, "ingestion") for name in _COLLECTION)
    return Collection(corpus, queries, info["collection"], info["language"])
