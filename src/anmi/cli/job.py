"""The entry point of jobs that know no exit code but success: ``anmi-job``, with the arguments of ``anmi``."""

from __future__ import annotations


def main() -> None:
    """Run with the command line's arguments, and end quietly also where a retraining kept the champion.

    Databricks calls it in an interpreter that goes on, where any ``SystemExit`` may count as a failure.
    """
    from anmi.__main__ import main as run
    from anmi.hooks.retraining import EXIT_CODES

    code = run(standalone_mode=False)
    if isinstance(code, int) and code not in (0, EXIT_CODES["kept"]):
        raise SystemExit(code)
