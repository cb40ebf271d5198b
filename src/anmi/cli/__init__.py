"""The project's commands: ``kedro run`` and ``kedro package`` of our own, and all of ``kedro anmi``."""

from typing import Final

import click
from kedro.framework.cli.utils import CONTEXT_SETTINGS

from anmi.cli import (
    ablate,
    airflow,
    audit,
    champion,
    collections,
    compare,
    doctor,
    explain,
    export,
    init,
    negatives,
    opensearch,
    package,
    recipes,
    results,
    run,
    runs,
    search,
    serve,
    store,
    task,
    viz,
)
from anmi.cli.grouped import Grouped

__all__ = ["SECTIONS", "anmi", "cli"]

SECTIONS: Final = {
    "Begin": [doctor.doctor, init.init],
    "Look at what a run brought": [results.results, negatives.negatives, explain.explain, serve.serve, viz.viz],
    "Search": [search.search, opensearch.opensearch],
    "Compare": [compare.compare, champion.champion, audit.audit, ablate.ablate],
    "Mine": [recipes.recipes, collections.collections, export.export],
    "Schedule": [airflow.airflow, task.task, champion.rollback],
    "Keep house": [runs.runs, runs.resume, runs.reproduce, runs.prune, store.store],
}
anmi = Grouped(
    "anmi",
    SECTIONS,
    help="Mine hard and clean negatives, train retrievers on them, and see what they gain: `kedro anmi doctor` first, "
    "then `kedro anmi init` for data of your own, `kedro run`, and `kedro anmi results`.",
    epilog="`kedro anmi COMMAND --help` explains a command and ends with an example; docs/cli.md has all of them.",
)
_OWN = [run.run, package.package, anmi]
# Kedro merges this group into its own.
cli = click.Group("anmi", commands=_OWN, help="Commands of this project.", context_settings=CONTEXT_SETTINGS)
