"""The project's commands: ``kedro run`` and ``kedro package`` of our own, and all of ``kedro anmi``."""

import click
from kedro.framework.cli.utils import CONTEXT_SETTINGS

from anmi.cli import (
    ablation,
    airflow,
    audit,
    champion,
    explain,
    export,
    negatives,
    opensearch,
    package,
    results,
    run,
    runs,
    search,
    store,
    task,
)

__all__ = ["anmi", "cli"]

_COMMANDS = [
    *(ablation.ablation, airflow.airflow, audit.audit, explain.explain, export.export, negatives.negatives),
    *(champion.champion, champion.rollback, runs.runs, runs.resume, runs.reproduce, runs.prune),
    *(results.results, search.search, opensearch.opensearch, store.store, task.task),
]
anmi = click.Group("anmi", commands=_COMMANDS, help="Look at what the last run brought.")
_OWN = [run.run, package.package, anmi]
# Kedro merges this group into its own.
cli = click.Group("anmi", commands=_OWN, help="Commands of this project.", context_settings=CONTEXT_SETTINGS)
