"""Whether the score of a sparse retriever tells false negatives that the judge's evidence does not.

On collections with planted truth (benchmarks/planted.py): the share that a candidate has of what the query weighs
(``share``), and the same minus the known positives' (``gain``), by the untrained sparse retriever of the corpus, which
is what a judge may ask before training. AUC of each alone, and of logistic models of the judge's evidence without and
with both, fitted on one half of the queries and tested on the other, five times. Run from the repository's root:

    python benchmarks/sparse_evidence.py
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anmi.candidates import PADDING
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.judging.fused import FEATURES, features
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from planted import COLLECTIONS, Planted, planted

RESULT = Path(__file__).parent / "results" / "sparse_evidence.json"
WORK = Path(__file__).parents[1] / "data" / "benchmarks"
HALVES = 5
# Scored at once.
QUERIES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for embeddings and planted collections")
    work = parser.parse_args().work
    rows = []
    for each in planted(list(COLLECTIONS), "static", work):
        share, gain = sparse_evidence(each, work)
        mask, truth = each.block.filled, each.truth
        known = features(each.block)
        more = np.concatenate([known, share[:, :, None], gain[:, :, None]], axis=2)
        rows.append({
            "collection": each.name, "queries": len(each.block), "planted": int(truth.sum()),
            "share": auc(truth[mask], share[mask]), "gain": auc(truth[mask], gain[mask]),
            **{name: auc(truth[mask], known[:, :, i][mask]) for i, name in enumerate(FEATURES)},
            "fused": halves(known, truth, mask), "fused_with_sparse": halves(more, truth, mask),
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    RESULT.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


def sparse_evidence(each: Planted, work: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the share of what the query weighs that each candidate has, and that minus the positives', [Q, M]."""
    collection, _, _ = COLLECTIONS[each.name]
    read = load_collection(collection.format(work=work), seed=42)
    texts = document_texts(read.corpus)
    asked = read.queries.set_index("query_id").text[each.block.query_ids.tolist()].tolist()
    model = inference_free(load_encoder("static", work / "store" / "models"), texts)
    queries, documents = (sparse_vectors(model, part, role) for part, role in ((asked, "query"), (texts, "document")))
    whole = np.maximum(np.asarray(queries.sum(axis=1)), 1e-9)
    blocks: list[list[NDArray[np.float64]]] = [[], []]
    for start in range(0, len(asked), QUERIES):
        part = slice(start, start + QUERIES)
        scores = (queries[part] @ documents.T).toarray() / whole[part]
        for block, places in zip(blocks, (each.block.documents[part], each.block.positives[part]), strict=True):
            block.append(np.where(places == PADDING, np.nan, np.take_along_axis(scores, np.maximum(places, 0), axis=1)))
    found, own = np.concatenate(blocks[0]), np.concatenate(blocks[1])
    return found.astype(np.float32), (found - np.nanmean(own, axis=1, keepdims=True)).astype(np.float32)


def auc(truth: NDArray[np.bool_], values: NDArray[np.float32]) -> float:
    """Return the area under the curve, unknown values in the middle."""
    return round(float(roc_auc_score(truth, np.where(np.isfinite(values), values, np.nanmedian(values)))), 4)


def halves(inputs: NDArray[np.float32], truth: NDArray[np.bool_], mask: NDArray[np.bool_]) -> float:
    """Return the mean AUC on one half of the queries of models fitted on the other."""
    found = []
    for seed in range(HALVES):
        first = np.random.default_rng(seed).random(len(truth)) < 0.5
        fit, test = mask & first[:, None], mask & ~first[:, None]
        model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=1000))
        model.fit(inputs[fit], truth[fit])
        found.append(roc_auc_score(truth[test], model.decision_function(inputs[test])))
    return round(float(np.mean(found)), 4)


if __name__ == "__main__":
    main()
