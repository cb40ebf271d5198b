"""The board: give a collection to a miner, score what it returns, or run all miners that are here.

From the repository's root:

    python benchmarks/board give scifact FOLDER
    python benchmarks/board score scifact SUBMISSION.jsonl --train
    python benchmarks/board run
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from miners import MINERS
from protocol import COLLECTIONS, ROOT, Task, read_submission, score, trained

from anmi.errors import AnmiError
from anmi.pipelines.reporting.nodes import machine, versions

RESULT = ROOT / "benchmarks" / "results" / "board.json"
PAGE = Path(__file__).parent / "README.md"
MARKS = ("<!-- made by python benchmarks/board run -->\n", "<!-- end -->")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    give = commands.add_parser("give", help="write what a miner gets as a BEIR folder")
    give.add_argument("collection", choices=COLLECTIONS)
    give.add_argument("folder", type=Path)
    judge = commands.add_parser("score", help="score a file of negatives")
    judge.add_argument("collection", choices=COLLECTIONS)
    judge.add_argument("submission", type=Path)
    judge.add_argument("--train", action="store_true", help="train on them as well, for nDCG@10 on test")
    every = commands.add_parser("run", help="run the miners that are here, and write the table of README.md")
    every.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    asked = parser.parse_args()
    try:
        if asked.command == "give":
            Task.of(asked.collection).write(asked.folder)
        elif asked.command == "score":
            task = Task.of(asked.collection)
            print(json.dumps(measured(task, read_submission(asked.submission, task), train=asked.train), indent=1))
        else:
            run(asked.collections)
    except (AnmiError, OSError) as error:
        sys.exit(str(error))


def measured(task: Task, chosen: pd.DataFrame, *, train: bool) -> dict[str, Any]:
    """Return the score, with what training brings if asked."""
    return score(task, chosen) | ({"ndcg_10": trained(task, chosen)} if train else {})


def run(collections: list[str]) -> None:
    """Run all miners; rows of other collections stay."""
    known = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.is_file() else []
    rows = [row for row in known if row["collection"] not in collections]
    for name in collections:
        task = Task.of(name)
        for miner, mine in MINERS.items():
            rows.append({"collection": name, "miner": miner} | measured(task, mine(task), train=True))
            print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: list(COLLECTIONS).index(row["collection"]))
    document = {"machine": machine(), "versions": versions(), "rows": rows}
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    PAGE.write_text(before + MARKS[0] + table(rows) + MARKS[1] + rest.split(MARKS[1], 1)[1], encoding="utf-8")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows for people."""
    lines = [
        "",
        "| collection | miner | false negatives | 95 % interval | gap | all 7 negatives | nDCG@10 after training |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['collection']} | {row['miner']} | {row['false_negative_rate']:.1%} | {row['low']:.1%} to "
            f"{row['high']:.1%} | {row['gap']:.3f} | {row['coverage']:.0%} | {row['ndcg_10']:.3f} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    main()
