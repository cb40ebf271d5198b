"""What processes leave that were killed."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def killed(made_once):
    """The folder of ``resuming.py`` after it ran: two trainings killed by signal 9, and one that lacked memory.

    One process for all, since to import the libraries is most of its time.
    """

    def make(folder):
        script = Path(__file__).with_name("resuming.py")
        done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["9", "9", "0"], done.stderr

    return made_once("killed", make)
