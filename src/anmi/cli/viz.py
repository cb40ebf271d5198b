# mypy: allow-untyped-decorators
"""``kedro anmi viz``: the pipeline with what its last run made, as a site of static files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import click
from kedro.framework.cli.utils import env_option

from anmi.cli.common import echo_json, example, json_option, project
from anmi.errors import AnmiError
from anmi.files import aside

_START: Final = "index.html"
# By this file one of Kedro-Viz's sites is told from another folder.
_MARK: Final = Path("api", "deploy-viz-metadata")
_ELSEWHERE: Final = re.compile(r'\s*<link[^>]*\shref="https?://[^>]*>')


@click.command(epilog=example("kedro anmi viz --output build/viz"))
@click.option(
    "--output",
    default=Path("build/viz"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder to write; a site that is there already is replaced.",
)
@json_option
@env_option
def viz(output: Path, as_json: bool, env: str | None) -> None:
    """Write the pipeline with all that it made as a static site."""
    with project(env, as_json=as_json) as context:
        write_site(output, context)
    if as_json:
        echo_json({"site": str(output / _START)})
        return
    click.echo(output / _START)
    click.echo(f"to look at it: python -m http.server --bind 127.0.0.1 --directory {output}")


def write_site(output: Path, context: Any) -> None:
    """Write what ``kedro viz build --include-previews`` does, into a folder and for an environment of one's choice.

    Nothing is fetched from other hosts by who opens it, what is asked of a server alone is answered by a file, and
    paths within the project are relative.

    Raises
    ------
    AnmiError
        The folder is there and holds something else, or a parameter holds a secret: the site shows all of them.
    """
    import fsspec
    import kedro_viz
    from kedro.framework.project import pipelines
    from kedro_viz.api.rest.responses.metadata import MetadataAPIResponse
    from kedro_viz.api.rest.responses.save_responses import save_api_responses_to_fs
    from kedro_viz.api.rest.utils import get_package_compatibilities
    from kedro_viz.data_access import data_access_manager
    from kedro_viz.server import populate_data

    from anmi.hooks.secrets import check_no_secrets

    check_no_secrets(context.params)
    if output.exists() and not (output / _MARK).exists() and any(output.iterdir()):
        raise AnmiError(f"{output} holds something else than a site of Kedro-Viz: name another folder by --output")
    data_access_manager.reset_fields()
    populate_data(data_access_manager, context.catalog, dict(pipelines), {})
    with aside(output) as site:
        shutil.copytree(Path(kedro_viz.__file__).parent / "html", site)
        save_api_responses_to_fs(str(site), fsspec.filesystem("file"), True)
        start = site / _START
        start.write_text(_ELSEWHERE.sub("", start.read_text(encoding="utf-8")), encoding="utf-8")
        packages = MetadataAPIResponse(package_compatibilities=get_package_compatibilities())
        (site / "api" / "metadata").write_text(packages.model_dump_json(), encoding="utf-8")
        # Where the project lies on this machine is nobody's business.
        inside = f'"{Path(context.project_path).as_posix()}/'
        for node in (site / "api" / "nodes").iterdir():
            node.write_text(node.read_text(encoding="utf-8").replace(inside, '"'), encoding="utf-8")
        # A date would make each site another one.
        (site / _MARK).write_text(json.dumps({"timestamp": "", "version": kedro_viz.__version__}), encoding="utf-8")
