"""How seconds and memory of mining grow from ten thousand documents to a million, node by node.

`run` makes a collection (made_collection.py) with a query for ten documents, mines it by ``kedro run --pipelines
mining`` in a data root of its own, and takes seconds and MiB of every node from the run's record. Processor seconds of
the process and all that it started are sampled, and laid to the node that ran; memory of a node is that of the main
process, that of the run the largest sum of proportional set sizes of the tree. Rows go to benchmarks/results/scale.json
and, summed up, to speed.json. `draw` makes the picture and the table of docs/scale.md from them.

    python benchmarks/scale.py run 10000 30000 100000 --work build/scale
    python benchmarks/scale.py draw
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import made_collection
import peer_mining

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "benchmarks" / "results" / "scale.json"
DOCUMENT: Final = ROOT / "docs" / "scale.md"
PICTURE: Final = ROOT / "docs" / "images" / "scale.svg"
# Documents for a query, as many as the aim has: a million documents, 100,000 queries.
A_QUERY: Final = 10
# Of a million documents, on two cores.
GOAL_S: Final = 900.0
GOAL_MIB: Final = 8192.0


def mine(documents: int, work: Path, models: Path, recipe: str) -> dict[str, Any]:
    """Mine a made collection of so many documents, and return what each node took."""
    collection, root = work / f"made-{documents}", work / f"run-{documents}"
    if not (collection / "qrels" / "test.tsv").exists():
        made_collection.make(collection, documents, documents // A_QUERY)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(models, root / "store" / "models")
    found = peer_mining.mined(recipe, collection.resolve(), (root / "data").resolve(), (root / "store").resolve())
    manifest = json.loads(max((root / "data" / "runs").glob("*/manifest.json")).read_text(encoding="utf-8"))
    nodes = {
        node["node"]: {key: node[key] for key in ("seconds", "peak_mib", "of", "rows") if key in node}
        | {"cpu": round(found["node_cpu"][node["node"]], 1)}
        for node in manifest["nodes"]
    }
    return {
        "documents": documents, "queries": documents // A_QUERY, "recipe": recipe,
        "wall": round(found["wall"], 1), "cpu": round(found["cpu"], 1), "mib": round(found["mib"]),
        "disk_mib": round(sum(each.stat().st_size for each in root.rglob("*") if each.is_file()) / 2**20),
        "load": round(os.getloadavg()[2], 1), "date": manifest["start"][:10], "nodes": nodes,
    }  # fmt: skip


def main() -> None:
    """Run or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="mine made collections")
    run.add_argument("documents", type=int, nargs="+")
    run.add_argument("--work", type=Path, default=ROOT / "build" / "scale", help="for collections and data roots")
    run.add_argument("--models", type=Path, default=ROOT / "data" / "store" / "models", help="of distilled encoders")
    run.add_argument("--recipe", default="anmi")
    given = parser.parse_args()
    for documents in given.documents:
        found = mine(documents, given.work, given.models, given.recipe)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
