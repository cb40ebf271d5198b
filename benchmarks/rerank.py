"""Whether a cross-encoder that a run's own judgments train puts the hybrid's first N in a better order: rerank.json.

It learns from the labels, the pseudo-queries, and the judges' probabilities of mined and found
documents as soft labels. N and the weight of its order are chosen on dev, among 0 and 5, 10, 20.
One seed, the default recipe. Rows of other collections stay. From the repository's root: ``python
benchmarks/rerank.py [COLLECTION ...]``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import common
from anmi.evaluation.metrics import evaluate, of_documents
from anmi.judging.cross_encoder import CrossEncoderOptions, Pairs, TrainedCrossEncoder, logits
from anmi.search.hybrid import HybridSearch
from common import STORE, artifact, kedro, load, paired, save, table

WORK: Final = common.WORK / "rerank"
COLLECTIONS: Final = {"scifact": "beir:../shared/data/scifact", "api_docs": "api_docs"}
DEPTHS: Final = (5, 10, 20)
SHARES: Final = (0.25, 0.5, 0.75, 1.0)
# Pairs of each kind at most, and queries of each split: half an hour on a core.
MOST: Final = 4_000
QUERIES: Final = {"dev": 150, "test": 400}
OPTIONS: Final = CrossEncoderOptions(
    model="minilm", layers=3, max_length=160, learning_rate=5e-5, epochs=1, looks=6
)


def mined(name: str) -> Path:
    """Run the default on a collection, unless that is done, and return the folder of the run's data."""
    data = WORK / name
    if not list(data.glob("*/query_buckets.parquet/*/*.parquet")):
        params = f"collection={COLLECTIONS[name]},encoder=corpus,recipe=anmi,final=never"
        kedro("run", "--params", params, data=data, store=STORE)
    return data


def training_pairs(data: Path, search: HybridSearch) -> Pairs:
    """Return labelled pairs with mined negatives, and pseudo-queries with what the hybrid finds besides."""
    rows = table(data, "training_rows").sample(frac=1, random_state=1)
    found: list[tuple[str, str, float]] = []
    for row in rows.itertuples():
        found.append((row.query, row.positive, 1.0))
        judged = (
            row.negative_p_relevant
            if hasattr(row, "negative_p_relevant")
            else [0.0] * len(row.negatives)
        )
        found += [
            (row.query, text, float(p))
            for text, p in zip(row.negatives[:4], judged[:4], strict=True)
        ]
    pseudo = (
        table(data, "pseudo_queries")
        .query("split == 'train'")
        .drop_duplicates(["document_id", "kind"])
    )
    pseudo = pseudo.sample(min(len(pseudo), MOST // 5), random_state=1)
    made: list[tuple[str, str, float]] = []
    hits = search.search(pseudo.text.tolist(), 5)
    for row, first in zip(pseudo.itertuples(), hits, strict=True):
        made.append((row.text, row.positive_text, 1.0))
        made += [
            (row.text, text_of(hit), 0.0) for hit in first if hit.document_id != row.document_id
        ][:4]
    queries, documents, labels = zip(*(found[:MOST] + made[:MOST]), strict=True)
    order = np.random.default_rng(1).permutation(len(queries))
    held, learnt = order[: len(order) // 10], order[len(order) // 10 :]

    def of(places: NDArray[np.int64], held_out: Pairs | None = None) -> Pairs:
        label = np.array(labels, np.float32)[places]
        label = (label >= 0.5).astype(np.float32) if held_out is None else label
        return Pairs([queries[i] for i in places], [documents[i] for i in places], label, held_out)

    return of(learnt, of(held))


def text_of(hit: Any) -> str:
    return f"{hit.title}\n{hit.text}" if hit.title else str(hit.text)


class Reranked:
    """The hybrid's hits of some queries, and what the cross-encoder says of the first of them."""

    def __init__(
        self, queries: pd.DataFrame, qrels: pd.DataFrame, search: HybridSearch, model: Any
    ) -> None:
        self.ids = queries.query_id.tolist()
        self.qrels = qrels[qrels.query_id.isin(self.ids)]
        self.hits = search.search(queries.text.tolist(), 20)
        pairs = [
            (text, text_of(hit))
            for text, hits in zip(queries.text, self.hits, strict=True)
            for hit in hits
        ]
        began = time.monotonic()
        said = logits(model, pairs, OPTIONS).ravel()
        self.seconds = (time.monotonic() - began) / max(len(self.ids), 1)
        self.said = np.split(said, np.cumsum([len(hits) for hits in self.hits])[:-1])

    def values(self, depth: int, share: float) -> pd.Series:
        """Return nDCG@10 of each query with the first ``depth`` hits in the order of a weighted sum."""
        ranking = []
        for query, hits, said in zip(self.ids, self.hits, self.said, strict=True):
            place = np.arange(len(hits), dtype=float)
            if depth:
                own = np.array([hit.score for hit in hits[:depth]])
                both = share * standard(said[:depth]) + (1 - share) * standard(own)
                place[:depth] = np.argsort(np.argsort(-both, kind="stable"), kind="stable")
            ranking += [(query, hit.document_id, -at) for hit, at in zip(hits, place, strict=True)]
        run = pd.DataFrame(ranking, columns=["query_id", "document_id", "score"])
        return evaluate(self.qrels, run[run.query_id != run.document_id], (10,))["ndcg@10"]


def standard(values: NDArray[Any]) -> NDArray[Any]:
    return np.asarray((values - values.mean()) / (values.std() + 1e-9))


def measured(name: str) -> list[dict[str, Any]]:
    """Return the rows of a collection: hybrid and reranked by bucket of the test queries."""
    data = mined(name)
    search = HybridSearch.load(artifact(data, "measured_search"))
    judge = TrainedCrossEncoder(OPTIONS, WORK / "models", training_pairs(data, search), 1)
    model = judge._load()
    queries, qrels, buckets = (table(data, each) for each in ("queries", "qrels", "query_buckets"))
    queries = queries[queries.query_id.isin(qrels.query_id)]
    # Of a collection that was cut, the search names documents and the qrels passages.
    qrels = of_documents(qrels, table(data, "corpus"))
    dev, test = (
        Reranked(
            asked.sample(min(len(asked), QUERIES[str(split)]), random_state=1), qrels, search, model
        )
        for split, asked in queries[queries.split.isin(list(QUERIES))].groupby("split")
    )
    choices = {(0, 0.0): dev.values(0, 0).mean()}
    choices |= {
        (depth, share): dev.values(depth, share).mean() for depth in DEPTHS for share in SHARES
    }
    best = max(choices, key=lambda choice: choices[choice])
    tried = max(list(choices)[1:], key=lambda choice: choices[choice])
    rows = []
    for bucket in ("all", "unlabelled", "new"):
        ids = buckets.query_id if bucket == "all" else buckets.query_id[buckets.bucket == bucket]
        before, after = (
            values[values.index.isin(ids)] for values in (test.values(0, 0), test.values(*tried))
        )
        rows.append(
            {
                "collection": name,
                "bucket": bucket,
                "queries": len(after),
                "hybrid": before.mean(),
                "reranked": after.mean(),
                **paired(after, before.reindex(after.index)),
                "depth": tried[0],
                "share": tried[1],
                "chosen_on_dev": best == tried,
                "dev_hybrid": choices[0, 0.0],
                "dev_reranked": choices[tried],
                "seconds_a_query": test.seconds,
                "cross_encoder": judge.describe()["training"],
            }
        )
        print({key: value for key, value in rows[-1].items() if key != "cross_encoder"}, flush=True)
    return rows


def main() -> None:
    document = load("rerank")
    for name in sys.argv[1:] or COLLECTIONS:
        kept = [row for row in document["rows"] if row["collection"] != name]
        earlier = document if kept else None
        document = {"rows": kept + measured(name)}
        save("rerank", document, earlier)


if __name__ == "__main__":
    main()
