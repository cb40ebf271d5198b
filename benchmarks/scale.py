"""How seconds and memory of mining grow from ten thousand documents to a million, node by node.

It makes a collection (made_collection.py) with a query for ten documents, mines it by ``kedro run
--pipelines mining`` in a data root of its own, and takes seconds and MiB of every node from the
run's record. Processor seconds of the process and all that it started are sampled and laid to the
node that ran, since other work on the machine stretches wall time. Memory of a node is the largest
resident one of the main process; that of the run is the largest sum of proportional set sizes of
the tree. A run that is stopped by ``--limit`` leaves the nodes that it came to. ``library`` is what
the least of a node's work takes by the library that does it, on one core, measured on the largest
collection in the same run: reading lines as JSON, cutting words, encoding by sentence-transformers,
multiplying all vectors. The corpus's own encoder is made in a process of its own. The tables are
those of docs/production.md; docs/images/draw.py draws its picture.

    python benchmarks/scale.py 10000 30000 100000 --work build/scale
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
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
SAMPLE: Final = 50_000
ROWS: Final = 512
_OWN: Final = """
import sys
from pathlib import Path
import pandas as pd
from anmi.corpus.texts import joined_texts
from anmi.retrieval.encoders import save_corpus_encoder
from anmi.store import Store
texts = joined_texts(pd.read_json(sys.argv[1], lines=True, dtype=str))
folder = Path(sys.argv[2])
save_corpus_encoder(texts, folder / "encoder", 1, Store(folder / "store"), "cpu")
"""
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


def floors(documents: int, work: Path) -> dict[str, float]:
    """Return processor seconds of the least work of some nodes, by node; see the top of this file.

    Texts are the first :data:`SAMPLE`, and of vectors so many are multiplied, for all of them.
    """
    import bm25s
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    with (work / f"made-{documents}" / "corpus.jsonl").open(encoding="utf-8") as file:
        lines = list(itertools.islice(file, SAMPLE))
    texts, reading = _timed(lambda: [json.loads(line)["text"] for line in lines])
    _, cutting = _timed(lambda: bm25s.tokenize(texts, stopwords="en", show_progress=False))
    model = SentenceTransformer(str(next(MODELS.glob("static-*"))), device="cpu")
    vectors, encoding = _timed(lambda: model.encode(texts, convert_to_tensor=True))
    queries = vectors[:ROWS]
    seconds = min(_timed(lambda: queries @ vectors.T)[1] for _ in range(3))
    times = documents / len(lines)
    products = seconds * times * (documents // A_QUERY) / len(queries)
    return {
        "ingest": round(times * reading, 1),
        "cut_terms": round(times * cutting, 1),
        "encode_collection": round(times * encoding, 1),
        "retrieve": round(products, 1),
    }


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def own_encoder(documents: int, work: Path) -> dict[str, Any]:
    """Make the corpus's own encoder in a process of its own; vectors of MiniLM are not stored."""
    root = work / f"run-{documents}"
    shutil.rmtree(root / "own", ignore_errors=True)
    shutil.copytree(MODELS, root / "own" / "store" / "models")
    arguments = [str(work / f"made-{documents}" / "corpus.jsonl"), str(root / "own")]
    measured = peer_mining.measured([sys.executable, "-c", _OWN, *arguments], {})
    return {name: round(measured[name], 1) for name in ("wall", "cpu", "mib")}


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
    floor = runs[-1].get("floors", {})
    for node in max(runs, key=lambda run: len(run["nodes"]))["nodes"]:
        found = [run["nodes"].get(node) for run in runs]
        there = [each for each in found if each]
        if max(each["cpu"] for each in there) >= _LEAST_SECONDS:
            cells = [f"{each['cpu']:.1f}" if each else "–" for each in found]
            peak = f"{there[-1]['peak_mib']:,}"
            lines.append(
                [
                    f"`{node}`",
                    *cells,
                    str(floor.get(node, "")),
                    slope(runs, node, "cpu"),
                    peak,
                    slope(runs, node, "peak_mib"),
                ]
            )
    whole = [f"**{run['cpu']:.0f}**" if run["whole"] else f"({run['cpu']:.0f})" for run in runs]
    lines.append(["**whole process**", *whole, "", "", f"**{runs[-1]['mib']:,}**", ""])
    minutes = [f"{run['wall'] / 60:.1f}" for run in runs]
    lines.append(["minutes by the clock", *minutes, "", "", "", ""])
    if own := {run["documents"]: run["own_encoder"] for run in runs if "own_encoder" in run}:
        seconds = [
            f"{own[run['documents']]['cpu']:.0f}" if run["documents"] in own else "" for run in runs
        ]
        peak = f"{own[max(own)]['mib']:,.0f}"
        lines.append(["the corpus's own encoder, apart", *seconds, "", "", peak, ""])
    columns = [f"{run['documents']:,}" for run in runs]
    return markdown(["node", *columns, "library", "slope", "MiB", "slope"], lines)


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
        if documents == max(given.documents):
            found["own_encoder"] = own_encoder(documents, given.work)
            found["floors"] = floors(documents, given.work)
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
