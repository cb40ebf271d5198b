"""The default recipe on made collections with 1, 5 and 40 graded positives a query, where the whole truth is known.

Run from the repository's root: ``python benchmarks/right/many_positives.py``; about five minutes on two idle cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
NEGATIVES = 15

ASPECTS, WORDS = 4, 12
HELD_OUT = 20
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "al", "en", "or", "is")]


def words(count: int, draw: np.random.Generator) -> list[str]:
    """Make distinct words of two to four syllables."""
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(draw.choice(SYLLABLES, draw.integers(2, 5)))] = None
    return list(made)


@dataclass(frozen=True)
class Made:
    """Texts, and how relevant every document is to every query: 0, 1 or 2, int8 [Q, N]."""

    documents: list[str]
    queries: list[str]
    relevance: NDArray[np.int8]

    def write(self, folder: Path, known: NDArray[np.bool_]) -> None:
        """Write it as a BEIR folder whose labels are those under ``known`` [Q, N]; the last queries are held out."""
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        _lines(
            folder / "corpus.jsonl", [{"_id": f"d{n}", "title": "", "text": t} for n, t in enumerate(self.documents)]
        )
        _lines(folder / "queries.jsonl", [{"_id": f"q{n}", "text": t} for n, t in enumerate(self.queries)])
        count = len(self.queries)
        cuts = (0, count - 2 * HELD_OUT, count - HELD_OUT, count)
        for split, first, last in zip(("train", "dev", "test"), cuts, cuts[1:], strict=False):
            rows = [
                f"q{q}\td{d}\t{self.relevance[q, d]}"
                for q in range(first, last)
                for d in np.flatnonzero(known[q]).tolist()
            ]
            (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")


def _lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def made(relevant: int, documents: int = 3600, queries: int = 290, seed: int = 1, topics: int = 60) -> Made:
    """Make a collection about topics.

    A document is about one topic, and a little about another; a topic has aspects with words of their own, and a query
    asks for one of them in a few words, so that some relevant documents hold none of its words and many others do.
    """
    draw = np.random.default_rng(seed)
    lexicon = words(4000 + topics * ASPECTS * WORDS, draw)
    common, topical = lexicon[:4000], np.array(lexicon[4000:]).reshape(topics, ASPECTS, WORDS)
    zipf = 1 / np.arange(1, 4001) ** 0.9
    zipf /= zipf.sum()
    shares = np.zeros((documents, topics * ASPECTS))
    texts = []
    for number in range(documents):
        main, other = number % topics, int(draw.integers(topics))
        for topic, weight in ((main, 0.8), (other, 0.2)):
            shares[number, topic * ASPECTS : (topic + 1) * ASPECTS] += weight * draw.dirichlet([0.5] * ASPECTS)
        length = int(draw.integers(50, 130))
        about = draw.choice(topics * ASPECTS, int(0.5 * length), p=shares[number])
        picked = [topical[a // ASPECTS, a % ASPECTS, min(int(draw.geometric(0.2)) - 1, WORDS - 1)] for a in about]
        tokens = [*picked, *draw.choice(common, length - len(picked), p=zipf)]
        texts.append(" ".join(np.array(tokens)[draw.permutation(len(tokens))].tolist()))
    asked, wanted = [], np.zeros((queries, topics * ASPECTS))
    for number in range(queries):
        topic, aspect = int(draw.integers(topics)), int(draw.integers(ASPECTS))
        wanted[number, topic * ASPECTS : (topic + 1) * ASPECTS] = 0.35
        wanted[number, topic * ASPECTS + aspect] = 1.0
        tokens = [*draw.choice(topical[topic, aspect], 3, replace=False), *draw.choice(topical[topic].ravel(), 2)]
        tokens += draw.choice(common, int(draw.integers(0, 3)), p=zipf).tolist()
        asked.append(" ".join(tokens))
    affinity = wanted @ shares.T + 0.15 * draw.normal(size=(queries, documents))
    place = np.argsort(np.argsort(-affinity, axis=1), axis=1)
    relevance = (place < relevant).astype(np.int8) + (place < relevant / 4).astype(np.int8)
    return Made(texts, asked, relevance)


def some_known(truth: NDArray[np.int8], count: int, seed: int = 2) -> NDArray[np.bool_]:
    """Keep ``count`` labels of each query, drawn at random."""
    draws = np.where(truth > 0, np.random.default_rng(seed).random(truth.shape), 2.0)
    return (np.argsort(np.argsort(draws, axis=1), axis=1) < count) & (truth > 0)


# Relevant documents a query, those of them that are labelled, and what the code before issue 15 (f69ce26) did.
_ENDED = "before: the run ended with 'left no negative for any query'"
VARIANTS: dict[str, tuple[int, int, str]] = {
    "40_positives": (40, 40, _ENDED),
    "40_positives_20_hidden": (40, 20, _ENDED),
    "40_positives_39_hidden": (40, 1, "before: coverage 1.0, but 24.7 % false negatives"),
    "5_positives": (5, 5, "before: coverage 1.0, no false negatives"),
    "1_positive": (1, 1, "before: coverage 1.0, no false negatives"),
}


def mine(collection: Path, work: Path, *parameters: str, tree: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Mine a collection with the default recipe and the static encoder."""
    told = ["recipe=anmi", "encoder=static", f"collection=beir:{collection}", *parameters]
    folders = {"ANMI_DATA_ROOT": str(work / "data"), "ANMI_STORE": str(work / "store"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [str(Path(sys.executable).with_name("kedro")), "run", "--pipelines", "mining", "--params", ",".join(told)],
        cwd=tree, env={**os.environ, **folders, "PYTHONPATH": str(tree / "src"), "DO_NOT_TRACK": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def found(data: Path, truth: NDArray[np.int8], wanted: int = NEGATIVES) -> dict[str, Any]:
    """Compare what was mined with the truth.

    Returns
    -------
    dict
        ``coverage``: share of the training queries of whose rows each has all negatives; ``false``: share of the
        negatives that are in truth relevant; ``expected``: what the judge said of it; ``doubtful``: negatives taken
        in doubt.
    """

    def newest(name: str) -> Path:
        return sorted((data / "05_model_input" / name).glob(f"*/{name}"))[-1]

    rows = pd.read_parquet(newest("training_rows.parquet"))
    rows = rows[rows.split == "train"]
    summary = json.loads(newest("selection_summary.json").read_text(encoding="utf-8"))
    full = rows[rows.origin == "qrels"].groupby("query_id").negative_ids.agg(lambda ids: (ids.map(len) >= wanted).all())
    chosen = rows.explode("negative_ids").dropna(subset="negative_ids")
    query, document = (chosen[name].str[1:].astype(int).to_numpy() for name in ("query_id", "negative_ids"))
    expected = summary.get("expected") or {}
    return {
        "coverage": float(full.sum() / (len(truth) - 2 * HELD_OUT)),
        "false": float((truth[query, document] > 0).mean()),
        "expected": expected.get("share"),
        "doubtful": expected.get("doubtful"),
    }


def many_positives() -> list[dict[str, Any]]:
    """Mine every variant and return rows of ``case, value, unit, note``."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (relevant, known, before) in VARIANTS.items():
            work, collection = Path(folder) / name, made(relevant)
            collection.write(work / "collection", some_known(collection.relevance, known))
            models = Path(os.environ.get("ANMI_STORE", ROOT / "data" / "store")) / "models"
            if models.is_dir():
                shutil.copytree(models, work / "store" / "models")
            done = mine(work / "collection", work)
            if done.returncode:
                raise SystemExit(done.stdout + done.stderr)
            result = found(work / "data", collection.relevance)
            told = "250 training queries, 3,600 documents, static encoder, recipe anmi"
            rows += [
                {"case": f"default_coverage_{name}", "value": round(result["coverage"], 4), "unit": "share of queries",
                 "note": f"training queries with all {NEGATIVES} negatives in every row; {told}; {before}"},
                {"case": f"default_false_negatives_{name}", "value": round(result["false"], 4), "unit": "share",
                 "note": "of the negatives, in truth relevant though not labelled"},
                {"case": f"default_expected_{name}", "value": round(result["expected"], 4), "unit": "share",
                 "note": f"what the judge says of it; {result['doubtful']} negatives were taken in doubt"},
            ]  # fmt: skip
    return rows


if __name__ == "__main__":
    for row in many_positives():
        print(f"{row['case']:<45} {row['value']:<8} {row['unit']}  {row['note']}")
