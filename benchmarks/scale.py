"""A plan on paper: what MS MARCO and a billion passages take, from what was measured on this machine.

`measure` reads a finished mining run, `grow` measures how time and memory grow with documents (scale_growth.py); both
write to benchmarks/results/scale.json. `plan` prints the tables of docs/scale.md from it, `plan --write` puts them
there. The formulas are in scale_plan.py, and what is assumed is listed there with a low and a high value.

    python benchmarks/scale.py measure DATA_ROOT --name medquad_static
    python benchmarks/scale.py recipes DATA_ROOT nv_retriever simans
    python benchmarks/scale.py grow --texts ../shared/data/medquad --vectors DATA_ROOT
    python benchmarks/scale.py plan --write
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import scale_growth
import scale_plan
from anmi.candidates import SOURCES, CandidateShards, ColumnShards
from anmi.selection.rated import believed, rated
from anmi.selection.recipe import RecipeBook, Runner

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "benchmarks" / "results" / "scale.json"
DOCUMENT: Final = ROOT / "docs" / "scale.md"
BLOCKS: Final = {
    "candidates": "dense", "consistency": "consistency", "evidence": "denoising", "judgments": "denoising",
    "ratings": "elo", "selection": "selection",
}  # fmt: skip
OTHERS: Final = {
    "corpus.parquet": "ingestion", "terms": "bm25", "bm25_index": "bm25", "document_embeddings.npy": "dense",
    "query_embeddings.npy": "dense", "dense_index": "dense", "training_rows.parquet": "selection",
    "negatives": "selection",
}  # fmt: skip
DEPTHS: Final = (500, 200, 100)


def newest(root: Path, layer: str, name: str) -> Path:
    """Return the newest version of an artifact."""
    return max((root / layer / name).glob(f"*/{name}"))


def files(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def parts_of(path: Path) -> list[Path]:
    """Return the shards of candidates, or of columns that a stage added to them; none where it added nothing."""
    return sorted(path.glob("part-*.parquet"))


def rated_by(root: Path) -> CandidateShards:
    """Return the candidates of a run with the columns of all stages."""
    names = ("consistency", "evidence", "judgments", "ratings")
    columns = {name: ColumnShards(files=parts_of(newest(root, BLOCKS[name], name))) for name in names}
    return rated(CandidateShards.read(parts_of(newest(root, "dense", "candidates"))), **columns).map(believed)


def measure(root: Path) -> dict[str, Any]:
    """Return sizes, seconds and memory of a finished mining run."""
    manifest = json.loads(max((root / "runs").glob("*/manifest.json")).read_text(encoding="utf-8"))
    corpus = pd.read_parquet(newest(root, "ingestion", "corpus.parquet"))
    words = (corpus.title.fillna("") + " " + corpus.text).str.split().str.len()
    queries = pd.read_parquet(newest(root, "ingestion", "queries.parquet"))
    blocks = {name: block_sizes(newest(root, layer, name)) for name, layer in BLOCKS.items()}
    sizes = {name: sum(f.stat().st_size for f in files(newest(root, at, name))) for name, at in OTHERS.items()}
    judged = json.loads(newest(root, "denoising", "cross_encoder.json").read_text(encoding="utf-8"))
    vectors = np.load(newest(root, "dense", "document_embeddings.npy"), mmap_mode="r")
    postings = np.load(newest(root, "bm25", "bm25_index") / "indices.csc.index.npy", mmap_mode="r")
    return {
        "start": manifest["start"],
        "recipe": manifest["runtime_parameters"].get("recipe", "anmi"),
        "collection": Path(manifest["runtime_parameters"]["collection"].partition(":")[2]).name,
        "documents": len(corpus),
        "queries": int((queries.split == "train").sum()),
        "rows": blocks["selection"]["rows"],
        "words_per_document": round(float(words.mean()), 1),
        "characters_per_document": round(float(corpus.text.str.len().mean()), 1),
        "tokens_encoded_per_document": round(float(np.minimum(words * scale_plan.TOKENS_PER_WORD, 256).mean()), 1),
        "dimensions": int(vectors.shape[1]),
        "postings": len(postings),
        "judged_pairs": judged.get("judged_pairs", 0),
        "bytes": sizes,
        "blocks": blocks,
        "nodes": {node["node"]: {k: node[k] for k in ("seconds", "peak_mib")} for node in manifest["nodes"]},
        "negatives": negatives(CandidateShards.read(files(newest(root, "selection", "selection")))),
        "slots_at_depth": slots_at_depth(newest(root, "dense", "candidates")),
    }


def block_sizes(path: Path) -> dict[str, Any]:
    """Count rows, slots, bytes and measurements of shards of candidates, and the bytes of ids and ranks."""
    rows = slots = 0
    parts: dict[str, int] = {}
    for file in parts_of(path):
        metadata = pq.read_metadata(file)
        rows += metadata.num_rows
        names = pq.read_schema(file).names
        names.sort(key=lambda name: name != "documents")
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                column = metadata.row_group(group).column(number)
                name = column.path_in_schema.partition(".list")[0]
                parts[name] = parts.get(name, 0) + column.total_compressed_size
                # Of columns without the block: every one of them has a value for each candidate.
                first = next((n for n in names if n == "documents" or n.startswith("c.")), "")
                slots += column.num_values if name == first else 0
    small = ("documents", "c.bm25_rank", "c.dense_rank")
    return {
        "rows": rows,
        "slots": slots,
        "bytes": sum(file.stat().st_size for file in parts_of(path)),
        "shards": len(parts_of(path)),
        "measurements": sum(name.startswith("c.") for name in parts),
        "id_and_rank_bytes": sum(parts.get(name, 0) for name in small),
        "ids_and_ranks": sum(name in parts for name in small),
    }


def by_recipes(root: Path, names: list[str]) -> dict[str, Any]:
    """Say which negatives of other recipes, applied to the candidates of a run, a shallower search would not find."""
    raw = yaml.safe_load((ROOT / "conf" / "base" / "parameters_recipes.yml").read_text(encoding="utf-8"))
    book = RecipeBook(**raw["recipes"])
    found = rated_by(root)
    return {name: negatives(Runner(book.get(name), seed=42).run(found)) for name in names}


def negatives(shards: CandidateShards) -> dict[str, Any]:
    """Say which selected negatives a shallower BM25 search would not have found."""
    ranks, others, dense = [], [], []
    for block in shards.only("bm25_rank", "dense_rank"):
        chosen = block.negatives & (block.query_verdict == 0)[:, None]
        ranks.append(block.columns["bm25_rank"][chosen])
        dense.append(block.columns["dense_rank"][chosen])
        others.append((block.source[chosen] & (SOURCES["dense"] | SOURCES["random"])) > 0)
    rank, other, near = np.concatenate(ranks), np.concatenate(others), np.concatenate(dense)
    return {
        "count": len(rank),
        "bm25_rank_beyond": {str(depth): share(rank > depth) for depth in DEPTHS},
        "lost_at_depth": {str(depth): share((rank > depth) & ~other) for depth in DEPTHS},
        "dense_rank_beyond_100": share(near > 100),
    }


def share(values: np.ndarray) -> float:
    return round(float(values.mean()), 4) if len(values) else 0.0


def slots_at_depth(path: Path) -> dict[str, float]:
    """Count candidates per query that a shallower BM25 search leaves, with those of the encoder and at random."""
    kept, rows = dict.fromkeys(DEPTHS, 0), 0
    for block in CandidateShards.read(files(path)).only("bm25_rank"):
        other = (block.source & (SOURCES["dense"] | SOURCES["random"])) > 0
        rows += len(block)
        for depth in DEPTHS:
            kept[depth] += int((block.filled & (other | (block.columns["bm25_rank"] <= depth))).sum())
    return {str(depth): round(count / rows, 1) for depth, count in kept.items()}


def machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[1], 1)},
        "versions": {name: version(name) for name in ("bm25s", "faiss-cpu", "numpy", "pandas", "pyarrow", "torch")},
    }


def write(result: dict[str, Any]) -> None:
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def written(document: str, tables: dict[str, str]) -> str:
    """Return the document with its tables in place, each between `<!-- NAME -->` and `<!-- /NAME -->`."""
    for name, table in tables.items():
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(pattern.findall(document)) != 1:
            raise ValueError(f"the document has no place for the table {name}")
        document = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", document)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure", help="read a finished mining run")
    one.add_argument("root", type=Path)
    one.add_argument("--name", required=True)
    one.add_argument("--note", default="")
    others = commands.add_parser("recipes", help="apply recipes to the candidates of a run")
    others.add_argument("root", type=Path)
    others.add_argument("names", nargs="+")
    growth = commands.add_parser("grow", help="measure on made-up corpora")
    growth.add_argument("--texts", type=Path, required=True, help="folder with corpus.jsonl")
    growth.add_argument(
        "--vectors", type=Path, required=True, help="data root of a run with an encoder of transformers"
    )
    plan = commands.add_parser("plan", help="print the tables")
    plan.add_argument("--write", action="store_true", help="into docs/scale.md")
    arguments = parser.parse_args()
    result = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {"runs": {}}
    if arguments.command == "measure":
        result["runs"][arguments.name] = {"note": arguments.note, **measure(arguments.root)}
        write(result)
    elif arguments.command == "recipes":
        result["recipes"] = by_recipes(arguments.root, arguments.names)
        write(result)
    elif arguments.command == "grow":
        result |= machine() | {"growth": scale_growth.grow(arguments.texts)}
        write(result | {"quality": scale_growth.quality(arguments.vectors)})
    else:
        tables = scale_plan.tables(result)
        if arguments.write:
            DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), tables), encoding="utf-8")
        for name, table in tables.items():
            print(f"## {name}\n\n{table}\n")


if __name__ == "__main__":
    main()
