"""The project as an installed package, outside its folder: ``anmi --conf-source conf --pipelines mining``.

Kedro's own command finds a project's commands only inside its folder; this one has them everywhere. Without the name
of a command it runs pipelines, as the entry point of any packaged Kedro project does.
"""

from __future__ import annotations

import logging
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

_OPTION: Final = "--conf-source"
_COMPLETION: Final = "_ANMI_COMPLETE"


def split_conf_source(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value of the option that names the configuration, and all other arguments.

    It may stand anywhere, since every command needs a configuration and only Kedro's ``run`` has the option.

    Examples
    --------
    >>> split_conf_source(["results", "--conf-source", "conf", "--json"])
    ('conf', ['results', '--json'])
    """
    found, rest = None, []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == _OPTION:
            found = next(remaining, "")
        elif argument.startswith(f"{_OPTION}="):
            found = argument.partition("=")[2]
        else:
            rest.append(argument)
    return found, rest


def configured(conf_source: str | None) -> click.Group:
    """Return the commands, set up for a configuration; none means the folder ``conf`` of the working directory.

    Raises
    ------
    click.UsageError
        It is not there.
    """
    place = Path("conf" if conf_source is None else conf_source).resolve()
    if not place.exists() or conf_source == "":
        raise click.UsageError(f"there is no configuration in {place}: name its folder or archive with {_OPTION}")
    with _logging_of(place) as settings_of_log:
        if settings_of_log is not None:
            # Read when Kedro is imported, and looked for in the working directory only.
            os.environ.setdefault("KEDRO_LOGGING_CONFIG", str(settings_of_log))
        from kedro.framework.project import configure_project, settings

        if (
            settings_of_log is not None
            and os.environ["KEDRO_LOGGING_CONFIG"] == str(settings_of_log)
            and not place.is_dir()
        ):
            # A copy that is about to go; processes started later would look for it.
            os.environ.pop("KEDRO_LOGGING_CONFIG")

    configure_project(Path(__file__).parent.name)
    settings.set("CONF_SOURCE", str(place))
    return packaged()


def completed() -> click.Group:
    """Return the commands for a shell that completes their names: in any folder, and without a line of a log."""
    logging.disable(logging.CRITICAL)
    return packaged()


def packaged() -> click.Group:
    """Return the commands; most of them need a configuration."""
    from anmi.cli import SECTIONS, anmi
    from anmi.cli.grouped import Packaged
    from anmi.cli.run import run

    return Packaged(
        "anmi",
        {"Run pipelines": [run], **SECTIONS},
        # `anmi anmi results` as well, because messages name commands as they are inside the project's folder.
        commands={"anmi": anmi},
        help=f"Run pipelines (see `anmi run --help`), or look at what runs brought; {_OPTION} names the configuration.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


@contextmanager
def _logging_of(place: Path) -> Iterator[Path | None]:
    """Give the file that configures logging, of an archive a copy of it; None where there is none."""
    if place.is_dir():
        yield place / "logging.yml" if (place / "logging.yml").is_file() else None
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "logging.yml"
        if tarfile.is_tarfile(place):
            with tarfile.open(place) as tar:
                found = [member for member in tar if member.isfile() and Path(member.name).parts[1:] == (copy.name,)]
                file = tar.extractfile(found[0]) if found else None
                copy.write_bytes(file.read() if file is not None else b"")
        yield copy if copy.is_file() and copy.stat().st_size else None


def main(args: Sequence[str] | None = None, **options: Any) -> Any:
    """Run with the command line's arguments, or those given."""
    conf_source, rest = split_conf_source(sys.argv[1:] if args is None else args)
    try:
        group = completed() if _COMPLETION in os.environ else configured(conf_source)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    return group.main(rest, **{"prog_name": "anmi", "standalone_mode": not hasattr(sys, "ps1"), **options})


def job() -> None:
    """Run as a job of a scheduler that knows no exit code but success: ``anmi-job``, with the arguments of ``anmi``.

    It ends quietly also where a retraining kept the champion. Databricks calls it in an interpreter that goes on, where
    any ``SystemExit`` may count as a failure.
    """
    from anmi.hooks.retraining import EXIT_CODES

    code = main(standalone_mode=False)
    if isinstance(code, int) and code not in (0, EXIT_CODES["kept"]):
        raise SystemExit(code)


if __name__ == "__main__":
    main()
