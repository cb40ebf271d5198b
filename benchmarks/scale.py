"""How seconds and memory of mining grow from ten thousand documents to a million, node by node.

`run` makes a collection (made_collection.py) with a query for ten documents, mines it by ``kedro run --pipelines
mining`` in a data root of its own, and takes seconds and MiB of every node from the run's record. Processor seconds of
the process and all that it started are sampled and laid to the node that ran, since other work on the machine stretches
wall time. Memory of a node is the largest resident one of the main process; that of the run is the largest sum of
proportional set sizes of the tree. A run that is stopped by ``--limit`` leaves the nodes that it came to. `depth` says
which negatives of a run, and of other recipes applied to its candidates, a shallower BM25 search would not have found.
Both write to benchmarks/results/scale.json, `run` a line a run to speed.json, and put their tables into docs/scale.md;
docs/images/draw.py draws its picture.

    python benchmarks/scale.py run 10000 30000 100000 --work build/scale
    python benchmarks/scale.py depth DATA_ROOT --name medquad_3000 --recipes nv_retriever simans
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import made_collection
import peer_mining
import speed
from anmi.candidates import SOURCES, CandidateShards, ColumnShards
from anmi.selection.rated import RATED, believed, rated
from anmi.selection.recipe import RecipeBook, Runner

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "benchmarks" / "results" / "scale.json"
DOCUMENT: Final = ROOT / "docs" / "scale.md"
# Documents for a query: what is aimed at has a million, and 100,000 queries.
A_QUERY: Final = 10
# Of that, on two cores.
GOAL: Final = {"s": 900.0, "MiB": 8192.0}
# Its frequent words are English, and the others of no language, by which they would be taken for Nigerian Pidgin.
_LANGUAGE: Final = ",ingestion.language=en"
# Below it, what a process needs to begin with hides how a node grows.
GROWS_FROM: Final = 30_000
DEPTHS: Final = (500, 200, 100)


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


def by_recipes(root: Path, names: list[str]) -> dict[str, Any]:
    """Say of the negatives of a run, and of other recipes on its candidates, which a shallower search would miss."""
    raw = yaml.safe_load((ROOT / "conf" / "base" / "recipes.yml").read_text(encoding="utf-8"))
    book = RecipeBook(**raw["recipes"])

    def parts(name: str) -> list[Path]:
        return sorted(max(root.glob(f"*/{name}/*/{name}")).glob("part-*.parquet"))

    found = {"": negatives(CandidateShards.read(parts("selection")))}
    columns = {name: ColumnShards(files=parts(name)) for name in RATED if name != "candidates"}
    candidates = rated(CandidateShards.read(parts("candidates")), **columns).map(believed)
    return found | {name: negatives(Runner(book.get(name), seed=42).run(candidates)) for name in names}


def negatives(shards: CandidateShards) -> dict[str, Any]:
    """Say which selected negatives a shallower BM25 search would not have found."""
    ranks, others = [], []
    for block in shards.only("bm25_rank"):
        chosen = block.negatives & (block.query_verdict == 0)[:, None]
        ranks.append(block.columns["bm25_rank"][chosen])
        others.append((block.source[chosen] & (SOURCES["dense"] | SOURCES["random"])) > 0)
    # Beyond the list there is no rank.
    rank, other = np.nan_to_num(np.concatenate(ranks), nan=np.inf), np.concatenate(others)

    def share(missed: np.ndarray) -> float:
        return round(float(missed.mean()), 4) if len(missed) else 0.0

    return {
        "count": len(rank),
        "beyond_200": share(rank > 200),
        "lost_at_depth": {str(depth): share((rank > depth) & ~other) for depth in DEPTHS},
    }


def depth_table(rows: list[dict[str, Any]]) -> str:
    """Return which share of the negatives a shallower search loses."""
    heads = " | ".join(f"lost at {depth}" for depth in DEPTHS)
    lines = [f"| candidates of | recipe | negatives | of BM25 rank > 200 | {heads} |", "|---|" + "---|" * 6]
    for row in rows:
        lost = " | ".join(f"{100 * row['lost_at_depth'][str(depth)]:.2f} %" for depth in DEPTHS)
        lines.append(
            f"| {row['run']} | {row['recipe']} | {row['count']:,} | {100 * row['beyond_200']:.0f} % | {lost} |"
        )
    return "\n".join(lines)


def tables(result: dict[str, Any]) -> dict[str, str]:
    """Return the tables of docs/scale.md."""
    return {"nodes": nodes_table(result["runs"]), "depth": depth_table(result["depth"])}


def written(document: str, made: dict[str, str]) -> str:
    """Return the document with its tables in place, each between `<!-- NAME -->` and `<!-- /NAME -->`."""
    for name, table in made.items():
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(pattern.findall(document)) != 1:
            raise ValueError(f"the document has no place for the table {name}")
        document = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", document)
    return document


def summed_up(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of speed.json."""
    made = []
    for run in runs:
        case = f"mining {run['documents']:,} documents, {run['queries']:,} queries"
        note = "" if run["whole"] else f"stopped after {list(run['nodes'])[-1]}"
        note = "; ".join(each for each in (f"load {run['load']}", note) if each)
        for what, value, unit in (("wall", "wall", "s"), ("processor", "cpu", "processor s"), ("memory", "mib", "MiB")):
            goal = GOAL.get(unit) if run["documents"] >= 1_000_000 else None
            made.append(speed.row(f"{case}: {what}", run[value], None, goal, unit, note, Path(__file__).name))
    return made


def save(result: dict[str, Any]) -> None:
    """Write what was measured, and the document's tables of it."""
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), tables(result)), encoding="utf-8")


def main() -> None:
    """Run, or look at a run's depth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="mine made collections")
    run.add_argument("documents", type=int, nargs="+")
    run.add_argument("--work", type=Path, default=ROOT / "build" / "scale", help="for collections and data roots")
    run.add_argument("--models", type=Path, default=ROOT / "data" / "store" / "models", help="of distilled encoders")
    run.add_argument("--recipe", default="anmi")
    run.add_argument("--limit", type=float, default=float("inf"), help="seconds after which a run is stopped")
    depth = commands.add_parser("depth", help="what a shallower search would lose of a finished run")
    depth.add_argument("root", type=Path, help="data root of the run")
    depth.add_argument("--name", required=True)
    depth.add_argument("--recipes", nargs="*", default=[], help="others, applied to its candidates")
    given = parser.parse_args()
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    if given.command == "depth":
        rows = [
            {"run": given.name, "recipe": name or "its own", **row}
            for name, row in by_recipes(given.root, given.recipes).items()
        ]
        result["depth"] = [row for row in result["depth"] if row["run"] != given.name] + rows
        save(result)
        return
    for documents in given.documents:
        found = mine(documents, given.work, given.models, given.recipe, given.limit)
        result["runs"] = [each for each in result["runs"] if each["documents"] != documents] + [found]
        result["runs"].sort(key=lambda each: each["documents"])
        save(result)
        speed.write(summed_up(result["runs"]), Path(__file__).name, {"runs": len(result["runs"])})
        print(f"{documents:,}: {found['wall']:.0f} s ({found['cpu']:.0f} of the processor), {found['mib']:,} MiB")


if __name__ == "__main__":
    main()
