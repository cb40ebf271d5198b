"""The recipes of the project beside those of the literature: the set ``headline``, by the command that users have.

Cells that are there are kept, so the script may be interrupted. Run from the repository's root:

    python benchmarks/ablation.py
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "ablation.json"
TABLE = RESULT.with_suffix(".md")
ROWS = (
    "collection", "encoder", "recipe", "seed_count", "queries", "judgments", "ndcg_10", "low", "high", "spread",
    "baseline", "difference", "p_holm", "focus", "focus_difference", "p_holm_focus", "leak", "leak_from", "coverage",
    "rows", "promoted", "train_seconds", "search_seconds", "memory_mb", "buckets",
)  # fmt: skip
KEPT = ("date", "machine", "versions", "set", "description", "seeds", "level", "confidence", "resamples", "from")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="headline")
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "benchmarks" / "ablation")
    arguments = parser.parse_args()
    kedro = Path(sys.executable).with_name("kedro")
    environment = os.environ | {"ANMI_DATA_ROOT": str(arguments.work.resolve())}
    command = [str(kedro), "run", "--pipelines", "ablation", "--params", f"ablation.set={arguments.set}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    versions = sorted((arguments.work / "ablation" / "ablation_results.json").glob("*/ablation_results.json"))
    if not versions or json.loads(versions[-1].read_text(encoding="utf-8"))["set"] != arguments.set:
        sys.exit(done.returncode or 1)
    results = json.loads(versions[-1].read_text(encoding="utf-8"))
    document = {name: results[name] for name in KEPT} | {
        "rows": [{name: rounded(row[name]) for name in ROWS} for row in results["rows"]],
        "means": [{name: rounded(value) for name, value in row.items()} for row in results["means"]],
        "failed": results["failed"],
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.copyfile(sorted((arguments.work / "ablation" / "ablation_table.md").glob("*/ablation_table.md"))[-1], TABLE)
    # A cell that failed stands in the file; whoever runs this is to notice.
    sys.exit(done.returncode)


def rounded(value: object) -> object:
    """Round to five decimals, in depth."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return round(value, 5) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
