"""Run the project as a package: ``python -m anmi --pipelines mining``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kedro.framework.project import configure_project


def main(*args: Any, **kwargs: Any) -> Any:
    """Run with the command line's arguments."""
    configure_project(Path(__file__).parent.name)
    from anmi.cli import run

    return run(*args, **{"standalone_mode": not hasattr(sys, "ps1"), **kwargs})


if __name__ == "__main__":
    main()
