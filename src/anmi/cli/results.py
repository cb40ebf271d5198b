"""``kedro anmi results`` and ``kedro anmi audit``: what the last run or audit brought."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import click

from anmi.cli.common import Saved, command, console, echo_places, run_option, store_path
from anmi.errors import AnmiError, masked, visible

_MINED: Final = ("negatives", "training_rows")


@command("kedro anmi results", short_help="Print the results of the last run.")
@run_option
def results(context: Any, run_id: str | None) -> Any:
    """Print the results of the last run or of --run; of its mining where it was not evaluated."""
    from anmi.hooks.mlflow import tracked_at
    from anmi.hooks.record import flatten

    names = ("results", "report", "trained_model", "selection", "selection_summary", *_MINED)
    saved = Saved(context, *names, run_id=run_id)
    mined = not saved.has("results") and saved.has("selection_summary")
    name = "selection_summary" if mined else "results"
    document: dict[str, Any] = {
        "paths": saved.places(*(_MINED if mined else ("report", "trained_model")))
    }
    document |= saved.load(name, "evaluation,final,reporting")
    document |= {"sentences": [*_sentences(document), *_quality(document)]}
    run = saved.echo_where(name)["run"]
    option = f" --env {context.env}" if context.env else ""
    if mined:
        _print_mining(document)
        parameters = flatten(saved.runs.read(run).get("runtime_parameters", {}))
        params = ",".join(f"{key}={value}" for key, value in parameters.items())
        words = f"kedro run{option} --pipelines adaptation,training,evaluation,final,reporting"
        click.echo(
            f"\nnext: {words}" + (f" --params {shlex.quote(visible(params))}" if params else "")
        )
        return document
    _print(document)
    click.echo(f"{'tracking database':<18} {masked(tracked_at(context)) or 'switched off'}")
    block = next(iter(saved.load("selection", default=())), None)
    if block is not None and len(block):
        click.echo(
            f"\nnext: kedro anmi explain{option} {visible(shlex.quote(str(block.query_ids[0])))}"
        )
    return document


def _print_mining(results: dict[str, Any]) -> None:
    """Print what mining brought where nothing was trained: negatives, sources, rejections."""
    from anmi.report.console import NOTHING_MINED, origins_table, rejections_table, source_table

    if not any(row["candidates"] for row in results["funnel"]):
        click.echo(NOTHING_MINED)
        return
    for printed in (
        source_table(results["by_source"]),
        rejections_table(results["funnel"]),
        origins_table(results["origins"]),
    ):
        console().print(printed)
    full = f"{results['coverage']:.1%} of them with all {results['negatives_wanted']} negatives"
    click.echo(f"recipe {results['recipe']}: {results['rows']:,} rows, {full}")
    for line in _quality(results):
        click.echo(line)
    echo_places(results["paths"])


def _quality(results: dict[str, Any]) -> list[str]:
    """Say how many of the negatives are false, as the judge expects and as the truth has it."""
    from anmi.report.console import expected_sentence
    from anmi.report.sentences import false_negatives_lines

    # The second is known only where the collection holds its own truth.
    counted = false_negatives_lines(results.get("false_negatives") or {})
    return [line for line in (expected_sentence(results.get("expected")), *counted) if line]


def _sentences(results: dict[str, Any]) -> list[str]:
    """Say what was measured, and what a reader must know of it; nothing where nothing was."""
    import pandas as pd

    from anmi.report.sentences import composition, notices, verdict, warning

    if "comparisons" not in results:
        return []
    measured = pd.DataFrame(results["rows"])
    compared = pd.DataFrame(results["comparisons"])
    sentences = [
        *notices(results, measured),
        verdict(measured, compared),
        results.get("new_documents"),
        composition(results.get("search")),
        warning(measured, compared),
    ]
    return [sentence for sentence in sentences if sentence]


def _print(saved: dict[str, Any]) -> None:
    import pandas as pd

    from anmi.report.console import (
        NOTHING_MINED,
        bucket_table,
        parts_table,
        rejections_table,
        results_table,
    )
    from anmi.retrieval.kinds import in_words

    measured = pd.DataFrame(saved["rows"])
    compared = pd.DataFrame(saved["comparisons"])
    if len(measured):
        console().print(results_table(measured, compared))
    for printed in (bucket_table(measured), parts_table(saved.get("search"))):
        if printed:
            console().print(printed)
    for sentence in _sentences(saved):
        click.echo(sentence)
    if any(row["candidates"] for row in saved["funnel"]):
        console().print(rejections_table(saved["funnel"]))
    else:
        click.echo(NOTHING_MINED)
    for line in _quality(saved):
        click.echo(line)
    if saved.get("marks"):
        click.echo(f"marks: {saved['marks']}")
    if quarantined := saved.get("quarantined"):
        click.echo(
            "quarantined: "
            + ", ".join(f"{count} x {reason}" for reason, count in quarantined.items())
        )
    if any((prompts := saved.get("prompts") or {}).values()):
        click.echo(f"{'prompts':<18} {in_words(prompts)}")
    echo_places(saved["paths"])


_PATH: Final = click.Path(path_type=Path)


@command(
    "kedro anmi audit",
    "kedro anmi audit --file negatives.jsonl --corpus corpus.jsonl --clean cleaned.jsonl",
    short_help="Print the last audit, or audit the negatives in a file.",
)
@click.option(
    "--file",
    "negatives",
    type=_PATH,
    help="Negatives of sentence-transformers, FlagEmbedding, Tevatron, DPR or NeMo.",
)
@click.option("--corpus", type=_PATH, help="JSONL or Parquet file of all documents.")
@click.option("--model", type=_PATH, help="Folder of the encoder that finds similar documents.")
@click.option("--clean", type=_PATH, help="Where to write the file without doubtful negatives.")
@click.option("--weights", is_flag=True, help="Write 1 - P of each negative instead.")
def audit(
    context: Any,
    negatives: Path | None,
    corpus: Path | None,
    model: Path | None,
    clean: Path | None,
    weights: bool,
) -> Any:
    """Print how recipes and judges did in the last audit, or what a file's negatives are worth."""
    if negatives is not None:
        return _audit_file(context, negatives, corpus, model, clean, weights)
    if corpus or model or clean or weights:
        raise AnmiError("--corpus, --model, --clean and --weights belong to --file NEGATIVES")
    from anmi.report.console import judges_table, recipes_table

    saved = Saved(context, "audit_summary", "audit_recipes", "audit_judges")
    summary = saved.load("audit_summary", "audit")
    console().print(recipes_table(saved.load("audit_recipes"), summary))
    console().print(judges_table(saved.load("audit_judges")))
    for name, reason in summary["failed"].items():
        click.echo(f"{name} cannot be run on this collection: {reason}")
    return summary


def _audit_file(
    context: Any,
    negatives: Path,
    corpus: Path | None,
    model: Path | None,
    clean: Path | None,
    weights: bool,
) -> Any:
    """Audit the negatives in a file, and write it again where that is asked for."""
    from anmi.api import audit_negatives

    if clean is not None and clean.exists():
        raise AnmiError(f"{clean} is there already: name a new file with --clean")
    encoder = None
    if model is not None:
        from anmi.retrieval.encoders import Encoder
        from anmi.retrieval.kinds import EncoderSettings

        encoder = Encoder(EncoderSettings(encoder=str(model)), store_path(context)).trainable()
    result = audit_negatives(
        negatives, corpus, encoder, store=store_path(context), seed=0, verbose=False
    )
    click.echo(visible(str(result)))
    document = result.summary()
    if clean is not None:
        document["cleaned"] = {"path": str(clean), "records": result.save(clean, weights=weights)}
        click.echo(f"wrote {document['cleaned']['records']:,} records to {clean}")
    return document
