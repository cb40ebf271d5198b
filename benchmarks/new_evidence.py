"""Whether further kinds of evidence tell false negatives that the judge's own do not.

On collections with planted truth (benchmarks/planted.py). AUC of each kind alone, and of logistic models of the judge's
evidence without any, with each, and with all, fitted on one half of the queries and tested on the other, five times.
Of a kind that compares with the known positives the best of these counts. Run from the repository's root:

    python benchmarks/new_evidence.py

- ``sparse``: share that a candidate has of what the query weighs by the untrained sparse retriever, and that minus the
  positives'.
- ``neighbours``: share of its 20 nearest documents that are among the positive's 20 nearest.
- ``round_trip``: reciprocal rank of the positive among what BM25 finds by the candidate's own five best terms, and of
  the candidate by the positive's.
- ``sentences``: largest cosine of the query with a sentence of the candidate, and that minus the positives'.
- ``names``: share of the positive's numbers and capitalised words that the candidate has.
- ``lsa``: cosine of query and candidate by another encoder, latent semantic analysis, and that minus the positives'.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from anmi.candidates import PADDING
from anmi.judging.fused import FEATURES, features
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.exact import best
from anmi.retrieval.sparse.model import inference_free, sparse_vectors
from planted import COLLECTIONS, Opened, Planted, planted

RESULT = Path(__file__).parent / "results" / "new_evidence.json"
WORK = Path(__file__).parents[1] / "data" / "benchmarks"
HALVES = 5
# Scored at once.
QUERIES = 200
NEIGHBOURS = 20
TERMS = 5
SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n+")
NAME = r"(?<![.!?] )\b(?:[A-Z][\w-]+|\d[\d.,]*)\b"

Columns = list[NDArray[np.float64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for embeddings and planted collections")
    work = parser.parse_args().work
    rows = []
    for each in planted(list(COLLECTIONS), "static", work):
        evidence = Evidence(each, work)
        mask, truth, known = each.block.filled, each.truth, features(each.block)
        kinds = {name: np.stack(make(evidence), axis=2).astype(np.float32) for name, make in KINDS.items()}
        every = np.concatenate([known, *kinds.values()], axis=2)
        rows.append({
            "collection": each.name, "queries": len(each.block), "planted": int(truth.sum()),
            "alone": {name: [auc(truth[mask], of[mask]) for of in np.moveaxis(made, 2, 0)]
                      for name, made in kinds.items()},
            "own": {name: auc(truth[mask], known[:, :, i][mask]) for i, name in enumerate(FEATURES)},
            "fused": halves(known, truth, mask),
            "with": {name: halves(np.concatenate([known, made], axis=2), truth, mask) for name, made in kinds.items()},
            "with_all": halves(every, truth, mask),
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
        RESULT.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


class Evidence:
    """What kinds of evidence are made of, for one collection."""

    def __init__(self, each: Planted, work: Path) -> None:
        opened = Opened.of(each.name, "static", work)
        self.block, self.texts, self.language = each.block, opened.texts, opened.read.language
        asked = opened.read.queries.set_index("query_id").text
        self.asked = asked[each.block.query_ids.tolist()].tolist()
        self.embed, self._models = opened.embed, work / "store" / "models"

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """Of the documents, [N, D]."""
        return self.embed(self.texts, "document")

    def scored(self, scores: Callable[[slice], NDArray[Any]]) -> Columns:
        """Return scores of (query, document) at the candidates, and those minus the positives' mean, [Q, M] each."""
        parts: list[list[NDArray[np.float64]]] = [[], []]
        for start in range(0, len(self.asked), QUERIES):
            part = slice(start, start + QUERIES)
            found = scores(part)
            for made, places in zip(parts, (self.block.documents[part], self.block.positives[part]), strict=True):
                values = np.take_along_axis(found, np.maximum(places, 0), axis=1)
                made.append(np.where(places == PADDING, np.nan, values).astype(np.float64))
        found, own = np.concatenate(parts[0]), np.concatenate(parts[1])
        return [found, found - np.nanmean(own, axis=1, keepdims=True)]

    def beside(self, table: scipy.sparse.csr_matrix, *, turned: bool = False) -> NDArray[np.float64]:
        """Return the largest of table[candidate, positive] over the positives, or of the other way round, [Q, M]."""
        result = np.full(self.block.documents.shape, np.nan)
        candidates = np.maximum(self.block.documents, 0)
        for positive in self.block.positives.T:
            own = np.broadcast_to(np.maximum(positive, 0)[:, None], candidates.shape)
            pair = (own, candidates) if turned else (candidates, own)
            values = np.asarray(table[pair[0].ravel(), pair[1].ravel()]).reshape(candidates.shape)
            result = np.fmax(result, np.where((positive == PADDING)[:, None], np.nan, values))
        return result

    def shared(self, left: scipy.sparse.csr_matrix) -> NDArray[np.float64]:
        """Return the share of the positive's set that each candidate has, of binary rows [N, V]; its best, [Q, M]."""
        sizes = np.asarray(left.sum(axis=1)).ravel()
        result = np.full(self.block.documents.shape, np.nan)
        for positive in self.block.positives.T:
            for start in range(0, len(positive), QUERIES):
                part = slice(start, start + QUERIES)
                own, candidates = np.maximum(positive[part], 0), np.maximum(self.block.documents[part], 0)
                common = (left[own] @ left.T).tocsr()
                rows = np.broadcast_to(np.arange(len(own))[:, None], candidates.shape)
                counts = np.asarray(common[rows.ravel(), candidates.ravel()]).reshape(candidates.shape)
                share = counts / np.maximum(sizes[own], 1)[:, None]
                known = (positive[part] != PADDING) & (sizes[own] > 0)
                result[part] = np.fmax(result[part], np.where(known[:, None], share, np.nan))
        return result

    def sparse(self) -> Columns:
        """See the module."""
        model = inference_free(load_encoder("static", self._models), self.texts)
        queries, documents = (
            sparse_vectors(model, texts, role) for texts, role in ((self.asked, "query"), (self.texts, "document"))
        )
        whole = np.maximum(np.asarray(queries.sum(axis=1)), 1e-9)
        return self.scored(lambda part: (queries[part] @ documents.T).toarray() / whole[part])

    def neighbours(self) -> Columns:
        """See the module."""
        found = [self.vectors[part] @ self.vectors.T for part in _blocks(len(self.texts))]
        near = np.concatenate([best(scores, NEIGHBOURS + 1)[0] for scores in found])
        rows = np.repeat(np.arange(len(near)), near.shape[1])
        return [self.shared(scipy.sparse.csr_matrix((np.ones(near.size, np.float32), (rows, near.ravel()))))]

    def round_trip(self) -> Columns:
        """See the module."""
        index = BM25Index.build(self.texts, self.language)
        terms = [" ".join(words) for words in index.tokenize(self.texts)]
        weighted = TfidfVectorizer(tokenizer=str.split, token_pattern=None, lowercase=False).fit(terms)
        table, names = weighted.transform(terms), weighted.get_feature_names_out()
        asked = []
        for row in range(len(terms)):
            part = slice(table.indptr[row], table.indptr[row + 1])
            asked.append(" ".join(names[table.indices[part][np.argsort(-table.data[part])[:TERMS]]]) or "-")
        documents = index.search(asked, NEIGHBOURS)[0]
        rank = np.broadcast_to(1 / np.arange(1, documents.shape[1] + 1), documents.shape)
        rows = np.broadcast_to(np.arange(len(documents))[:, None], documents.shape)
        listed = documents != PADDING
        count = len(self.texts)
        found = scipy.sparse.csr_matrix((rank[listed], (rows[listed], documents[listed])), shape=(count, count))
        return [self.beside(found), self.beside(found, turned=True)]

    def sentences(self) -> Columns:
        """See the module."""
        parts = [[part for part in SENTENCE.split(text) if part.strip()] or [text] for text in self.texts]
        vectors = self.embed([part for of in parts for part in of], "document")
        starts = np.concatenate([[0], np.cumsum([len(of) for of in parts])[:-1]])
        queries = self.embed(self.asked, "query")
        return self.scored(lambda part: np.maximum.reduceat(vectors @ queries[part].T, starts, axis=0).T)

    def names(self) -> Columns:
        """See the module."""
        counted = CountVectorizer(token_pattern=NAME, lowercase=False, binary=True, dtype=np.float32)
        try:
            return [self.shared(counted.fit_transform(self.texts).tocsr())]
        except ValueError:
            # A language without capitals and texts without numbers.
            return [np.full(self.block.documents.shape, np.nan)]

    def lsa(self) -> Columns:
        """See the module."""
        weighted = TfidfVectorizer(sublinear_tf=True, min_df=2).fit(self.texts)
        table = weighted.transform(self.texts)
        reduced = TruncatedSVD(min(256, table.shape[1] - 1), random_state=0).fit(table)
        documents, queries = (normalize(reduced.transform(made)) for made in (table, weighted.transform(self.asked)))
        return self.scored(lambda part: queries[part] @ documents.T)


KINDS: dict[str, Callable[[Evidence], Columns]] = {
    "sparse": Evidence.sparse, "neighbours": Evidence.neighbours, "round_trip": Evidence.round_trip,
    "sentences": Evidence.sentences, "names": Evidence.names, "lsa": Evidence.lsa,
}  # fmt: skip


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + 1000) for start in range(0, count, 1000))


def auc(truth: NDArray[np.bool_], values: NDArray[np.float32]) -> float | None:
    """Return the area under the curve, unknown values in the middle; None where nothing is known."""
    if not np.isfinite(values).any():
        return None
    return round(float(roc_auc_score(truth, np.where(np.isfinite(values), values, np.nanmedian(values)))), 4)


def halves(inputs: NDArray[np.float32], truth: NDArray[np.bool_], mask: NDArray[np.bool_]) -> float:
    """Return the mean AUC on one half of the queries of models fitted on the other."""
    found = []
    for seed in range(HALVES):
        first = np.random.default_rng(seed).random(len(truth)) < 0.5
        fit, test = mask & first[:, None], mask & ~first[:, None]
        model = make_pipeline(
            SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression(max_iter=1000)
        )
        model.fit(inputs[fit], truth[fit])
        found.append(roc_auc_score(truth[test], model.decision_function(inputs[test])))
    return round(float(np.mean(found)), 4)


if __name__ == "__main__":
    main()
