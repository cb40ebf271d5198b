"""Processor minutes and memory of mining collections of shapes that break programs: shapes.json.

Many documents of one word, many queries over few documents, one query with many positives, one
document of many megabytes; words are those of made_collection.py. They are mined as by scale.py: the
recipe `anmi`, the static encoder, nothing at hand. From the repository's root:

    python benchmarks/shapes.py [SHAPE ...] [--limit SECONDS]
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

import peer_mining
from anmi.retrieval.encoders import load_encoder
from common import MODELS, ROOT, about, fill, load, markdown, now, parser, save, write_beir
from made_collection import SEED, ranks, texts

WORK: Final = ROOT / "build" / "shapes"
# Queries of dev, and of test.
_HELD_OUT: Final = 40
_QUERY_WORDS: Final = 4


@dataclass(frozen=True)
class Shape:
    """How many documents, of how many words, and queries; what the first of each has instead."""

    documents: int
    queries: int
    words: int = 56
    first_words: int = 0
    first_positives: int = 0

    def write(self, folder: Path) -> None:
        """Write the collection as a BEIR folder; a query asks with words of its document."""
        random = np.random.Generator(np.random.Philox(SEED))
        sizes = np.full(self.documents, self.words)
        sizes[0] = self.first_words or self.words
        starts = np.concatenate([[0], np.cumsum(sizes)])
        tokens = ranks(random, int(starts[-1]))
        rows = np.arange(self.queries) % self.documents
        places = starts[rows, None] + random.integers(self.words, size=(len(rows), _QUERY_WORDS))
        query_starts = np.arange(len(rows) + 1) * _QUERY_WORDS
        documents = pd.Series(np.arange(self.documents)).astype(str)
        queries = pd.Series(np.arange(self.queries)).astype(str)
        splits = pd.Series("train", queries.index)
        splits.iloc[-2 * _HELD_OUT :] = "dev"
        splits.iloc[-_HELD_OUT:] = "test"
        labels = pd.DataFrame({"query_id": queries, "document_id": documents[rows].to_numpy()})
        more = pd.DataFrame({"query_id": "0", "document_id": documents[: self.first_positives]})
        labels = pd.concat([labels.assign(split=splits), more.assign(split="train")])
        write_beir(
            folder,
            pd.DataFrame(
                {"document_id": documents, "title": "", "text": texts(tokens, starts, random)}
            ),
            pd.DataFrame(
                {"query_id": queries, "text": texts(tokens[places].ravel(), query_starts)}
            ),
            labels.drop_duplicates(["query_id", "document_id"]).assign(relevance=1),
        )


SHAPES: Final = {
    "300,000 documents of one word": Shape(300_000, 1_000, words=1),
    "20,000 queries, 50 documents": Shape(50, 20_000),
    "a query with 5,000 positives": Shape(10_000, 1_000, first_positives=5_000),
    "a document of 20 MB": Shape(1_000, 1_000, first_words=3_500_000),
}


def mine(name: str, limit: float) -> dict[str, Any]:
    """Mine a shape, and return what it took."""
    work = WORK / str([*SHAPES].index(name))
    shutil.rmtree(work, ignore_errors=True)
    SHAPES[name].write(work / "made")
    shutil.copytree(MODELS, work / "store" / "models")
    places = work / "made", work / "data", work / "store"
    measured = peer_mining.mined("anmi", *places, limit, ",ingestion.language=en")
    slowest = max(measured["node_cpu"], key=measured["node_cpu"].__getitem__)
    return {
        "shape": name,
        "whole": measured["whole"],
        "minutes": round(measured["wall"] / 60, 2),
        "cpu_minutes": round(measured["cpu"] / 60, 2),
        "mib": round(measured["mib"]),
        "slowest": slowest,
        "slowest_cpu_minutes": round(measured["node_cpu"][slowest] / 60, 2),
        "load": round(os.getloadavg()[2], 1),
        "date": now()[:10],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of docs/production.md."""
    lines = [
        [
            row["shape"],
            f"{row['cpu_minutes']:.1f}" if row["whole"] else "stopped",
            f"{row['mib']:,}",
            f"`{row['slowest']}`, {row['slowest_cpu_minutes']:.1f}",
        ]
        for row in rows
    ]
    return markdown(["collection", "processor minutes", "MiB", "most of it"], lines)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("shapes", nargs="*", help="their numbers, from 0; all without any")
    arguments.add_argument("--limit", type=float, default=1200, help="seconds for each")
    options = arguments.parse_args()
    load_encoder("static", MODELS)
    earlier = load("shapes")
    rows = {row["shape"]: row for row in earlier["rows"]}
    fresh = set()
    for name in [[*SHAPES][int(number)] for number in options.shapes] or SHAPES:
        rows[name] = mine(name, options.limit)
        fresh.add(name)
        print(rows[name], flush=True)
        document = {**about(), "rows": [rows[shape] for shape in SHAPES if shape in rows]}
        save("shapes", document, None if fresh >= {*rows} else earlier)
        fill(ROOT / "docs" / "production.md", "shapes.py", table(document["rows"]))


if __name__ == "__main__":
    main()
