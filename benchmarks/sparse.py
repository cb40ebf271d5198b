"""The inference-free sparse retriever beside BM25: nDCG@10, recall@1000, terms a document, cost and time of a query.

Trained as a run trains: on mined rows of train, then on those of dev as well for the epochs that dev chose, and on
pseudo-queries. λ was chosen on dev. Every row has the same test queries. Rows of collections that are not asked for
stay. From the repository's root, with a data root of a mining of the collection with ``encoder=static``:

    ANMI_DATA_ROOT=data/peers/scifact kedro run --pipelines mining --params collection=beir:../shared/data/scifact
    python benchmarks/sparse.py scifact data/peers/scifact
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from adaptation_peers import Mined, fresh
from anmi.evaluation.metrics import evaluate
from anmi.evaluation.retrieval import Ranking, dev_metric
from anmi.evaluation.significance import compare, interval
from anmi.pipelines.training.nodes import dev_ranking
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.related import RelatedDocuments
from anmi.retrieval.sparse import SparseIndex
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from anmi.selection.rows import of_split
from anmi.training.checkpoint import CheckpointPlan
from anmi.training.options import TrainingOptions
from anmi.training.pseudo import PseudoRows
from anmi.training.refit import train_twice

RESULT = Path(__file__).parent / "results" / "sparse.json"
KINDS = ("title", "cloze", "keyphrase")
DEPTH = 1000
NEGATIVES = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="its name in the table")
    parser.add_argument("mined", type=Path, help="data root of a mining of it")
    parser.add_argument("--penalty", type=float, nargs="+", default=[1e-4], help="λ")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    mined = Mined(asked.mined)
    bm25 = BM25Index.load(mined.newest("bm25/bm25_index"))
    about = {"collection": asked.collection, "labels": 1.0, "seeds": 1}
    tests = mined.asked("test")
    began = time.perf_counter()
    lexical = bm25.search(tests.text.tolist(), DEPTH)
    seconds = time.perf_counter() - began
    base = measured(mined, tests, *lexical)
    rows = [about | {"base": "bm25", "recipe": "bm25"} | columns(base, base) | bm25_cost(bm25, mined, tests, seconds)]
    untrained = inference_free(fresh("static"), mined.texts)
    rows.append(about | {"base": "static", "recipe": "untrained", "labels": 0.0} | row(mined, untrained, base))
    for weight in asked.penalty:
        model = trained(mined, weight, asked.epochs, asked.seed)
        rows.append(about | {"base": "static", "recipe": "anmi", "penalty": weight} | row(mined, model, base))
        print(json.dumps(rows[-1]), flush=True)
    known = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.is_file() else []
    kept = [line for line in known if line["collection"] != asked.collection]
    RESULT.write_text(json.dumps({"rows": [*kept, *rows]}, indent=1) + "\n", encoding="utf-8")


def trained(mined: Mined, penalty: float, epochs: int, seed: int) -> Any:
    """Train on the corpus and its labels, twice."""
    pseudo = mined.table("adaptation/pseudo_queries.parquet")
    kinds = [kind for kind in KINDS if kind in set(pseudo.kind[pseudo.split == "train"])]
    rows = mined.table("selection/training_rows.parquet")
    options = TrainingOptions(
        epochs=epochs, negatives=NEGATIVES, temperature={"fixed": {"value": 1.0}}, sparsity={"weight": penalty},
        pseudo_queries={"kinds": kinds, "batch_size": 256},
    )  # fmt: skip
    related = RelatedDocuments.from_table(mined.related_documents, mined.document_ids)
    tables = (mined.corpus, mined.queries, mined.qrels)
    with tempfile.TemporaryDirectory() as scratch:
        return train_twice(
            of_split(rows, "train"), of_split(rows, "dev"), load=lambda: inference_free(fresh("static"), mined.texts),
            options=options, output=Path(scratch) / "model", evaluate_dev=dev_metric(*tables, 20_000, "auto", seed),
            seed=seed, checkpoints=CheckpointPlan(folder=Path(scratch) / "checkpoints"),
            pseudo=PseudoRows(pseudo, kinds, related, mined.document_ids) if kinds else None,
            rank_dev=lambda model: dev_ranking(model, *tables, "auto"),
        ).model  # fmt: skip


def row(mined: Mined, model: Any, base: pd.DataFrame) -> dict[str, Any]:
    """Measure a model on test."""
    asked = mined.asked("test")
    index = SparseIndex.build(sparse_vectors(model, mined.texts, "document"), mined.document_ids)
    began = time.perf_counter()
    queries = sparse_vectors(model, asked.text.tolist(), "query")
    found = index.search(queries, DEPTH)
    seconds = time.perf_counter() - began
    cost = {
        "terms_per_document": round(index.terms_per_document, 1),
        "flops": flops(queries, index.postings),
        "postings_per_query": round(index.postings_per_query(queries)),
        "milliseconds_per_query": round(1000 * seconds / len(asked), 3),
    }
    return columns(measured(mined, asked, *found), base) | cost


def measured(mined: Mined, asked: pd.DataFrame, documents: Any, scores: Any) -> pd.DataFrame:
    """Return the metrics of every query."""
    ranking = Ranking.of(asked, mined.qrels, mined.document_ids, DEPTH)
    truth = mined.qrels[mined.qrels.query_id.isin(asked.query_id)]
    return evaluate(truth, ranking.run(documents, scores), (10, DEPTH), ignore_identical_ids=False)


def columns(found: pd.DataFrame, base: pd.DataFrame) -> dict[str, Any]:
    """Return means, an interval, and the test against BM25."""
    mean, low, high = interval(found["ndcg@10"].to_numpy(), seed=1)
    against = compare(found["ndcg@10"].to_numpy(), base["ndcg@10"].reindex(found.index).to_numpy(), seed=1)
    return {
        "ndcg_10": round(mean, 4), "low": round(low, 4), "high": round(high, 4),
        "recall_1000": round(float(found[f"recall@{DEPTH}"].mean()), 4), "p_value": round(against.p_value, 5),
        "queries": len(found),
    }  # fmt: skip


def flops(queries: scipy.sparse.csr_matrix, postings: scipy.sparse.csr_matrix) -> float:
    """Return the expected multiplications for a pair of a query and a document (Paria et al. 2020)."""
    share = np.diff(postings.indptr) / postings.shape[1]
    asked = np.asarray((queries > 0).mean(axis=0)).ravel()
    return round(float(share @ asked), 3)


def bm25_cost(bm25: BM25Index, mined: Mined, asked: pd.DataFrame, seconds: float) -> dict[str, Any]:
    """Return the same of BM25, by the terms of its own tokeniser."""
    frequency = Counter(term for terms in bm25.tokenize(mined.texts) for term in set(terms))
    looked_at = [sum(frequency[term] for term in set(terms)) for terms in bm25.tokenize(asked.text.tolist())]
    documents = len(mined.texts)
    return {
        "terms_per_document": round(sum(frequency.values()) / documents, 1),
        "flops": round(float(np.mean(looked_at)) / documents, 3),
        "postings_per_query": round(float(np.mean(looked_at))),
        "milliseconds_per_query": round(1000 * seconds / len(asked), 3),
    }  # fmt: skip


if __name__ == "__main__":
    main()
