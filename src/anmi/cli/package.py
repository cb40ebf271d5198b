# mypy: allow-untyped-decorators
"""``kedro package``: a wheel of the code, and an archive of the configuration that holds nothing of ``conf/local``.

Kedro's own command leaves out ``conf/local/*.yml`` and packs everything else there, ``credentials.yaml`` for one.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import click

from anmi.cli.common import example, plain_errors
from anmi.errors import AnmiError
from anmi.files import aside

LOCAL: Final = "local"
_KEPT: Final = ".gitkeep"


@click.command(epilog=example("kedro package"))
@click.pass_obj
def package(metadata: Any) -> None:
    """Write a wheel of the project and an archive of its configuration, without conf/local, to dist/."""
    project = Path(metadata.project_path)
    with plain_errors():
        build_wheel(project)
        archive = project / "dist" / f"conf-{metadata.package_name}.tar.gz"
        pack_configuration(project / "conf", archive)
    for path in (*sorted((project / "dist").glob(f"{metadata.package_name}-*.whl")), archive):
        click.echo(path)


def build_wheel(project: Path) -> None:
    """Build the wheel with the installed setuptools, so with the locked one, and without a network.

    Raises
    ------
    AnmiError
        The build failed; what it said is on the standard error.
    """
    # Modules that were removed since the last build would be packed again from there.
    shutil.rmtree(project / "build" / "lib", ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        click.echo(done.stdout + done.stderr, err=True)
        raise AnmiError(f"the wheel of {project} cannot be built (see above): correct it and package again")


def pack_configuration(conf: Path, archive: Path) -> None:
    """Pack the configuration of all environments but ``local``, of which only the empty folder is kept.

    Equal files give equal bytes: neither times nor users are packed.
    """

    def neutral(found: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(found.name).parts[1:]
        if parts[:1] == (LOCAL,) and parts not in ((LOCAL,), (LOCAL, _KEPT)):
            return None
        if not (found.isfile() or found.isdir()):
            raise AnmiError(f"{conf.parent / found.name} is a link, which an archive cannot keep: put the file there")
        found.mtime = found.uid = found.gid = 0
        found.uname = found.gname = ""
        return found

    with (
        aside(archive) as path,
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        tar.add(conf, conf.name, filter=neutral)
