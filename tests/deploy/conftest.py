"""Tools that are no part of the project's environment, in folders of their own under build/."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tool() -> Callable[[str], Path]:
    """Install a package beside the environment, once, and return its folder."""

    def install(requirement: str) -> Path:
        folder = ROOT / "build" / "tools" / requirement
        if not (folder / ".installed").exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=1", "--timeout=20", "--upgrade"]
            done = subprocess.run(
                [*pip, "--target", str(folder), requirement], capture_output=True, text=True, check=False, timeout=300
            )
            if done.returncode:
                pytest.skip(f"{requirement} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
            (folder / ".installed").touch()
        return folder

    return install
