"""How seconds and memory of mining grow from ten thousand documents to a million, node by node.

It makes a collection (made_collection.py) with a query for ten documents, mines it by ``kedro run
--pipelines mining`` in a data root of its own, and takes seconds and MiB of every node from the
run's record. Processor seconds of the process and all that it started are sampled and laid to the
node that ran, since other work on the machine stretches wall time. Memory of a node is the largest
resident one of the main process; that of the run is the largest sum of proportional set sizes of
the tree. A run that is stopped by ``--limit`` leaves the nodes that it came to. The table is that
of docs/production.md; docs/images/draw.py draws its picture.

    python benchmarks/scale.py 10000 30000 100000 --work build/scale
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np

import made_collection
import peer_mining
from common import MODELS, ROOT, fill, load, markdown, now, parser, save

PAGE: Final = ROOT / "docs" / "production.md"
# Nodes that take less in every run are not in the table.
_LEAST_SECONDS: Final = 5
# Documents for a query: what is aimed at has a million, and 100,000 queries.
A_QUERY: Final = 10
# Its frequent words are English, and the others of no language, by which they would be taken for
# Nigerian Pidgin.
_LANGUAGE: Final = ",ingestion.language=en"
# Below it, what a process needs to begin with hides how a node grows.
GROWS_FROM: Final = 30_000


def mine(documents: int, work: Path, limit: float) -> dict[str, Any]:
    """Mine a made collection of so many documents, and return what each node took."""
    collection, root = work / f"made-{documents}", work / f"run-{documents}"
    if not (collection / "qrels" / "test.tsv").exists():
        made_collection.make(collection, documents, documents // A_QUERY)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(MODELS, root / "store" / "models")
    places = collection.resolve(), (root / "data").resolve(), (root / "store").resolve()
    found = peer_mining.mined("anmi", *places, limit, _LANGUAGE)
    nodes = {
        node: {
            "seconds": seconds,
            "cpu": round(found["node_cpu"][node], 1),
            "peak_mib": found["node_mib"][node],
        }
        for node, seconds in found["nodes"].items()
    }
    return {
        "documents": documents,
        "queries": documents // A_QUERY,
        "recipe": "anmi",
        "whole": found["whole"],
        "wall": round(found["wall"], 1),
        "cpu": round(found["cpu"], 1),
        "mib": round(found["mib"]),
        "disk_mib": round(
            sum(each.stat().st_size for each in root.rglob("*") if each.is_file()) / 2**20
        ),
        "load": round(os.getloadavg()[2], 1),
        "date": now()[:10],
        "nodes": nodes,
    }


def slope(runs: list[dict[str, Any]], node: str, value: str) -> str:
    """Return the exponent of a node's growth with documents, by least squares of logarithms; – of one run."""
    large = [
        run
        for run in runs
        if run["documents"] >= GROWS_FROM and run["nodes"].get(node, {}).get(value)
    ]
    points = [(run["documents"], run["nodes"][node][value]) for run in large]
    return "–" if len(points) < 2 else f"{np.polyfit(*np.log(points).T, 1)[0]:.2f}"


def nodes_table(runs: list[dict[str, Any]]) -> str:
    """Return processor seconds and MiB of the nodes, and by which power of the number of documents they grow."""
    lines = []
    for node in max(runs, key=lambda run: len(run["nodes"]))["nodes"]:
        found = [run["nodes"].get(node) for run in runs]
        there = [each for each in found if each]
        if max(each["cpu"] for each in there) >= _LEAST_SECONDS:
            cells = [f"{each['cpu']:.1f}" if each else "–" for each in found]
            peak = f"{there[-1]['peak_mib']:,}"
            lines.append(
                [f"`{node}`", *cells, slope(runs, node, "cpu"), peak, slope(runs, node, "peak_mib")]
            )
    whole = [f"**{run['cpu']:.0f}**" if run["whole"] else f"({run['cpu']:.0f})" for run in runs]
    lines.append(["**whole process**", *whole, "", f"**{runs[-1]['mib']:,}**", ""])
    return markdown(
        ["node", *(f"{run['documents']:,}" for run in runs), "slope", "MiB", "slope"], lines
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument(
        "documents", type=int, nargs="*", help="without any, only the table is written"
    )
    arguments.add_argument(
        "--work", type=Path, default=ROOT / "build" / "scale", help="for collections and data roots"
    )
    arguments.add_argument(
        "--limit", type=float, default=float("inf"), help="seconds after which a run is stopped"
    )
    given, earlier = arguments.parse_args(), load("scale")
    runs, fresh = earlier["runs"], set()
    for documents in given.documents:
        found = mine(documents, given.work, given.limit)
        runs = [each for each in runs if each["documents"] != documents] + [found]
        runs.sort(key=lambda each: each["documents"])
        fresh.add(documents)
        is_whole = all(run["documents"] in fresh for run in runs)
        save("scale", {"runs": runs}, None if is_whole else earlier)
        print(
            f"{documents:,}: {found['wall']:.0f} s ({found['cpu']:.0f} of the processor),"
            f" {found['mib']:,} MiB"
        )
    fill(PAGE, "scale.py", nodes_table(runs))


if __name__ == "__main__":
    main()
