"""The project's commands: ``kedro run`` and ``kedro package`` of our own, and all of ``kedro anmi``."""

import click
from kedro.framework.cli.utils import CONTEXT_SETTINGS

from anmi.cli.ablation import ablation
from anmi.cli.airflow import airflow
from anmi.cli.audit import audit
from anmi.cli.champion import champion, rollback
from anmi.cli.explain import explain
from anmi.cli.export import export
from anmi.cli.negatives import negatives
from anmi.cli.package import package
from anmi.cli.results import results
from anmi.cli.run import run
from anmi.cli.runs import prune, reproduce, resume, runs
from anmi.cli.store import store
from anmi.cli.task import task

__all__ = ["anmi", "cli"]

anmi = click.Group(
    "anmi",
    commands=[
        ablation, airflow, audit, champion, explain, export, negatives, prune, reproduce, results, resume, rollback,
        runs, store, task,
    ],
    help="Look at what the last run brought.",
)  # fmt: skip
# Kedro merges this group into its own.
cli = click.Group(
    "anmi", commands=[run, package, anmi], help="Commands of this project.", context_settings=CONTEXT_SETTINGS
)
