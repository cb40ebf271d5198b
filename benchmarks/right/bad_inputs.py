"""How many of the bad inputs of tests/e2e/bad_inputs.py are refused in one clear sentence before anything is saved.

``python benchmarks/right/bad_inputs.py`` prints the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
_TABLE: Final = "tests/e2e/bad_inputs.py"


def bad_inputs() -> list[dict[str, Any]]:
    """Try the table; return rows ``case, value, unit, note``."""
    found = _tried(ROOT / "src")
    rows = [
        ("bad_inputs_tried", found["tried"], f"rows of {_TABLE} that are to be refused"),
        ("bad_inputs_clear", found["clear"], "refused in one sentence with key, file, line or id and the cure"),
        ("bad_inputs_one_sentence", found["one_sentence"], "refused in one sentence, whatever it says"),
        ("fine_inputs_tried", found["fine_tried"], "rows of the table that are right or survivable"),
        ("fine_inputs_taken", found["fine_taken"], "not refused"),
    ]
    return [{"case": case, "value": value, "unit": "inputs", "note": note} for case, value, note in rows]


def _tried(source: Path) -> dict[str, int]:
    """Run the table on a source folder, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--count"],
        env=os.environ | {"PYTHONPATH": str(source)}, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _count() -> dict[str, int]:
    # Before Kedro puts the source of the project's folder first.
    import anmi

    source = Path(os.environ["PYTHONPATH"]).resolve()
    if source not in Path(anmi.__file__).resolve().parents:
        raise SystemExit(f"anmi was imported from {anmi.__file__} and not from {source}")
    sys.path.insert(0, str(ROOT))
    from tests.e2e.bad_inputs import CASES, FINE, try_case, verdict

    fine = {case.name for case in FINE}
    found = dict.fromkeys(("tried", "clear", "one_sentence", "fine_tried", "fine_taken"), 0)
    for case in CASES:
        with tempfile.TemporaryDirectory() as place:
            outcome = try_case(case, Path(place))
        wrong = verdict(case, outcome)
        if case.name in fine:
            found["fine_tried"] += 1
            found["fine_taken"] += not wrong
        else:
            found["tried"] += 1
            found["clear"] += not wrong
            found["one_sentence"] += outcome.kind == "said" and not outcome.saved
        if wrong:
            print(f"{case.name}: {wrong}", file=sys.stderr)
    return found


def main() -> None:
    """Print the rows as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", action="store_true", help="count for the code that is imported, and print that only")
    options = parser.parse_args()
    if options.count:
        print(json.dumps(_count()))
        return
    for row in bad_inputs():
        print(json.dumps(row))


if __name__ == "__main__":
    main()
