# mypy: allow-untyped-decorators
"""``kedro anmi airflow``: write the DAG that runs pipelines every night."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import echo_json, example, json_option, plain_errors
from anmi.errors import AnmiError, nearest
from anmi.pipeline_registry import STAGES

TEMPLATE: Final = "airflow.py.jinja"
# They have a lock, a version and exit codes of their own, so `kedro run` starts them.
WHOLE: Final = ("retrain",)
_GROUPS: Final = {"__default__": STAGES, "mining": STAGES[: STAGES.index("selection") + 1]}
_NAME: Final = re.compile(r"[\w.-]{1,100}")
_CRON: Final = re.compile(r"@(hourly|daily|weekly|monthly|quarterly|yearly)|[\w*/,#?-]+( [\w*/,#?-]+){4}")


@click.command(
    short_help="Write an Airflow 3 DAG that runs pipelines every night.",
    epilog=example("kedro anmi airflow --output build/dags"),
)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder of DAGs to write to.")
@click.option("--pipelines", default="__default__", show_default=True, help="Comma-separated, in their order.")
@click.option("--schedule", default="0 2 * * *", show_default=True, help="Cron expression in UTC, @daily, ... or none.")
@click.option("--project", type=click.Path(path_type=Path), help="Folder of the project on the worker; this one.")
@click.option("--kedro", type=click.Path(path_type=Path), help="The command on the worker; that of this environment.")
@click.option("--retries", default=2, show_default=True, type=click.IntRange(0, 100), help="Of every task.")
@click.option("--retry-minutes", default=5, show_default=True, type=click.IntRange(0, 1440), help="Between them.")
@click.option("--timeout", default=24, show_default=True, type=click.IntRange(1, 1000), help="Of a task, in hours.")
@json_option
@env_option
def airflow(output: Path, as_json: bool, **options: Any) -> None:
    """Write an Airflow 3 DAG: a task for every pipeline, one version and one MLflow run for all of them."""
    with plain_errors():
        written = write_dag(output, **options)
    if as_json:
        echo_json({"dag": str(written)})
    else:
        click.echo(written)


def write_dag(
    output: Path,
    *,
    pipelines: str,
    schedule: str = "0 2 * * *",
    env: str | None = None,
    project: Path | None = None,
    kedro: Path | None = None,
    retries: int = 2,
    retry_minutes: int = 5,
    timeout: int = 24,
) -> Path:
    """Write the DAG of some pipelines into a folder.

    Parameters
    ----------
    output
        Folder of DAGs.
    pipelines
        Names in the registry, comma-separated; ``__default__`` and ``mining`` become one task a stage.
    schedule
        Cron expression, one of Airflow's names for such, or ``none``.
    env
        Environment of the configuration.
    project, kedro
        Where the project and its command lie on the worker.
    retries, retry_minutes, timeout
        Of every task; the timeout in hours.

    Returns
    -------
    Path
        The file, called after the id of the DAG.

    Raises
    ------
    AnmiError
        There is no such pipeline, or environment or schedule cannot be one.
    """
    from anmi.files import aside

    names = pipelines.split(",")
    environment = env or "local"
    if not _NAME.fullmatch(environment):
        raise AnmiError(f'environment "{environment}": letters, digits and . _ - were expected')
    if schedule != "none" and not _CRON.fullmatch(schedule):
        raise AnmiError(f'schedule "{schedule}": five fields as in "0 2 * * *", @daily and the like, or none')
    label = "_".join(name.strip("_") for name in names)
    dag_id = f"anmi_{label}_{environment}"
    text = render(
        title=f"{', '.join(names)} of anmi with the configuration of {environment}.",
        dag_id=dag_id,
        project=str((project or Path.cwd()).absolute()),
        kedro=str(kedro or Path(sys.executable).with_name("kedro")),
        environment=environment,
        pipelines=tasks(names),
        whole=WHOLE,
        schedule=None if schedule == "none" else schedule,
        retries=retries,
        retry_minutes=retry_minutes,
        timeout=timeout,
    )
    target = output / f"{dag_id}.py"
    # Airflow reads the folder again and again, and never a file that is half there.
    with aside(target) as path:
        path.write_text(text, encoding="utf-8")
    return target


def tasks(names: Sequence[str]) -> tuple[str, ...]:
    """Return the pipelines that become one task each.

    Raises
    ------
    AnmiError
        There is no such pipeline, or one comes twice.

    Examples
    --------
    >>> tasks(["ingestion", "bm25"])
    ('ingestion', 'bm25')
    """
    from kedro.framework.project import pipelines

    known = {*_GROUPS, *STAGES, *pipelines}
    found: list[str] = []
    for name in names:
        if name not in known:
            raise AnmiError(f'there is no pipeline "{name}": {nearest(name, known)}')
        found += _GROUPS.get(name, (name,))
    if len(set(found)) < len(found):
        raise AnmiError(f"pipelines {', '.join(names)}: the same stage comes twice; name each once")
    return tuple(found)


def render(**values: Any) -> str:
    """Fill the template; every text enters it as a Python literal."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False)
    environment.filters["literal"] = repr
    template = resources.files("anmi").joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(template).render(**values)
