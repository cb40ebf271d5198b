"""Walk docs/tutorial.md as a stranger would: a fresh clone, an empty home, a folder of one's own; time each command.

    python benchmarks/tutorial_walk.py ~/notes

Commands are those of the page's shell blocks, in their order; only the folder that they read is
another. The result is ``benchmarks/results/tutorial_walk.json``, written after each command. The
first that fails ends the walk.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from common import ROOT, now, parser, save

PAGE = ROOT / "docs" / "tutorial.md"
EXAMPLE = "docs:docs/**/*.md"


def commands(page: str, folder: Path) -> list[str]:
    """Return the lines of the page's shell blocks, reading ``folder`` where the page reads its example."""
    blocks = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    return [
        line.replace(EXAMPLE, f"docs:{folder}")
        for block in blocks
        for line in block.splitlines()
        if line
    ]


def walk(lines: list[str], clone: Path, home: Path) -> Iterator[dict[str, Any]]:
    """Run commands one after the other in one clone; yield what each took, with the machine's load before it."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANMI_", "VIRTUAL_ENV"))
    }
    environment |= {"HOME": str(home), "COLUMNS": "120"}
    exports: list[str] = []
    for line in lines:
        # What a terminal keeps from one command to the next.
        if line.startswith("export "):
            exports.append(line)
            continue
        load, before, started = (
            os.getloadavg()[0],
            resource.getrusage(resource.RUSAGE_CHILDREN),
            time.perf_counter(),
        )
        done = subprocess.run(
            ["bash", "-c", "\n".join([*exports, line])],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield {
            "command": line,
            "seconds": round(time.perf_counter() - started, 1),
            "processor_seconds": round(processor, 1),
            "load": round(load, 1),
            "exit": done.returncode,
        }
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-3000:], file=sys.stderr)
            return


def main() -> int:
    """Walk, and write what was measured; 1 where a command failed."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "folder", type=Path, help="a folder of text files, not one of this project"
    )
    folder = arguments.parse_args().folder.resolve()
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "date": now()[:10],
        "files": sum(path.is_file() for path in folder.rglob("*")),
        "steps": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        clone, home = Path(scratch) / "clone", Path(scratch) / "home"
        home.mkdir()
        first = walk([f"git clone --quiet {ROOT} {clone}"], Path(scratch), home)
        for step in chain(
            first, walk(commands(PAGE.read_text(encoding="utf-8"), folder), clone, home)
        ):
            for text, name in ((folder, "FOLDER"), (clone, "CLONE"), (ROOT, "REPOSITORY")):
                step["command"] = step["command"].replace(str(text), name)
            found["steps"].append(step)
            save("tutorial_walk", found)
            print(json.dumps(step), flush=True)
    return int(any(step["exit"] for step in found["steps"]))


if __name__ == "__main__":
    sys.exit(main())
