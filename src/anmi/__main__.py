"""The packaged project: ``python -m anmi --conf-source=conf`` runs pipelines."""

import sys
from pathlib import Path
from typing import Any

from kedro.framework.cli.utils import find_run_command
from kedro.framework.project import configure_project


def main(*args: Any, **kwargs: Any) -> Any:
    """Run with the command line's arguments, or those given."""
    package = Path(__file__).parent.name
    configure_project(package)
    kwargs["standalone_mode"] = not hasattr(sys, "ps1")
    return find_run_command(package)(*args, **kwargs)


if __name__ == "__main__":
    main()
