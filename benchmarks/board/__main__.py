"""The board: give a collection to a miner, score what it returns, or run all miners that are here.

From the repository's root:

    python benchmarks/board give scifact FOLDER
    python benchmarks/board score scifact SUBMISSION.jsonl --train
    python benchmarks/board run
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.append(str(Path(__file__).parents[1]))

from miners import MINERS
from protocol import COLLECTIONS, Task, read_submission, score, trained

from anmi.errors import AnmiError
from common import about, fill, load, markdown, parser, save

PAGE = Path(__file__).parent / "README.md"


def main() -> None:
    arguments = parser(__doc__)
    commands = arguments.add_subparsers(dest="command", required=True)
    give = commands.add_parser("give", help="write what a miner gets as a BEIR folder")
    give.add_argument("collection", choices=COLLECTIONS)
    give.add_argument("folder", type=Path)
    judge = commands.add_parser("score", help="score a file of negatives")
    judge.add_argument("collection", choices=COLLECTIONS)
    judge.add_argument("submission", type=Path)
    judge.add_argument(
        "--train", action="store_true", help="train on them as well, for nDCG@10 on test"
    )
    every = commands.add_parser(
        "run", help="run the miners that are here, and write the table of README.md"
    )
    every.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    asked = arguments.parse_args()
    try:
        if asked.command == "give":
            Task.of(asked.collection).write(asked.folder)
        elif asked.command == "score":
            task = Task.of(asked.collection)
            print(
                json.dumps(
                    measured(task, read_submission(asked.submission, task), train=asked.train),
                    indent=1,
                )
            )
        else:
            run(asked.collections)
    except (AnmiError, OSError) as error:
        sys.exit(str(error))


def measured(task: Task, chosen: pd.DataFrame, *, train: bool) -> dict[str, Any]:
    """Return the score, with what training brings if asked."""
    return score(task, chosen) | ({"ndcg_10": trained(task, chosen)} if train else {})


def run(collections: list[str]) -> None:
    """Run all miners; rows of other collections stay."""
    old = load("board")
    rows = [row for row in old["rows"] if row["collection"] not in collections]
    earlier = old if rows else None
    for name in collections:
        task = Task.of(name)
        for miner, mine in MINERS.items():
            rows.append(
                {"collection": name, "miner": miner} | measured(task, mine(task), train=True)
            )
            print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: list(COLLECTIONS).index(row["collection"]))
    save("board", {**about(), "rows": rows}, earlier)
    fill(PAGE, "board", table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows for people."""
    heads = ["false negatives", "95 % interval", "gap", "all 7 negatives", "nDCG@10 after training"]
    lines = [
        [
            row["collection"],
            row["miner"],
            f"{row['false_negative_rate']:.1%}",
            f"{row['low']:.1%} to {row['high']:.1%}",
            f"{row['gap']:.3f}",
            f"{row['coverage']:.0%}",
            f"{row['ndcg_10']:.3f}",
        ]
        for row in rows
    ]
    return markdown(["collection", "miner", *heads], lines)


if __name__ == "__main__":
    main()
