"""The largest memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def reset_peak() -> None:
    """Let the peak count from now on, where the system allows it (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_mib() -> float:
    """Return the largest resident memory of this process in MiB, since the last reset where that is possible."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)
