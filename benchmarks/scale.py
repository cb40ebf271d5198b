"""How seconds and memory of mining grow from ten thousand documents to a million, node by node.

It makes a collection (made_collection.py) with a query for ten documents, mines it by ``kedro run --pipelines
mining`` in a data root of its own, and takes seconds and MiB of every node from the run's record. Processor seconds of
the process and all that it started are sampled and laid to the node that ran, since other work on the machine stretches
wall time. Memory of a node is the largest resident one of the main process; that of the run is the largest sum of
proportional set sizes of the tree. A run that is stopped by ``--limit`` leaves the nodes that it came to. It
writes to benchmarks/results/scale.json and its table into docs/production.md; docs/images/draw.py draws its picture.

    python benchmarks/scale.py 10000 30000 100000 --work build/scale
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import made_collection
import peer_mining

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "benchmarks" / "results" / "scale.json"
DOCUMENT: Final = ROOT / "docs" / "production.md"
# Documents for a query: what is aimed at has a million, and 100,000 queries.
A_QUERY: Final = 10
# Its frequent words are English, and the others of no language, by which they would be taken for Nigerian Pidgin.
_LANGUAGE: Final = ",ingestion.language=en"
# Below it, what a process needs to begin with hides how a node grows.
GROWS_FROM: Final = 30_000


def mine(documents: int, work: Path, models: Path, recipe: str, limit: float) -> dict[str, Any]:
    """Mine a made collection of so many documents, and return what each node took."""
    collection, root = work / f"made-{documents}", work / f"run-{documents}"
    if not (collection / "qrels" / "test.tsv").exists():
        made_collection.make(collection, documents, documents // A_QUERY)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(models, root / "store" / "models")
    places = collection.resolve(), (root / "data").resolve(), (root / "store").resolve()
    found = peer_mining.mined(recipe, *places, limit, _LANGUAGE)
    nodes = {
        node: {"seconds": seconds, "cpu": round(found["node_cpu"][node], 1), "peak_mib": found["node_mib"][node]}
        for node, seconds in found["nodes"].items()
    }
    return {
        "documents": documents, "queries": documents // A_QUERY, "recipe": recipe, "whole": found["whole"],
        "wall": round(found["wall"], 1), "cpu": round(found["cpu"], 1), "mib": round(found["mib"]),
        "disk_mib": round(sum(each.stat().st_size for each in root.rglob("*") if each.is_file()) / 2**20),
        "load": round(os.getloadavg()[2], 1), "date": datetime.now(UTC).date().isoformat(), "nodes": nodes,
    }  # fmt: skip


def slope(runs: list[dict[str, Any]], node: str, value: str) -> float | None:
    """Return the exponent of a node's growth with documents, by least squares of logarithms; None of one run."""
    points = [
        (run["documents"], run["nodes"][node][value])
        for run in runs
        if run["documents"] >= GROWS_FROM and run["nodes"].get(node, {}).get(value)
    ]
    if len(points) < 2:
        return None
    return float(np.polyfit(*np.log(points).T, 1)[0])


def nodes_table(runs: list[dict[str, Any]]) -> str:
    """Return processor seconds and MiB of the nodes, and by which power of the number of documents they grow."""
    runs = sorted(runs, key=lambda run: run["documents"])
    heads = [f"{run['documents']:,}" for run in runs]
    lines = [f"| node | {' | '.join(heads)} | slope | MiB | slope |", "|---|" + "---|" * (len(runs) + 3)]
    for node in max(runs, key=lambda run: len(run["nodes"]))["nodes"]:
        cells = [f"{run['nodes'][node]['cpu']:.1f}" if node in run["nodes"] else "–" for run in runs]
        peaks = [run["nodes"][node]["peak_mib"] for run in runs if node in run["nodes"]]
        if max(run["nodes"][node]["cpu"] for run in runs if node in run["nodes"]) < 1:
            continue
        slopes = [slope(runs, node, value) for value in ("cpu", "peak_mib")]
        told = ["–" if each is None else f"{each:.2f}" for each in slopes]
        lines.append(f"| `{node}` | {' | '.join(cells)} | {told[0]} | {peaks[-1]:,} | {told[1]} |")
    whole = [f"**{run['cpu']:.0f}**" if run["whole"] else f"({run['cpu']:.0f})" for run in runs]
    lines.append(f"| **whole process** | {' | '.join(whole)} |  | **{runs[-1]['mib']:,}** |  |")
    return "\n".join(lines)


def written(document: str, runs: list[dict[str, Any]]) -> str:
    """Return docs/production.md with its table in place, between `<!-- nodes -->` and `<!-- /nodes -->`."""
    before, rest = document.split("<!-- nodes -->\n")
    return f"{before}<!-- nodes -->\n{nodes_table(runs)}\n<!-- /nodes -->{rest.split('<!-- /nodes -->')[1]}"


def save(result: dict[str, Any]) -> None:
    """Write what was measured, and the document's table of it."""
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), result["runs"]), encoding="utf-8")


def main() -> None:
    """Mine collections of these sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=int, nargs="+")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "scale", help="for collections and data roots")
    parser.add_argument("--models", type=Path, default=ROOT / "data" / "store" / "models", help="of distilled encoders")
    parser.add_argument("--recipe", default="anmi")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which a run is stopped")
    given = parser.parse_args()
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    for documents in given.documents:
        found = mine(documents, given.work, given.models, given.recipe, given.limit)
        result["runs"] = [each for each in result["runs"] if each["documents"] != documents] + [found]
        result["runs"].sort(key=lambda each: each["documents"])
        save(result)
        print(f"{documents:,}: {found['wall']:.0f} s ({found['cpu']:.0f} of the processor), {found['mib']:,} MiB")


if __name__ == "__main__":
    main()
