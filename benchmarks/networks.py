"""What training a network brings, beside the untrained one, BM25, and sentence-transformers.

A cell is an encoder, a collection, a recipe and a seed: one `kedro run` in a data root of its own,
over a store that all share. It keeps nDCG@10 of test queries and facts of the training. Cells of
the same settings are skipped, so the script runs in pieces; ``--minutes`` starts no cell later.
Without a card: ``--max-length 128 --collections scifact api_docs --seeds 1``. The peer mines by
``mine_hard_negatives`` and trains by MultipleNegativesRankingLoss, on the same labels, without the
new documents. ``hybrid`` are all parts; dev queries choose the weights of what is fused. Judgments
are completed where more is known.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import torch

import common
import gpu
from anmi.adaptation.pseudo_tests import labels_used
from anmi.corpus.related import hits_of
from anmi.corpus.texts import document_texts
from anmi.evaluation.generalisation import buckets, trained_positives
from anmi.evaluation.metrics import completed_judgments, evaluate, of_documents
from anmi.evaluation.significance import holm
from anmi.judging.fused import shipped
from anmi.pipelines.evaluation.search import (
    Split,
    encoded,
    labelled_share,
    queries_of_split,
    runs_of_parts,
)
from anmi.pipelines.params import DenseParams
from anmi.retrieval import e5
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.encoders import load_encoder
from anmi.retrieval.model_folder import MINILM_PACKAGE
from anmi.search import HybridSearch, Part
from anmi.search.fit import fit_on_dev, fused_run
from anmi.store import Store
from common import DATA, METRIC, MODELS, ROOT, STORE, artifact, kedro, mean, paired, table
from few_labels import worse

WORK: Final = common.WORK / "networks"
PAGE: Final = ROOT / "docs" / "results.md"
ENCODERS: Final = ("minilm", "e5")
# With settings of ingestion: fewer training queries where all would take hours.
COLLECTIONS: Final[dict[str, dict[str, str]]] = {
    "scifact": {},
    "api_docs": {},
    "medquad": {},
    "sae4k_ko": {"ingestion.max_queries": "2000"},
    "hinglish_top": {},
    "kg_webnlg/beir_en": {"ingestion.max_queries": "3000"},
}
PEER: Final = "mine_hard_negatives"
NAMES: Final = ("in_batch", "nv_retriever", "anmi_labels_only", "anmi", "random", "naive_top")
# Pseudo-queries learn what BM25, network and corpus encoder say together.
DISTILLED: Final = {
    "recipes.anmi.training.loss.distillation.column": "teacher",
    "recipes.anmi.training.pseudo_queries.candidates": "4",
    "recipes.anmi.training.pseudo_queries.batch_size": "16",
}
RECIPES: Final[dict[str, dict[str, str]]] = {
    **{name: {"recipe": name} for name in NAMES},
    "pseudo_queries": {"recipe": "anmi", "training.options.labels": "0"},
    "distilled": {"recipe": "anmi", **DISTILLED},
    "pseudo_queries_distilled": {"recipe": "anmi", "training.options.labels": "0", **DISTILLED},
    "anmi_last_weights": {"recipe": "anmi", "training.options.alpha": "1"},
    PEER: {},
}
SYSTEMS: Final = {
    "bm25": ("bm25",),
    "zero_shot": ("network",),
    "trained": ("dense",),
    "bm25_and_zero_shot": ("bm25", "network"),
    "bm25_and_trained": ("bm25", "dense"),
}
# What needs no training.
BEFORE: Final = ("bm25", "zero_shot", "bm25_and_zero_shot")
# Lines of the page.
SHOWN: Final = {
    "zero_shot": "untrained",
    "trained": "",
    "bm25_and_zero_shot": "untrained + BM25",
    "bm25_and_trained": " + BM25",
    "hybrid": ", all parts",
}
BUCKETS: Final = ("all", "labelled", "unlabelled", "new")
START: Final = "trained over before"
# A system, what it is compared with, and of which recipes; None: every one with its own start.
QUESTIONS: Final[dict[str, tuple[str, str, tuple[str, ...] | None]]] = {
    START: ("trained", "zero_shot", None),
    f"{START}, with BM25": ("bm25_and_trained", "bm25_and_zero_shot", None),
    "all parts over BM25 and before": ("hybrid", "bm25_and_zero_shot", None),
    "anmi over others": ("trained", "trained", ("in_batch", "nv_retriever", PEER)),
    "anmi over others, all parts": ("hybrid", "hybrid", ("in_batch", "nv_retriever", PEER)),
}
DEPTH: Final = 100
# Of the peer; epochs and negatives unless the settings name others.
EPOCHS: Final = 5
NEGATIVES: Final = 7
BATCH: Final = 64
RATE: Final = 2e-5


class Point(NamedTuple):
    """What a cell measures."""

    encoder: str
    collection: str
    recipe: str
    seed: int

    @property
    def folder(self) -> Path:
        """Where its figures are."""
        place = self.collection.replace("/", "_")
        return WORK / self.encoder / place / self.recipe / f"seed{self.seed}"

    def settings(self, max_length: int, more: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters of its run but for the place of the collection."""
        # No judge that saw the collection.
        is_shipped = self.collection in shipped()["without"]
        return {
            "encoder": self.encoder,
            "seed": str(self.seed),
            "search.network": self.encoder,
            "search.minutes": "600",
            "dense.max_length": str(max_length),
            **({"denoising.fused.without": self.collection} if is_shipped else {}),
            **COLLECTIONS[self.collection],
            **RECIPES[self.recipe],
            **more,
        }


# --- run ---


def run(point: Point, settings: Mapping[str, str]) -> None:
    """Run a cell that is not there, and keep its figures."""
    file = point.folder / "cell.json"
    if file.is_file() and json.loads(file.read_text("utf-8"))["params"] == settings:
        return
    shutil.rmtree(point.folder, ignore_errors=True)
    root = point.folder / "run"
    is_file = point.collection != "api_docs"
    place = f"beir:{DATA / point.collection}" if is_file else point.collection
    words = ",".join(f"{name}={value}" for name, value in {"collection": place, **settings}.items())
    is_peer = point.recipe == PEER
    outputs = "equivalents," + ("bm25_index" if is_peer else "part_runs,dev_part_runs")
    started = time.monotonic()
    places: dict[str, Any] = {"data": root, "store": STORE, "check": False}
    if kedro("run", "--to-outputs", outputs, "--params", words, **places):
        print(f"failed: {point}", flush=True)
        return
    if is_peer:
        summary, runs, dev_runs = train_peer(root, point, settings)
    else:
        summary = json.loads(artifact(root, "training_summary.json").read_text("utf-8"))
        runs, dev_runs = (table(root, name) for name in ("part_runs", "dev_part_runs"))
    values, weights = measure(root, runs, dev_runs, summary)
    values.to_parquet(point.folder / "values.parquet")
    names = ("rows", "pseudo_queries", "steps", "epochs", "seconds", "alpha", "alphas", "unchanged")
    cell = {
        "params": settings,
        "date": common.now(),
        "machine": common.machine(),
        "max_length": int(settings["dense.max_length"]),
        "seconds": round(time.monotonic() - started),
        "training": {name: summary.get(name) for name in names},
        "weights": weights,
    }
    file.write_text(json.dumps(cell, indent=1), encoding="utf-8")
    shutil.rmtree(root)
    means = values.drop(columns="bucket").mean().round(3).to_dict()
    print(*point, f"{cell['seconds']} s, alpha {summary.get('alpha')}", means, flush=True)


def train_peer(
    root: Path, point: Point, settings: Mapping[str, str]
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Train by sentence-transformers; return a summary, and the runs of test and dev queries."""
    started = time.monotonic()
    max_length = int(settings["dense.max_length"])
    epochs = int(settings.get("training.options.epochs", EPOCHS))
    negatives = int(settings.get("training.options.negatives", NEGATIVES))
    test, dev, _ = splits(root, {})
    queries, new = (table(root, name) for name in ("queries", "new_documents"))
    texts = pd.Series(document_texts(test.corpus), index=test.corpus.document_id)
    texts = texts.drop(new.document_id)
    pairs = test.qrels[test.qrels.relevance > 0].merge(queries[queries.split == "train"], "inner")
    pairs = pairs[pairs.document_id.isin(texts.index)]
    columns = {"anchor": pairs.text.tolist(), "positive": texts[pairs.document_id].tolist()}
    torch.manual_seed(point.seed)
    model = load_encoder(point.encoder, MODELS, max_length=max_length)
    with torch.autocast(gpu.DEVICE, torch.bfloat16, enabled=gpu.IS_BFLOAT16):
        mined = gpu.mine_peer(columns, texts.tolist(), model, negatives)
    sides = {name: "query" if name == "anchor" else "document" for name in mined.column_names}
    options = {
        "prompts": {name: model.prompts[side] for name, side in sides.items()},
        "learning_rate": RATE,
        "warmup_steps": 0.1,
        "num_train_epochs": epochs,
        "batch_sampler": "no_duplicates",
        "seed": point.seed,
    }
    gpu.train_peer(model, mined, gpu.MNRL, BATCH, **options)
    model.save(str(root / "peer"), create_model_card=False)
    summary = {"rows": len(mined), "epochs": epochs, "seconds": time.monotonic() - started}
    dense = DenseParams(max_length=max_length)
    networks = {"network": dense.of(point.encoder), "dense": dense.as_saved(str(root / "peer"))}
    parts = [Part("bm25", BM25Index.load(artifact(root, "bm25_index")))]
    for name, encoder in networks.items():
        parts.append(encoded(name, encoder, test.corpus, dev.queries.text.tolist(), Store(STORE)))
    search = HybridSearch.build(parts, test.corpus, depth=DEPTH, about={})
    return summary, runs_of_parts(search, test, DEPTH), runs_of_parts(search, dev, DEPTH)


def splits(root: Path, summary: Mapping[str, Any]) -> tuple[Split, Split, set[str]]:
    """Return labelled test and dev queries, and the positives of the labels trained on."""
    corpus, queries, qrels = (table(root, name) for name in ("corpus", "queries", "qrels"))
    share = labelled_share(summary)
    _, known = labels_used(queries[:0], queries, share, summary.get("seed", 0))
    test, dev = (queries_of_split(corpus, known, qrels, None, name) for name in ("test", "dev"))
    return test, dev, trained_positives(known, qrels, ["train"])


def measure(
    root: Path, runs: pd.DataFrame, dev_runs: pd.DataFrame, summary: Mapping[str, Any]
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Return nDCG@10 of test queries by system, with their ``bucket``, and fused weights."""
    test, dev, positives = splits(root, summary)
    corpus = test.corpus
    labels = test.qrels[test.qrels.query_id.isin(test.queries.query_id)]
    labels = of_documents(labels, corpus)
    equivalents = table(root, "equivalents")
    truth = completed_judgments(labels, equivalents) if len(equivalents) else labels
    trained, new = (
        set(hits_of(corpus)[corpus.document_id.isin(ids)])
        for ids in (positives, table(root, "new_documents").document_id)
    )
    values = {}
    weights = {}
    for system, names in {**SYSTEMS, "hybrid": [*runs.part.unique()]}.items():
        weights[system] = {names[0]: 1.0}
        if len(names) > 1:
            options: dict[str, Any] = {"positives": trained, "depth": DEPTH, "seed": 1}
            weights[system] = fit_on_dev(dev_runs, *dev, names=names, **options)["weights"]
        search = {"method": "convex", "weights": weights[system], "depth": DEPTH}
        values[system] = evaluate(truth, fused_run(runs, *test, search, DEPTH), (10,))[METRIC]
    by_system = pd.DataFrame(values)
    return by_system.assign(bucket=buckets(by_system.index, labels, trained, new)), weights


# --- result ---


def values_of(values: pd.DataFrame, system: str, bucket: str) -> pd.Series:
    """Return each query's mean over the seeds in which it is of a bucket."""
    rows = values if bucket == "all" else values[values.bucket == bucket]
    return rows.groupby(level=0)[system].mean()


def collect() -> dict[str, Any]:
    """Return the result of the cells that are there."""
    cells = []
    values = {}
    lacking = []
    for key in itertools.product(ENCODERS, COLLECTIONS, RECIPES):
        files = sorted(Point(*key, seed=0).folder.parent.glob("*/cell.json"))
        for file in files:
            point = Point(*key, int(file.parent.name.removeprefix("seed")))
            cells.append(point._asdict() | json.loads(file.read_text("utf-8")))
        if files:
            parts = [pd.read_parquet(file.with_name("values.parquet")) for file in files]
            values[key] = pd.concat(parts)
        else:
            lacking.append(" ".join(key))
    rows = []
    for key, measured in values.items():
        is_first = next(other for other in values if other[:2] == key[:2]) == key
        for system, bucket in itertools.product(measured.drop(columns="bucket"), BUCKETS):
            per_query = values_of(measured, system, bucket)
            if len(per_query) and (is_first or system not in BEFORE):
                names = (*key[:2], None) if system in BEFORE else key
                facts = dict(zip(Point._fields, names, strict=False))
                rows.append(facts | {"system": system, "bucket": bucket, **mean(per_query)})
    result = {"about": common.about(), "cells": cells, "rows": rows, "tests": tests_of(values)}
    return result | {"not_measured": lacking}


def tests_of(values: Mapping[tuple[str, ...], pd.DataFrame]) -> list[dict[str, Any]]:
    """Return paired tests, p-values corrected by Holm over all that answer one question."""
    tests = []
    for question, (system, than, others) in QUESTIONS.items():
        family = []
        pairs = [(key, key) for key in values if others is None]
        pairs += [((*key[:2], "anmi"), key) for key in values if key[2] in (others or ())]
        for (key, other), bucket in itertools.product(pairs, BUCKETS):
            if key in values:
                both = [values_of(values[key], system, bucket)]
                both.append(values_of(values[other], than, bucket))
                aligned = pd.concat(both, axis=1).dropna()
                facts: dict[str, Any] = dict(zip(Point._fields, key, strict=False))
                facts["question"] = question
                facts |= {"system": system, "over": than if key == other else other[2]}
                facts |= {"bucket": bucket, "queries": len(aligned)}
                family += [facts | paired(*aligned.to_numpy().T)] if len(aligned) > 1 else []
        for test, p_holm in zip(family, holm([test["p_value"] for test in family]), strict=True):
            tests.append(test | {"p_holm": round(float(p_holm), 5)})
    return tests


def page_table(document: Mapping[str, Any]) -> str:
    """Return a table: a line for each encoder, system and recipe, a column for each collection.

    Bold is significantly above the network before training (with BM25, if that is beside it), ▼
    below.
    """
    names = ("encoder", "system", "recipe", "collection", "bucket")
    starts = [name for name, (*_, others) in QUESTIONS.items() if others is None]
    tests = {
        tuple(test[name] for name in names): test["difference"]
        for test in document["tests"]
        if test["question"] in starts and test["p_holm"] < 0.05
    }
    texts = {}
    for row in document["rows"]:
        key = tuple(row[name] for name in names)
        text = f"{row['ndcg_10']:.3f}".lstrip("0")
        difference = tests.get(key, 0)
        texts[key] = f"**{text}**" if difference > 0 else text + "▼" * (difference < 0)
    collections = [*dict.fromkeys(key[3] for key in texts)]
    lines = []
    for encoder, system in itertools.product(dict.fromkeys(key[0] for key in texts), SHOWN):
        for recipe in dict.fromkeys(key[2] for key in texts if key[:2] == (encoder, system)):
            of = (encoder, system, recipe)
            line = [encoder, (f"`{recipe}`" if recipe else "") + SHOWN[system]]
            for collection in collections:
                figures = [texts.get((*of, collection, bucket), "–") for bucket in BUCKETS]
                line.append("/".join(figures) if {*figures} != {"–"} else "–")
            lines.append(line)
    return common.markdown(["network", "system", *collections], lines)


def main() -> None:
    arguments = common.parser(__doc__)
    choices = {"encoders": ENCODERS, "collections": COLLECTIONS, "recipes": RECIPES}
    for name, names in choices.items():
        arguments.add_argument(f"--{name}", nargs="+", choices=names, default=list(names))
    arguments.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments.add_argument("--max-length", type=int, default=256, help="tokens of a text")
    arguments.add_argument("--params", default="", help="settings of all runs, as of `kedro run`")
    arguments.add_argument("--minutes", type=float, default=np.inf, help="start no cell later")
    arguments.add_argument("--collect", action="store_true", help="only write the result")
    options = arguments.parse_args()
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{WORK / 'mlflow.db'}")
    WORK.mkdir(parents=True, exist_ok=True)
    more = dict(part.split("=", 1) for part in filter(None, options.params.split(",")))
    has_minilm = importlib.util.find_spec(MINILM_PACKAGE) is not None
    is_there = {"minilm": has_minilm, "e5": e5.is_at_hand(MODELS)}
    for name in (name for name in options.encoders if not is_there[name]):
        print(f"skipped: {name}, whose package is not installed", flush=True)
    usable = [name for name in options.encoders if is_there[name]]
    started = time.monotonic()
    cells = itertools.product(options.seeds, usable, options.collections, options.recipes)
    for seed, encoder, collection, recipe in () if options.collect else cells:
        if time.monotonic() - started > 60 * options.minutes:
            print(f"stopped after {options.minutes:g} minutes", flush=True)
            break
        point = Point(encoder, collection, recipe, seed)
        run(point, point.settings(options.max_length, more))
    document = collect()
    common.save("networks", document)
    common.fill(PAGE, "networks.py", page_table(document))
    on_new = [test for test in document["tests"] if test["bucket"] == "new"]
    print("new documents below before:", worse([x for x in on_new if x["question"] == START]))


if __name__ == "__main__":
    main()
