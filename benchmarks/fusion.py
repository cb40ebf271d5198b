"""How BM25 and an encoder are best fused, on the dev queries of four collections; test is never looked at.

The encoder is ``static``, as it is and trained quickly: on labels of the training split and on sentences taken out of
their documents, in-batch negatives only. Compared are reciprocal rank fusion, ways to make scores comparable at two
depths, and all scores of the corpus; then how well a weight is chosen by few queries, for several strengths of what
draws it to one half beyond the mean over resamples. ``unlabelled``: no relevant document of the query was a positive in
training. At most 1,000 dev queries, chosen by a hash of their ids. Run from the repository's root:

    python benchmarks/fusion.py
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi import seeds
from anmi.candidates import PADDING
from anmi.corpus.sources import load_collection
from anmi.corpus.splits import position
from anmi.corpus.texts import document_texts
from anmi.evaluation.retrieval import side_by_side, vectors
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.exact import best
from anmi.retrieval.fusion import Ranked, aligned, fuse
from anmi.search.fit import bagged, grid

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("ANMI_DATA", ROOT.parent / "shared" / "data"))
MODELS = Path(os.environ.get("ANMI_STORE", ROOT / "data" / "store")) / "models"
RESULT = ROOT / "benchmarks" / "results" / "fusion.json"
COLLECTIONS = {
    "scifact": f"beir:{DATA}/scifact",
    "medquad": f"beir:{DATA}/medquad",
    "api_docs": "api_docs",
    "kg_webnlg": f"beir:{DATA}/kg_webnlg/beir_en",
}
MOST_QUERIES = 1000
EPOCHS, BATCH, RATE, TEMPERATURE = 3, 64, 8e-3, 0.05
PRIORS = (0, 5, 10, 20, 40, 80)
FEW = (5, 10, 20, 40, 80, 160)
REPEATS = 40
# With which way few queries choose the weight.
FEW_WAY = "z of all BM25 scores, one scale for all cosines, 100"
GRID = grid(2)[:, 1]
SENTENCE = re.compile(r"(?<=[.!?])\s+")


def pairs(texts: list[str], queries: pd.DataFrame, qrels: pd.DataFrame, place: dict[str, int]) -> list[list[Any]]:
    """Return what is trained on: labels, and a sentence of each document with the document without it."""
    asked = queries[queries.split == "train"].set_index("query_id").text
    labels = qrels[qrels.query_id.isin(asked.index) & (qrels.relevance > 0)]
    labelled = [[asked[q], texts[place[d]]] for q, d in zip(labels.query_id, labels.document_id, strict=True)]
    cloze = []
    for number, text in enumerate(texts):
        sentences = SENTENCE.split(text)
        if len(sentences) > 2:
            at = int(seeds.stream(1, "fusion/cloze", str(number)).integers(len(sentences)))
            cloze.append([sentences[at], " ".join(sentences[:at] + sentences[at + 1 :])])
    return [labelled, cloze]


def train(model: Any, kinds: list[list[Any]]) -> None:
    """Train a table of token vectors with in-batch negatives, batches of one kind."""
    import torch

    table = model[0]
    optimizer = torch.optim.Adam(table.parameters(), RATE)
    rng = seeds.stream(1, "fusion/train")
    for epoch in range(EPOCHS):
        batches = []
        for kind in kinds:
            order = rng.permutation(len(kind))
            batches += [[kind[i] for i in order[at : at + BATCH]] for at in range(0, len(kind), BATCH)]
        order = rng.permutation(len(batches))
        for step, number in enumerate(order):
            for group in optimizer.param_groups:
                group["lr"] = RATE * (1 - (epoch * len(order) + step) / (EPOCHS * len(order)))
            sides = [
                torch.nn.functional.normalize(table(table.preprocess(list(side)))["sentence_embedding"])
                for side in zip(*batches[number], strict=True)
            ]
            loss = torch.nn.functional.cross_entropy(sides[0] @ sides[1].T / TEMPERATURE, torch.arange(len(sides[0])))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def listed(full: NDArray[np.float32], depth: int, positive: bool) -> Ranked:
    """Return the best documents of all scores."""
    if positive:
        return Ranked(*best(full, min(depth, full.shape[1])))
    order = np.argsort(-full, axis=1, kind="stable")[:, :depth].astype(np.int32)
    return Ranked(order, np.take_along_axis(full, order, axis=1))


Scale = tuple[NDArray[np.float32], NDArray[np.float32]]


def moments(scores: NDArray[np.float32]) -> Scale:
    """Return mean and standard deviation of each row."""
    spread = scores.std(axis=1, keepdims=True)
    return scores.mean(axis=1, keepdims=True), np.where(spread > 0, spread, 1)


def extremes(scores: NDArray[np.float32]) -> Scale:
    """Return minimum and range of each row."""
    low = scores.min(axis=1, keepdims=True)
    return low, np.maximum(scores.max(axis=1, keepdims=True) - low, 1e-9)


class Measured:
    """The dev queries of a collection with their labels."""

    def __init__(self, labelled: NDArray[np.int32], grades: NDArray[np.float32]) -> None:
        self.labelled, self.grades = labelled, grades

    def curve(self, documents: NDArray[np.int32], sparse: Any, dense: Any) -> NDArray[np.float64]:
        """Return nDCG@10 by weight and query of candidates [Q, M] with scores that are comparable already."""
        discounts = 1 / np.log2(np.arange(2, 12))
        gains = np.zeros(documents.shape)
        for document, grade in zip(self.labelled.T, self.grades.T, strict=True):
            gains += np.where((documents == document[:, None]) & (documents != PADDING), grade[:, None], 0)
        ideal = -np.sort(-self.grades, axis=1)[:, :10]
        total = ideal @ discounts[: ideal.shape[1]]
        rows = []
        for weight in GRID:
            scores = np.where(documents == PADDING, -np.inf, weight * dense + (1 - weight) * sparse)
            top = np.argpartition(-scores, 10, axis=1)[:, :10]
            order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
            rows.append(np.take_along_axis(gains, np.take_along_axis(top, order, axis=1), axis=1) @ discounts / total)
        return np.array(rows)

    def ranked(self, found: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return nDCG@10 of ranked documents [Q, 10]."""
        places = np.tile(-np.arange(found.shape[1], dtype=np.float32), (len(found), 1))
        return self.curve(
            np.pad(found, ((0, 0), (0, 1)), constant_values=PADDING), *[np.pad(places, ((0, 0), (0, 1)))] * 2
        )[0]


def variants(bm25: NDArray[np.float32], dense: NDArray[np.float32], measured: Measured) -> dict[str, NDArray[Any]]:
    """Return nDCG@10 by weight and query of every way to fuse; of one without a weight it has one row.

    A document that is not listed counts as the last of the list, but where all scores are used.
    """
    found: dict[str, NDArray[Any]] = {}
    all_bm25, all_dense = moments(bm25), moments(dense)
    alike = (np.zeros(1, np.float32), np.float32(all_dense[1].mean()))
    for depth in (50, 100, 1000):
        lists = {"bm25": listed(bm25, depth, True), "dense": listed(dense, depth, False)}
        lexical = lists["bm25"]
        sparse_list, cosines = np.where(lexical.documents == PADDING, 0, lexical.scores), lists["dense"].scores
        union = aligned(lists)
        values = [
            np.where(np.isnan(values), part.min(axis=1, keepdims=True), values)
            for values, part in zip(union.part_scores.values(), (sparse_list, cosines), strict=True)
        ]
        found[f"rrf, {depth}"] = measured.ranked(fuse(lists, 10, method="rrf").documents)[None]
        scales = {
            "z of the list": (moments(sparse_list), moments(cosines)),
            "min-max of the list": (extremes(sparse_list), extremes(cosines)),
            "z of all scores": (all_bm25, all_dense),
            "z of all BM25 scores and of the dense list": (all_bm25, moments(cosines)),
            "z of all BM25 scores, one scale for all cosines": (all_bm25, alike),
        }
        for way, both in scales.items():
            scaled = [(value - low) / wide for value, (low, wide) in zip(values, both, strict=True)]
            found[f"{way}, {depth}"] = measured.curve(union.documents, *scaled)
    index = np.maximum(union.documents, 0)
    scaled = [
        (np.take_along_axis(full, index, axis=1) - low) / wide
        for full, (low, wide) in ((bm25, all_bm25), (dense, all_dense))
    ]
    found["z of all scores, whole corpus"] = measured.curve(union.documents, *scaled)
    return found


def by_few(values: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Choose weights by some queries and measure them on the others: the loss against the others' own best weight."""
    rng, rows = seeds.stream(1, "fusion/few"), []
    for few in FEW:
        if values.shape[1] < 2 * few:
            continue
        losses: dict[int | str, list[float]] = {prior: [] for prior in PRIORS} | {"argmax": [], "half": []}
        for repeat in range(REPEATS):
            order = rng.permutation(values.shape[1])
            chosen, others = values[:, order[:few]], values[:, order[few:]].mean(axis=1)
            mean = bagged(chosen, grid(2), repeat)[:, 1].mean()
            guesses = {prior: (few * mean + prior * 0.5) / (few + prior) for prior in PRIORS}
            for name, guess in (guesses | {"argmax": GRID[chosen.mean(axis=1).argmax()], "half": 0.5}).items():
                losses[name].append(others.max() - np.interp(guess, GRID, others))
        rows += [
            {"queries": few, "prior": name, "loss": round(float(np.mean(loss)), 5)} for name, loss in losses.items()
        ]
    return rows


def rows_of(name: str, collection: str) -> list[dict[str, Any]]:
    """Measure one collection."""
    found = load_collection(collection)
    texts, ids = document_texts(found.corpus), found.corpus.document_id.tolist()
    place = dict(zip(ids, range(len(ids)), strict=True))
    qrels = found.qrels[found.qrels.document_id.isin(place) & (found.qrels.relevance > 0)]
    training = found.queries.query_id[found.queries.split == "train"]
    positives = set(qrels.document_id[qrels.query_id.isin(training)])
    asked = found.queries[(found.queries.split == "dev") & found.queries.query_id.isin(qrels.query_id)]
    asked = asked.iloc[np.sort(np.argsort(position(1, "fusion/dev", asked.query_id.tolist()))[:MOST_QUERIES])]
    number = pd.Series(range(len(asked)), index=asked.query_id)
    truth = qrels[qrels.query_id.isin(asked.query_id)]
    rows, columns = truth.query_id.map(number).to_numpy(np.int64), truth.document_id.map(place).to_numpy(np.int64)
    labelled = side_by_side(rows, columns, len(asked))
    grades = np.where(labelled == PADDING, 0, 1).astype(np.float32)
    seen = np.bincount(rows, truth.document_id.isin(positives).to_numpy(float), minlength=len(asked)) > 0
    bm25 = np.concatenate([f.copy() for _, f in BM25Index.build(texts, found.language).scored(asked.text.tolist(), 1)])
    result: list[dict[str, Any]] = []
    for encoder in ("zero_shot", "trained"):
        model = load_encoder("static", MODELS)
        if encoder == "trained":
            train(model, pairs(texts, found.queries, qrels, place))
        dense = vectors(model, asked.text.tolist(), "query") @ vectors(model, texts, "document").T
        about = {"collection": name, "encoder": encoder}
        for way, values in variants(bm25, dense, Measured(labelled, grades)).items():
            for bucket, mask in (("all", np.ones(len(seen), bool)), ("labelled", seen), ("unlabelled", ~seen)):
                if mask.sum() < 10:
                    continue
                curve = values[:, mask].mean(axis=1)
                row = {"case": "fuse", **about, "bucket": bucket, "queries": int(mask.sum()), "way": way}
                row |= {"best": round(float(curve.max()), 4)}
                if len(curve) > 1:
                    row |= {"best_weight": round(float(GRID[curve.argmax()]), 2)}
                    row |= {f"at_{w:.2f}": round(float(np.interp(w, GRID, curve)), 4) for w in (0, 0.3, 0.5, 0.7, 1)}
                result.append(row)
            if way == FEW_WAY:
                mask = ~seen if (~seen).sum() >= 2 * FEW[0] else np.ones(len(seen), bool)
                result += [{"case": "few queries", **about, **row} for row in by_few(values[:, mask])]
    return result


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over collections and encoders: nDCG@10 by way at its best weight and at others, loss by prior."""
    table = pd.DataFrame([row for row in rows if row["case"] == "fuse" and row["bucket"] in ("unlabelled", "all")])
    made = table.groupby(["bucket", "way"])[["best", "at_0.50", "at_0.70"]].mean().round(4).reset_index()
    few = pd.DataFrame([row for row in rows if row["case"] == "few queries"])
    loss = few.groupby(["queries", "prior"], sort=False).loss.mean().round(5).reset_index()
    named = {"mean of fuse": made, "mean of few queries": loss}
    return [
        {"case": case, **row} for case, table in named.items() for row in json.loads(table.to_json(orient="records"))
    ]


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=COLLECTIONS, default=list(COLLECTIONS))
    rows: list[dict[str, Any]] = []
    for name in parser.parse_args().only:
        started = time.perf_counter()
        rows += rows_of(name, COLLECTIONS[name])
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    about = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "cores": os.cpu_count(),
        "split": "dev",
    }  # fmt: skip
    lines = ",\n".join(json.dumps(row) for row in [*summary(rows), *rows])
    RESULT.write_text(f'{{"about": {json.dumps(about)}, "rows": [\n{lines}\n]}}\n')
    print(pd.DataFrame(summary(rows)).to_string())


if __name__ == "__main__":
    main()
