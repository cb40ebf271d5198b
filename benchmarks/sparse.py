"""The inference-free sparse retriever beside BM25: nDCG@10, recall@1000, terms a document, cost and time of a query.

Trained as a run trains: on mined rows of train, then on those of dev as well for the epochs that dev chose, and on
pseudo-queries. λ was chosen on dev. Every row has the same test queries. Rows of collections that are not asked for
stay. ``--page`` only writes the tables of docs/search.md; ``--companion ROOT`` takes what a run of the matrix
`companion` left there, hybrids as they are deployed. From the repository's root, with a data root of a mining of the
collection with ``encoder=static``:

    ANMI_DATA_ROOT=data/peers/scifact kedro run --pipelines mining --params collection=beir:../shared/data/scifact
    python benchmarks/sparse.py scifact data/peers/scifact
"""

from __future__ import annotations

import argparse
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

from ablation import METRIC, newest
from anmi.corpus.texts import document_texts
from anmi.evaluation.metrics import evaluate
from anmi.evaluation.retrieval import Ranking, dev_metric
from anmi.evaluation.significance import compare, interval
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.index import SHARE, SparseIndex
from anmi.retrieval.related import RelatedDocuments
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from anmi.training.options import TrainingOptions
from anmi.training.pseudo import PseudoRows
from anmi.training.trainer import train

RESULT = Path(__file__).parent / "results" / "sparse.json"
PAGE = Path(__file__).parents[1] / "docs" / "search.md"
MARKS = ("<!-- figures -->\n", "<!-- end of figures -->")
KINDS = ("title", "cloze", "keyphrase")
DEPTH = 1000
NEGATIVES = 7


class Mined:
    """The artifacts of the last mining in a data root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        names = ("corpus", "queries", "qrels", "related_documents")
        tables = (self.table(f"02_intermediate/{name}.parquet") for name in names)
        self.corpus, self.queries, self.qrels, self.related_documents = tables
        self.texts, self.document_ids = document_texts(self.corpus), self.corpus.document_id.tolist()

    def newest(self, path: str) -> Path:
        """Return the newest version of an artifact."""
        return sorted((self._root / path).glob(f"*/{Path(path).name}"))[-1]

    def table(self, path: str) -> pd.DataFrame:
        """Return an artifact that is a table."""
        return pd.read_parquet(self.newest(path))

    def asked(self, split: str) -> pd.DataFrame:
        """Return the labelled queries of a split."""
        of = self.queries.split == split
        return self.queries[of & self.queries.query_id.isin(self.qrels.query_id)]


def fresh(name: str) -> Any:
    """Return an untrained encoder."""
    return load_encoder(name, Path(__file__).parents[1] / "data" / "store" / "models")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="?", help="its name in the table")
    parser.add_argument("mined", nargs="?", type=Path, help="data root of a mining of it")
    parser.add_argument("--penalty", type=float, nargs="+", default=[1e-4], help="λ")
    parser.add_argument("--share", type=float, nargs="+", default=[0.0], help="of the largest weight, to prune below")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--companion", type=Path, help="compare the hybrids of the matrix companion, run there")
    parser.add_argument("--page", action="store_true", help="only write the tables of docs/search.md")
    asked = parser.parse_args()
    if asked.page:
        write_page(json.loads(RESULT.read_text(encoding="utf-8")))
        return
    if asked.companion:
        rows = list(deployed(asked.companion))
        RESULT.write_text(json.dumps(json.loads(RESULT.read_text()) | {"deployed": rows}, indent=1) + "\n")
        return
    mined, about = Mined(asked.mined), {"collection": asked.collection, "seed": asked.seed}
    bm25 = BM25Index.load(mined.newest("03_primary/bm25_index"))
    tests = mined.asked("test")
    began = time.perf_counter()
    lexical = bm25.search(tests.text.tolist(), DEPTH)
    seconds = time.perf_counter() - began
    base = measured(mined, tests, *lexical)
    rows = [{"base": "bm25", "recipe": "bm25"} | columns(mined, base, base) | bm25_cost(bm25, mined, tests, seconds)]
    untrained = inference_free(fresh("static"), mined.texts)
    rows.append({"base": "static", "recipe": "untrained", "labels": 0.0} | row(mined, untrained, base))
    for weight in asked.penalty:
        model = trained(mined, sparse_options(weight, asked.epochs), asked.seed)
        for share in asked.share:
            known = {"base": "static", "recipe": "sparse", "labels": 1.0, "penalty": weight, "share": share}
            rows.append(known | row(mined, model, base, share))
            print(json.dumps(rows[-1]), flush=True)
    save("rows", about, [about | line for line in rows])


def save(part: str, about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Put lines in the place of those of the same collection and seed."""
    result = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {}
    kept = [line for line in result.get(part, []) if any(line[name] != about[name] for name in about)]
    result[part] = sorted([*kept, *lines], key=lambda line: (line["collection"], line["seed"]))
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def deployed(work: Path) -> Iterator[dict[str, Any]]:
    """Yield nDCG@10 on test of the hybrid with a sparse retriever beside that without, paired by query."""
    found = newest("companion", work)
    if found is None:
        raise SystemExit(f"no run of the set companion in {work}: python benchmarks/ablation.py companion")
    for (collection, judgments), cells in found[1].groupby(["collection", "judgments"], sort=False):
        of = {name: cells.pivot_table(name, "query_id", "recipe") for name in (f"hybrid_{METRIC}", f"bm25_{METRIC}")}
        mean, lexical = of.values()
        if not {"anmi", "anmi_and_sparse"} <= set(mean.columns):
            continue
        kinds = cells.drop_duplicates("query_id").set_index("query_id")["documents"].reindex(mean.index)
        for bucket in ("all", "unlabelled"):
            chosen = mean if bucket == "all" else mean[kinds == bucket]
            with_it, without = (chosen[name].to_numpy() for name in ("anmi_and_sparse", "anmi"))
            test = compare(with_it, without, seed=1)
            yield {
                "collection": collection, "judgments": judgments, "bucket": bucket, "queries": len(chosen),
                "seeds": int(cells.seed.nunique()), "bm25": round(float(lexical.loc[chosen.index, "anmi"].mean()), 4),
                "without": round(float(without.mean()), 4), "with": round(float(with_it.mean()), 4),
                "difference": round(test.difference, 4), "low": round(test.low, 4), "high": round(test.high, 4),
                "p_value": round(test.p_value, 5),
            }  # fmt: skip


def write_page(result: dict[str, Any]) -> None:
    """Put the means over seeds into the page."""
    rows = pd.DataFrame(result["rows"])
    shown = rows[(rows.recipe != "sparse") | (rows.share == SHARE)]
    names = ["ndcg_10", "recall_1000", "terms_per_document", "postings_per_query", "milliseconds_per_query"]
    order = pd.CategoricalDtype(["bm25", "untrained", "sparse"], ordered=True)
    shown = shown.assign(recipe=shown.recipe.astype(order))
    means = shown.groupby(["collection", "recipe"], observed=True)[[*names, "p_value"]].mean()
    seeds = shown.groupby(["collection", "recipe"], observed=True).seed.nunique()
    lines = [
        "| collection | retriever | nDCG@10 | p, to BM25 | recall@1000 | terms a document | postings a query | ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (collection, recipe), of in means.iterrows():
        p = "" if recipe == "bm25" else f"{of.p_value:.4f}"
        called = {"bm25": "BM25", "untrained": "untrained", "sparse": "`sparse`"}[str(recipe)]
        count = seeds[collection, recipe]
        lines.append(
            f"| {collection} | {called}{f', {count} seeds' if count > 1 else ''} | {of.ndcg_10:.3f} | {p} | "
            f"{of.recall_1000:.3f} | {of.terms_per_document:.0f} | {of.postings_per_query:,.0f} | "
            f"{of.milliseconds_per_query:.2f} |"
        )
    lines += deployed_table(result.get("deployed", []))
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    page = before + MARKS[0] + "\n".join(["", *lines, "", ""]) + MARKS[1] + rest.split(MARKS[1], 1)[1]
    PAGE.write_text(page, encoding="utf-8")


def deployed_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of hybrids as they are deployed; by judgments that know most."""
    completed = {row["collection"] for row in rows if row["judgments"] == "completed"}
    shown = [row for row in rows if row["judgments"] == "completed" or row["collection"] not in completed]
    lines = [
        "", "Hybrids as they are deployed, `anmi_and_sparse` over `anmi`, nDCG@10 on test:", "",
        "| collection | queries | BM25 | without | with | difference | 95 % interval | p |", "|---" * 8 + "|",
    ]  # fmt: skip
    for row in shown:
        lines.append(
            f"| {row['collection']} | {row['bucket']}, {row['queries']} | {row['bm25']:.3f} | {row['without']:.3f} | "
            f"{row['with']:.3f} | {row['difference']:+.3f} | {row['low']:+.3f} to {row['high']:+.3f} | "
            f"{row['p_value']:.4f} |"
        )
    return lines if rows else []


def kinds_of(mined: Mined) -> list[str]:
    """Return the kinds of pseudo-queries that the collection offers."""
    pseudo = mined.table("04_feature/pseudo_queries.parquet")
    return [kind for kind in KINDS if kind in set(pseudo.kind[pseudo.split == "train"])]


def sparse_options(penalty: float, epochs: int) -> dict[str, Any]:
    """Return what makes the recipe sparse of the recipe anmi."""
    return {"epochs": epochs, "retriever": "sparse", "sparsity": {"weight": penalty}}


def trained(mined: Mined, changes: dict[str, Any], seed: int) -> Any:
    """Train on the corpus and its labels."""
    kinds, tables = kinds_of(mined), (mined.corpus, mined.queries, mined.qrels)
    options = TrainingOptions(negatives=NEGATIVES, pseudo_queries={"kinds": kinds, "batch_size": 256}, **changes)
    rows = mined.table("05_model_input/training_rows.parquet")
    pseudo = mined.table("04_feature/pseudo_queries.parquet")
    related = RelatedDocuments.from_table(mined.related_documents, mined.document_ids)

    def load() -> Any:
        encoder = fresh("static")
        return inference_free(encoder, mined.texts) if options.retriever == "sparse" else encoder

    with tempfile.TemporaryDirectory() as scratch:
        common: dict[str, Any] = {
            "options": options, "output": Path(scratch) / "model", "seed": seed,
            "evaluate_dev": dev_metric(*tables, 20_000, "auto", seed),
            "pseudo": PseudoRows(pseudo, kinds, related, mined.document_ids) if kinds else None,
        }  # fmt: skip
        return train(rows, encoder=load(), **common).model


def row(mined: Mined, model: Any, base: pd.DataFrame, share: float = 0.0) -> dict[str, Any]:
    """Measure a model on test."""
    asked = mined.asked("test")
    index = SparseIndex.build(sparse_vectors(model, mined.texts, "document"), mined.document_ids, share)
    began = time.perf_counter()
    queries = sparse_vectors(model, asked.text.tolist(), "query")
    found = index.search(queries, DEPTH)
    seconds = time.perf_counter() - began
    looked_at = np.diff(index.postings.indptr)[queries.indices[queries.data > 0]].sum() / len(asked)
    cost = {
        "terms_per_document": round(index.terms_per_document, 1),
        "flops": flops(queries, index.postings),
        "postings_per_query": round(float(looked_at)),
        "milliseconds_per_query": round(1000 * seconds / len(asked), 3),
    }
    return columns(mined, measured(mined, asked, *found), base) | cost


def measured(mined: Mined, asked: pd.DataFrame, documents: Any, scores: Any) -> pd.DataFrame:
    """Return the metrics of every query."""
    ranking = Ranking.of(asked, mined.qrels, mined.document_ids, DEPTH)
    truth = mined.qrels[mined.qrels.query_id.isin(asked.query_id)]
    return evaluate(truth, ranking.run(documents, scores), (10, documents.shape[1]), ignore_identical_ids=False)


def columns(mined: Mined, found: pd.DataFrame, base: pd.DataFrame) -> dict[str, Any]:
    """Return means, an interval, and the test against BM25; unlabelled: no training label names a relevant document."""
    relevant = mined.qrels[mined.qrels.relevance > 0]
    tested = relevant.query_id.isin(found.index)
    seen = set(relevant.query_id[tested & relevant.document_id.isin(relevant.document_id[~tested])])
    unlabelled = found[~found.index.isin(seen)]
    mean, low, high = interval(found["ndcg@10"].to_numpy(), seed=1)
    against = compare(found["ndcg@10"].to_numpy(), base["ndcg@10"].reindex(found.index).to_numpy(), seed=1)
    return {
        "ndcg_10": round(mean, 4), "low": round(low, 4), "high": round(high, 4),
        "recall_1000": round(float(found[f"recall@{DEPTH}"].mean()), 4), "p_value": round(against.p_value, 5),
        "queries": len(found), "ndcg_10_unlabelled": round(float(unlabelled["ndcg@10"].mean()), 4),
        "unlabelled": len(unlabelled),
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
