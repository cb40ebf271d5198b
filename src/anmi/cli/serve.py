# mypy: allow-untyped-decorators
"""``kedro anmi serve``: a web page over the last run, to look at it and to mark pairs."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import (
    SEARCHES,
    Saved,
    example,
    opened_project,
    plain_errors,
    run_option,
    store_path,
)
from anmi.errors import AnmiError, pip_install

if TYPE_CHECKING:
    from anmi.search import HybridSearch
    from anmi.serve.run import Run, ZeroShot

PORT: Final = 8765
_HOST: Final = "127.0.0.1"
_SHOWN: Final = (
    "selection",
    "corpus",
    "queries",
    "fused_judge",
    "selection_summary",
    "collection_info",
    *SEARCHES,
    "dense_index",
    "encoder_info",
    "corpus_encoder",
    "qrels",
    "pseudo_queries",
)


@click.command(
    short_help="Look at the last run in a browser, and mark what is relevant.",
    epilog=example("kedro anmi serve"),
)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 takes a free one.",
)
@click.option(
    "--as", "by", metavar="NAME", help="Name stored with each mark; by default the user's."
)
@run_option
@env_option
def serve(port: int, by: str | None, run_id: str | None, env: str | None) -> None:
    """Serve a page about the last run or --run: search, look at candidates, and mark pairs.

    Marks become labels of the next run (docs/collections.md). Only this machine reaches the page;
    `ssh -L` brings it to another. Ctrl-C ends it with the exit code 0.
    """
    with plain_errors(), opened_project(env) as context:
        try:
            import uvicorn

            from anmi.serve.app import create_app
            from anmi.serve.guard import Guard
        except ModuleNotFoundError as error:
            raise AnmiError(
                f"the web page needs the package {error.name}, which is not installed:"
                f" {pip_install('serve')}"
            ) from None
        marks, run = _opened(context, run_id)
        app = create_app(run, marks, by or user(), Guard())
        with _listening(port) as listening:
            address = f"http://{_HOST}:{listening.getsockname()[1]}/"
            click.echo(f"{address}\nmarks go to {marks}\npress Ctrl-C to stop")
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
            )
            try:
                uvicorn.Server(config).run(sockets=[listening])
            except KeyboardInterrupt:
                click.echo("\nended", err=True)


def _opened(context: Any, run_id: str | None) -> tuple[Path, Run]:
    """Return the file of marks, and the run as the page shows it."""
    from anmi.report.sentences import where
    from anmi.serve.run import Run

    saved = Saved(context, *_SHOWN, run_id=run_id)
    selection = saved.load("selection", "mining")
    info = saved.load("collection_info", "ingestion")
    marks = _marks_file(context, info["collection"])
    summary = saved.load("selection_summary", default={})
    search = saved.load(saved.first(*SEARCHES))
    place = saved.whereabouts("selection")
    run = Run(
        where=where(
            info["collection"], str(summary.get("recipe", "")), place["run"], place["date"]
        ),
        notice=place["notice"],
        selection=selection,
        fused=saved.load("fused_judge", default={}),
        negatives_wanted=summary.get("negatives_wanted"),
        seed=int(context.params["seed"]),
        language=info["language"],
        search=search,
        zero_shot=_zero_shot(context, saved, search),
        **{name: saved.load(name, "ingestion") for name in ("corpus", "queries")},
        **{name: saved.load(name) for name in ("qrels", "pseudo_queries") if saved.has(name)},
    )
    return marks, run


def run_to_mark(context: Any) -> tuple[Path, Run]:
    """Return the file of marks, and of the last run no more than a mark needs."""
    from anmi.candidates import CandidateShards
    from anmi.serve.run import Run

    saved = Saved(context, "corpus", "queries", "collection_info")
    info = saved.load("collection_info", "ingestion")
    tables = {name: saved.load(name, "ingestion") for name in ("corpus", "queries")}
    run = Run(where="", notice="", selection=CandidateShards.of([]), **tables)
    return _marks_file(context, info["collection"]), run


def _marks_file(context: Any, collection: str) -> Path:
    from anmi.corpus.marks import file_of

    marks = file_of(context.params["ingestion"].marks, collection)
    if marks is None:
        raise AnmiError(
            "there is no place for marks, since ingestion.marks is null or an address: set it to a"
            " folder, as in conf/base/parameters_ingestion.yml"
        )
    return Path(context.project_path / marks)


def _zero_shot(context: Any, saved: Saved, search: HybridSearch | None) -> ZeroShot | None:
    """Return the encoder that the run began with, where there is a search to compare it with."""
    from anmi.retrieval.encoders import Encoder, place_of
    from anmi.serve.run import ZeroShot

    if search is None or not saved.has("dense_index", "encoder_info", "corpus_encoder"):
        return None
    if search.settings.get("zero_shot") in search.parts:
        return None
    index = saved.load("dense_index")
    info = saved.load("encoder_info")
    dense = context.params["dense"]
    if not index.settings["dimensions"] or index.document_ids != search.document_ids:
        return None
    place = place_of(info["encoder"], saved.load("corpus_encoder"))
    models = store_path(context) / "models"
    settings = dense.of(place, precision=info["computed_by"])
    return ZeroShot(index, Encoder(settings, models))


def user() -> str:
    """Return the name of who runs this command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return str(os.getuid())


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        raise AnmiError(
            f"cannot listen at port {port} ({error.strerror or error}): choose another --port, or 0"
        ) from None
