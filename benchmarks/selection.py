"""How fast negatives are selected, and for how many rows enough of them are found, beside the well-known miner.

Speed: the recipe alone, from rated candidates on disk to the selection on disk, on made-up candidates; each case in a
process of its own, so that its peak memory is its own. ``in memory`` is the same without reading and writing; beside it
``plain loop``, in Python, candidate by candidate, with a given bar and without back-off.
Coverage: the share of (query, positive) rows of a real collection with all their negatives; ``mine_hard_negatives`` is
sentence-transformers', on the same encoder. Run from the repository's root:

    python benchmarks/selection.py --only speed
    python benchmarks/selection.py --only coverage
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from anmi.candidates import SOURCES, Candidates, CandidateShards
from anmi.selection.recipe import Recipe, Runner, recipe_book

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "selection.json"
RECIPES = ROOT / "conf" / "base" / "recipes.yml"
DATA = Path(os.environ.get("ANMI_DATA") or ROOT.parent / "shared" / "data")
WORK = ROOT / "data" / "benchmarks" / "selection"
SHARD = 512
RATED = 16
SIZES = ((25_000, 100), (50_000, 100), (100_000, 25), (100_000, 50), (100_000, 100))
LOOPED = 2_000
NEGATIVES = 7
MEDQUAD = ("nv_retriever", "clean_top")


def blocks(queries: int, width: int) -> Iterator[Candidates]:
    """Make rated candidates: similarities, skewed probabilities, Elo for the first few, some random documents."""
    for start in range(0, queries, SHARD):
        rng = np.random.default_rng(start)
        rows = min(SHARD, queries - start)
        shape = (rows, width)
        random = np.arange(width) >= width - 8
        dense = -np.sort(-rng.normal(0.45, 0.12, shape), axis=1)
        gap = np.where(np.arange(width) < RATED, rng.normal(350, 250, shape), np.nan)
        own = np.full((rows, 1), 1250.0)
        yield Candidates(
            query_ids=np.array([f"q{start + row}" for row in range(rows)]),
            positives=rng.integers(0, 10**6, (rows, 1)).astype(np.int32),
            documents=(10**6 + rng.permuted(np.tile(np.arange(4 * width), (rows, 1)), axis=1)[:, :width]).astype("i4"),
            source=np.where(random, SOURCES["random"], rng.integers(1, 4, shape)).astype(np.uint8),
            columns={
                name: values.astype(np.float32)
                for name, values in {
                    "dense": dense, "dense_rank": np.tile(np.arange(1.0, width + 1), (rows, 1)),
                    "p_relevant": rng.beta(0.15, 6, shape), "elo": own - gap, "gap_se": rng.uniform(40, 160, shape),
                    "related": rng.random(shape) < 0.002,
                }.items()
            },
            positive_columns={"dense": np.full((rows, 1), 0.6, np.float32), "elo": own.astype(np.float32)},
            query_columns={"consistent": np.ones(rows, np.float32)},
        )  # fmt: skip


def recipe(name: str) -> Recipe:
    return recipe_book(yaml.safe_load(RECIPES.read_text(encoding="utf-8"))["recipes"]).get(name)


def select(name: str, queries: int, width: int) -> dict[str, Any]:
    """Measure one case in this process."""
    from anmi.datasets import CandidateShardsDataset

    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        given = CandidateShardsDataset(filepath=f"{folder}/rated")
        given.save(CandidateShards(lambda: blocks(queries, width)))
        selected = CandidateShardsDataset(filepath=f"{folder}/selection")
        before, started = peak_mb(), time.perf_counter()
        selected.save(Runner(recipe(name), seed=1).run(given.load()))
        seconds = time.perf_counter() - started
        full = sum(int((block.negatives.sum(axis=1) >= NEGATIVES).sum()) for block in selected.load())
    return {
        "case": "speed", "collection": "made up", "recipe": name, "queries": queries, "candidates": width,
        "seconds": round(seconds, 2), "peak_mb": round(max(before, peak_mb())), "coverage": full / queries,
    }  # fmt: skip


def in_memory(name: str) -> dict[str, Any]:
    """Select from blocks that are in memory, and keep nothing."""
    width, made, full = 100, list(blocks(LOOPED, 100)), 0
    # What is imported the first time a recipe runs is no part of it.
    Runner(recipe(name), seed=1).run(CandidateShards.of(made[:1])).whole()
    started = time.perf_counter()
    for block in Runner(recipe(name), seed=1).run(CandidateShards.of(made)):
        full += int((block.negatives.sum(axis=1) >= NEGATIVES).sum())
    seconds = time.perf_counter() - started
    return {
        "case": "speed", "collection": "made up", "recipe": f"{name}, in memory", "queries": LOOPED,
        "candidates": width, "seconds": round(seconds, 3), "peak_mb": None, "coverage": full / LOOPED,
    }  # fmt: skip


def loop(name: str) -> dict[str, Any]:
    """Select as a notebook does: one candidate after the other."""
    width, chosen, full = 100, recipe(name), 0
    step = next(item for item in chosen.steps if item.name == "elo_gap").params
    made = list(blocks(LOOPED, width))
    started = time.perf_counter()
    for block in made:
        for row in range(len(block)):
            kept: list[tuple[float, int]] = []
            for slot in range(width):
                relevance = float(block.columns["p_relevant"][row, slot])
                gap = float(block.positive_columns["elo"][row, 0] - block.columns["elo"][row, slot])
                error = float(block.columns["gap_se"][row, slot])
                if relevance >= 0.01 or block.columns["related"][row, slot]:
                    continue
                chance = 0.5 * (1 + math.erf((step.danger - gap) / (error * math.sqrt(2))))
                if not math.isnan(gap) and chance > step.max_probability:
                    continue
                kept.append((float(block.columns["dense"][row, slot]), int(block.documents[row, slot])))
            kept.sort(reverse=True)
            full += len(kept[:NEGATIVES]) == NEGATIVES
    seconds = time.perf_counter() - started
    return {
        "case": "speed", "collection": "made up", "recipe": f"{name}, plain loop", "queries": LOOPED,
        "candidates": width, "seconds": round(seconds, 3), "peak_mb": None, "coverage": full / LOOPED,
    }  # fmt: skip


def mined(name: str) -> dict[str, Any]:
    """Mine MedQuAD by the project's command; the time is that of the selection stage."""
    data = WORK / f"medquad-{name}"
    environment = os.environ | {"ANMI_DATA_ROOT": str(data), "ANMI_STORE": str(WORK / "store")}
    parameters = f"collection=beir:{DATA}/medquad,recipe={name},encoder=static"
    kedro = str(Path(sys.executable).with_name("kedro"))
    command = [kedro, "run", "--pipelines", "mining", "--params", parameters]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    summary = json.loads(max((data / "05_model_input" / "selection_summary.json").glob("*/*.json")).read_text())
    manifest = json.loads(max((data / "runs").glob("*/run.json")).read_text())
    node = next(entry for entry in manifest["nodes"] if entry["node"] == "selection.select_negatives")
    total = next(entry for entry in summary["funnel"] if entry["kind"] == "total")
    return {
        "case": "coverage", "collection": "medquad", "recipe": name, "queries": total["queries"],
        "candidates": round(total["candidates"] / total["queries"]), "seconds": round(node["seconds"], 1),
        "peak_mb": round(node["peak_mib"] * 1.048576), "coverage": summary["coverage"],
        "origins": summary.get("origins"),
    }  # fmt: skip


def library() -> dict[str, Any]:
    """Mine MedQuAD with the well-known function; its time includes encoding and search."""
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    from anmi.corpus.sources import load_collection
    from anmi.corpus.texts import document_texts
    from anmi.retrieval.encoders import load_encoder

    read = load_collection(f"beir:{DATA}/medquad")
    train = read.queries[read.queries.split == "train"].set_index("query_id").text
    text = dict(zip(read.corpus.document_id, document_texts(read.corpus), strict=True))
    labels = read.qrels[read.qrels.query_id.isin(train.index)]
    pairs = Dataset.from_dict(
        {"query": [train[q] for q in labels.query_id], "answer": [text[d] for d in labels.document_id]}
    )
    model = load_encoder("static", WORK / "store" / "models", 256)
    started = time.perf_counter()
    found = mine_hard_negatives(
        pairs, model, corpus=list(dict.fromkeys(text.values())), num_negatives=NEGATIVES, range_max=100,
        relative_margin=0.05, output_format="n-tuple", use_faiss=False, verbose=False,
    )  # fmt: skip
    return {
        "case": "coverage", "collection": "medquad", "recipe": "mine_hard_negatives", "queries": len(pairs),
        "candidates": 100, "seconds": round(time.perf_counter() - started, 1), "peak_mb": round(peak_mb()),
        "coverage": len(found) / len(pairs),
    }  # fmt: skip


def peak_mb() -> float:
    """Return the peak of this process's resident memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def apart(*arguments: str) -> dict[str, Any]:
    """Run one case in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", *arguments], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and write the result; rows of cases not measured stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("speed", "coverage"))
    parser.add_argument("--recipe", default="anmi", help="recipe whose speed is measured")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    if arguments.case:
        kind, *rest = arguments.case
        done = library() if kind == "library" else select(rest[0], int(rest[1]), int(rest[2]))
        print(json.dumps(done))
        return
    from anmi.pipelines.reporting.nodes import machine, versions

    rows: list[dict[str, Any]] = []
    if arguments.only in (None, "speed"):
        rows += [apart("select", arguments.recipe, str(queries), str(width)) for queries, width in SIZES]
        rows += [in_memory(arguments.recipe), loop(arguments.recipe)]
    if arguments.only in (None, "coverage"):
        rows += [mined(name) for name in MEDQUAD] + [apart("library")]
    for row in rows:
        print(row)
    old = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    measured = {row["case"] for row in rows}
    saved = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "rows": [row for row in old if row["case"] not in measured] + rows,
    }
    RESULT.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
