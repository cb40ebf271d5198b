"""The inference-free sparse retriever beside BM25: nDCG@10, recall@1000, terms a document, cost and time of a query.

Trained as a run trains: on mined rows of train and on pseudo-queries, as far as dev chooses. λ was
chosen on dev. Every row has the same test queries. Rows of collections that are not asked for stay.
``--page`` only writes the table of docs/search.md.
PARAMS are ``encoder=static,collection=beir:../shared/data/scifact``:

    ANMI_DATA_ROOT=data/peers/scifact kedro run --pipelines mining,adaptation --params PARAMS
    python benchmarks/sparse.py scifact data/peers/scifact
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from anmi.corpus.texts import document_texts
from anmi.evaluation.metrics import evaluate, of_documents
from anmi.evaluation.retrieval import Ranking
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.fusion import Ranked
from anmi.retrieval.index import SHARE, SparseIndex
from anmi.retrieval.kinds import EncoderSettings
from anmi.retrieval.pool import RelatedDocuments
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from anmi.training.alpha import AlphaChoice, dev_tables
from anmi.training.options import TrainingOptions
from anmi.training.sampling import PseudoRows
from anmi.training.trainer import train
from common import (
    METRIC,
    MODELS,
    ROOT,
    artifact,
    fill,
    load,
    markdown,
    mean,
    paired,
    parser,
    save,
    table,
)

PAGE = ROOT / "docs" / "search.md"
KINDS = ("title", "cloze", "keyphrase")
DEPTH = 1000
NEGATIVES = 7
HEADS = [
    "collection",
    "retriever",
    "nDCG@10",
    "p, to BM25",
    "recall@1000",
    "terms a document",
    "postings a query",
    "ms",
]


class Mined:
    """The artifacts of the last mining in a data root."""

    def __init__(self, root: Path) -> None:
        names = (
            "corpus",
            "queries",
            "qrels",
            "related_documents",
            "pseudo_queries",
            "training_rows",
            "new_documents",
        )
        tables = [table(root, name) for name in names]
        self.corpus, self.queries, self.qrels, self.related_documents = tables[:4]
        self.pseudo, self.rows, self.new_documents = tables[4:]
        self.texts, self.document_ids = (
            document_texts(self.corpus),
            self.corpus.document_id.tolist(),
        )
        tested = (self.queries.split == "test") & self.queries.query_id.isin(self.qrels.query_id)
        self.tests = self.queries[tested]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("collection", nargs="?", help="its name in the table")
    arguments.add_argument("mined", nargs="?", type=Path, help="data root of a mining of it")
    arguments.add_argument("--penalty", type=float, nargs="+", default=[1e-4], help="λ")
    arguments.add_argument(
        "--share", type=float, nargs="+", default=[0.0], help="of the largest weight: prune below"
    )
    arguments.add_argument("--epochs", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument(
        "--page", action="store_true", help="only write the table of docs/search.md"
    )
    asked, result = arguments.parse_args(), load("sparse")
    if asked.page:
        fill(PAGE, "sparse.py", table_of(result))
    else:
        about = {"collection": asked.collection, "seed": asked.seed}
        lines = [
            line for line in result["rows"] if any(line[name] != about[name] for name in about)
        ]
        lines += [about | line for line in measured_rows(Mined(asked.mined), asked)]
        save(
            "sparse",
            result | {"rows": sorted(lines, key=lambda line: (line["collection"], line["seed"]))},
            result,
        )


def measured_rows(mined: Mined, asked: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a collection: BM25, the retriever before training, and one for every penalty and share."""
    bm25 = BM25Index.load(artifact(asked.mined, "bm25_index"))
    began = time.perf_counter()
    lexical = bm25.search(mined.tests.text.tolist(), DEPTH)
    seconds = time.perf_counter() - began
    base = measured(mined, *lexical)
    yield (
        {"base": "bm25", "recipe": "bm25"}
        | columns(mined, base, base)
        | bm25_cost(bm25, mined, seconds)
    )
    untrained = inference_free(load_encoder("static", MODELS), mined.texts)
    yield {"base": "static", "recipe": "untrained", "labels": 0.0} | row(mined, untrained, base)
    for weight in asked.penalty:
        model = trained(mined, weight, asked.epochs, asked.seed)
        for share in asked.share:
            known = {
                "base": "static",
                "recipe": "sparse",
                "labels": 1.0,
                "penalty": weight,
                "share": share,
            }
            yield known | row(mined, model, base, share)


def table_of(result: dict[str, Any]) -> str:
    """Return the means over seeds."""
    rows = pd.DataFrame(result["rows"])
    shown = rows[(rows.recipe != "sparse") | (rows.share == SHARE)]
    lines = []
    for collection, own in shown.groupby("collection"):
        for recipe, called in (
            ("bm25", "BM25"),
            ("untrained", "untrained"),
            ("sparse", "`sparse`"),
        ):
            part = own[own.recipe == recipe]
            if part.empty:
                continue
            of, count = part.mean(numeric_only=True), part.seed.nunique()
            lines.append(
                [
                    str(collection),
                    f"{called}{f', {count} seeds' if count > 1 else ''}",
                    f"{of.ndcg_10:.3f}",
                    "" if recipe == "bm25" else f"{of.p_value:.4f}",
                    f"{of.recall_1000:.3f}",
                    f"{of.terms_per_document:.0f}",
                    f"{of.postings_per_query:,.0f}",
                    f"{of.milliseconds_per_query:.2f}",
                ]
            )
    return markdown(HEADS, lines)


def trained(mined: Mined, penalty: float, epochs: int, seed: int) -> Any:
    """Train on the corpus and its labels."""
    kinds = [
        kind for kind in KINDS if kind in set(mined.pseudo.kind[mined.pseudo.split == "train"])
    ]
    options = TrainingOptions(
        negatives=NEGATIVES,
        pseudo_queries={"kinds": kinds, "batch_size": 256},
        epochs=epochs,
        retriever="sparse",
        sparsity={"weight": penalty},
    )
    related = RelatedDocuments.from_table(mined.related_documents, mined.document_ids)
    collection = (mined.corpus, mined.queries, mined.qrels, mined.pseudo, mined.new_documents)
    dev = dev_tables(*collection, most_documents=20_000, seed=seed)
    with tempfile.TemporaryDirectory() as scratch:
        return train(
            mined.rows,
            encoder=inference_free(load_encoder("static", MODELS), mined.texts),
            options=options,
            output=Path(scratch) / "model",
            seed=seed,
            choose_alpha=AlphaChoice.of(*dev, EncoderSettings(), seed),
            pseudo=PseudoRows(mined.pseudo, kinds, related, mined.document_ids) if kinds else None,
        ).model


def row(mined: Mined, model: Any, base: pd.DataFrame, share: float = 0.0) -> dict[str, Any]:
    """Measure a model on test."""
    index = SparseIndex.build(
        sparse_vectors(model, mined.texts, "document"), mined.document_ids, share
    )
    began = time.perf_counter()
    queries = sparse_vectors(model, mined.tests.text.tolist(), "query")
    found = index.search(queries, DEPTH)
    seconds = time.perf_counter() - began
    looked_at = np.diff(index.postings.indptr)[queries.indices[queries.data > 0]].sum() / len(
        mined.tests
    )
    made = columns(mined, measured(mined, *found), base) | {
        "terms_per_document": round(index.postings.nnz / index.postings.shape[1], 1),
        "flops": flops(queries, index.postings),
        "postings_per_query": round(float(looked_at)),
        "milliseconds_per_query": round(1000 * seconds / len(mined.tests), 3),
    }
    print(json.dumps(made), flush=True)
    return made


def measured(mined: Mined, documents: Any, scores: Any) -> pd.DataFrame:
    """Return the metrics of every query."""
    ranking = Ranking.of(mined.tests, mined.qrels, mined.corpus, DEPTH)

    def search(count: int) -> Ranked:
        return Ranked(documents[:, :count], scores[:, :count])

    truth = mined.qrels[mined.qrels.query_id.isin(mined.tests.query_id)]
    return evaluate(of_documents(truth, mined.corpus), ranking.run(search), (10, DEPTH))


def columns(mined: Mined, found: pd.DataFrame, base: pd.DataFrame) -> dict[str, Any]:
    """Return means, an interval, and the test against BM25; unlabelled: no training label names a relevant document."""
    relevant = mined.qrels[mined.qrels.relevance > 0]
    tested = relevant.query_id.isin(found.index)
    seen = set(relevant.query_id[tested & relevant.document_id.isin(relevant.document_id[~tested])])
    unlabelled = found[~found.index.isin(seen)]
    return mean(found[METRIC]) | {
        "recall_1000": round(float(found[f"recall@{DEPTH}"].mean()), 4),
        "p_value": paired(found[METRIC], base[METRIC].reindex(found.index))["p_value"],
        "ndcg_10_unlabelled": round(float(unlabelled[METRIC].mean()), 4),
        "unlabelled": len(unlabelled),
    }


def flops(queries: scipy.sparse.csr_matrix, postings: scipy.sparse.csr_matrix) -> float:
    """Return the expected multiplications for a pair of a query and a document (Paria et al. 2020)."""
    share = np.diff(postings.indptr) / postings.shape[1]
    asked = np.asarray((queries > 0).mean(axis=0)).ravel()
    return round(float(share @ asked), 3)


def bm25_cost(bm25: BM25Index, mined: Mined, seconds: float) -> dict[str, Any]:
    """Return the same of BM25, by the terms of its own tokeniser."""
    frequency = Counter(term for terms in bm25.tokenize(mined.texts) for term in set(terms))
    looked_at = [
        sum(frequency[term] for term in set(terms))
        for terms in bm25.tokenize(mined.tests.text.tolist())
    ]
    documents = len(mined.texts)
    return {
        "terms_per_document": round(sum(frequency.values()) / documents, 1),
        "flops": round(float(np.mean(looked_at)) / documents, 3),
        "postings_per_query": round(float(np.mean(looked_at))),
        "milliseconds_per_query": round(1000 * seconds / len(mined.tests), 3),
    }


if __name__ == "__main__":
    main()
