# mypy: allow-untyped-decorators
"""The command that clears the store: ``kedro anmi store prune``."""

from __future__ import annotations

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import echo_json, example, json_option, project, store_path
from anmi.errors import AnmiError


@click.group(
    name="store", short_help="Clear the cache of embeddings.", epilog=example("kedro anmi store prune --older-than 90")
)
def store() -> None:
    """Clear the cache of embeddings and judgments; deleting its folder clears all of it."""


@store.command(epilog=example("kedro anmi store prune --older-than 90"))
@click.option(
    "--older-than", type=click.FloatRange(min=0, max=36_500), metavar="DAYS", required=True,
    help="What was not used for so long.",
)  # fmt: skip
@json_option
@env_option
def prune(older_than: float, as_json: bool, env: str | None) -> None:
    """Remove embeddings, judgments and models that were not used for long; what is needed again is computed again."""
    from anmi.store import Store

    with project(env, as_json=as_json) as context:
        path = store_path(context)
        if not (path / "data.mdb").exists():
            raise AnmiError(f"there is no store in {path} yet: `kedro run` makes it, or set ANMI_STORE")
        with Store(path) as found:
            values, folders = found.prune(older_than)
    if as_json:
        echo_json({"values": values, "folders": folders})
        return
    click.echo(f"removed: values of {values} fingerprints and {folders} folders of models; their room is used again")
