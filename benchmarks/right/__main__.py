"""What issue after issue found to be wrong without saying so, measured as it is now: one row a claim.

Each case stands in a module of this folder and can be run by itself. Cases that are named are measured again, and the
rows of all others stay. Run from the repository's root:

    python benchmarks/right [CASE ...]
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

RESULT: Final = Path(__file__).parents[1] / "results" / "right.json"
# Module and the function that returns its rows (``case, value, unit, note``).
CASES: Final = {
    "many_positives": "many_positives",
    "training_noise": "training_noise",
    "interval_coverage": "interval_coverage",
}
PACKAGES: Final = ("anmi", "kedro", "numpy", "torch", "sentence-transformers", "bm25s", "pytrec-eval-terrier")


def main() -> None:
    """Measure the cases that are asked for and write them down, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", choices=[*CASES, []], help="all, if none is named")
    for name in parser.parse_args().case or CASES:
        rows = getattr(importlib.import_module(name), CASES[name])()
        write(name, rows)
        for row in rows:
            print(f"{row['case']:<60} {row['value']} {row['unit']}  {row['note']}", flush=True)


def write(name: str, rows: list[Mapping[str, Any]]) -> None:
    """Put the rows of a case in the place of those it had before."""
    before = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
    measured = {"from": f"benchmarks/right/{name}.py", "date": datetime.date.today().isoformat()}
    order = [f"benchmarks/right/{case}.py" for case in CASES]
    # What a module measured that is gone goes with it.
    kept = [row for row in before if row["from"] in order and row["from"] != measured["from"]]
    kept += [{**row, **measured} for row in rows]
    document = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in PACKAGES},
        "rows": sorted(kept, key=lambda row: order.index(row["from"])),
    }
    aside = RESULT.with_suffix(".json.new")
    aside.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    aside.replace(RESULT)


if __name__ == "__main__":
    main()
