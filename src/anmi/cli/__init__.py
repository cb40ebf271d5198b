"""The project's commands: ``kedro run`` with plain errors, and all of ``kedro anmi``."""

import click
from kedro.framework.cli.utils import CONTEXT_SETTINGS

from anmi import environment  # noqa: F401
from anmi.cli import ablate, champion, doctor, explain, export, mcp, results, runs, search, serve
from anmi.cli.run import run

# Kedro looks for `run` here where the project is an installed package.
__all__ = ["anmi", "cli", "run"]

anmi = click.Group(
    "anmi",
    [
        doctor.doctor,
        results.results,
        explain.explain,
        search.search,
        serve.serve,
        mcp.mcp,
        results.audit,
        ablate.ablate,
        export.export,
        champion.champion,
        runs.runs,
        runs.resume,
        runs.prune,
    ],
    help=(
        "Mine hard and clean negatives, train retrievers on them, and see what they gain: `kedro"
        " anmi doctor` first, then `kedro run`, and `kedro anmi results`."
    ),
    epilog=(
        "`kedro anmi COMMAND --help` explains a command and ends with an example; docs/cli.md has"
        " all of them."
    ),
)
# Kedro merges this group into its own.
cli = click.Group(
    "anmi",
    commands=[run, anmi],
    help="Commands of this project.",
    context_settings=CONTEXT_SETTINGS,
)
