"""What training a network brings, beside the network before, BM25, and the road of sentence-transformers alone.

A cell is an encoder, a collection, a recipe and a seed: one `kedro run` in a data root of its own
over the common store, which has embeddings and judgments of all cells. It keeps nDCG@10 of every
test query and facts of the training. Cells of the same settings are skipped, so the script runs in
pieces; ``--minutes`` starts no cell later than that. The peer mines by ``mine_hard_negatives`` and
trains by MultipleNegativesRankingLoss on the labels that ours has, in as many epochs. Without a
card, measure less: ``--max-length 128 --collections scifact api_docs --seeds 1``.

Systems: what was trained and the network before, each alone and with BM25, and ``hybrid``, all
parts of a search. Dev queries choose the weights. Judgments are completed where more is known.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

import common
from anmi.evaluation.significance import holm
from anmi.judging.fused import shipped
from common import DATA, METRIC, MODELS, ROOT, STORE, artifact, kedro, mean, paired, table

WORK: Final = common.WORK / "networks"
PAGE: Final = ROOT / "docs" / "results.md"
ENCODERS: Final = ("minilm", "e5")
# With the settings of ingestion; fewer training queries where all would take hours.
COLLECTIONS: Final = {
    "scifact": {},
    "api_docs": {},
    "medquad": {},
    "sae4k_ko": {"ingestion.max_queries": "2000"},
    "hinglish_top": {},
    "kg_webnlg/beir_en": {"ingestion.max_queries": "3000"},
}
PEER: Final = "mine_hard_negatives"
RECIPES: Final = {
    **{
        name: {"recipe": name}
        for name in ("in_batch", "nv_retriever", "anmi_labels_only", "anmi", "random", "naive_top")
    },
    "pseudo_queries": {"recipe": "anmi", "training.options.labels": "0"},
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
BUCKETS: Final = ("all", "labelled", "unlabelled", "new")
# Questions: a system of a recipe, and what it is compared with, of another recipe or the same.
QUESTIONS: Final = (
    ("trained over before", None, "trained", "zero_shot"),
    ("with BM25, trained over before", None, "bm25_and_trained", "bm25_and_zero_shot"),
    ("all parts over BM25 and before", None, "hybrid", "bm25_and_zero_shot"),
    *(
        ("anmi over others", other, system, system)
        for other in ("in_batch", "nv_retriever", PEER)
        for system in ("trained", "hybrid")
    ),
)
DEPTH: Final = 100
EPOCHS: Final = 5
NEGATIVES: Final = 7
BATCH: Final = 64
RATE: Final = 2e-5
MOST_P: Final = 0.05


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
    wanted = "bm25_index,equivalents" if is_peer else "part_runs,dev_part_runs,equivalents"
    started = time.monotonic()
    code = kedro(
        "run", "--to-outputs", wanted, "--params", words, data=root, store=STORE, check=False
    )
    if code:
        print(f"failed: {point}", flush=True)
        return
    if is_peer:
        summary, runs, dev_runs = train_peer(root, point, settings)
    else:
        summary = json.loads(artifact(root, "training_summary.json").read_text("utf-8"))
        runs, dev_runs = table(root, "part_runs"), table(root, "dev_part_runs")
    measured, weights = measure(root, runs, dev_runs, summary)
    measured.to_parquet(point.folder / "values.parquet")
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
    means = measured.drop(columns="bucket").mean().round(3).to_dict()
    print(*point, f"{cell['seconds']} s", f"alpha {summary.get('alpha')}", means, flush=True)


def train_peer(
    root: Path, point: Point, settings: Mapping[str, str]
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Train by sentence-transformers alone; return a summary, and what the parts rank for test and dev queries."""
    import torch

    import gpu
    from anmi.corpus.texts import document_texts
    from anmi.pipelines.evaluation.search import encoded, runs_of_parts
    from anmi.pipelines.params import DenseParams
    from anmi.retrieval.bm25 import BM25Index
    from anmi.retrieval.encoders import load_encoder
    from anmi.search import HybridSearch, Part
    from anmi.store import Store

    started = time.monotonic()
    max_length = int(settings["dense.max_length"])
    epochs = int(settings.get("training.options.epochs", EPOCHS))
    negatives = int(settings.get("training.options.negatives", NEGATIVES))
    corpus, queries, qrels = (table(root, name) for name in ("corpus", "queries", "qrels"))
    new = table(root, "new_documents")
    texts = pd.Series(document_texts(corpus), index=corpus.document_id)
    pairs = qrels[qrels.relevance > 0].merge(queries[queries.split == "train"], on="query_id")
    pairs = pairs[pairs.document_id.isin(texts.index) & ~pairs.document_id.isin(new.document_id)]
    columns = {"anchor": pairs.text.tolist(), "positive": texts[pairs.document_id].tolist()}
    torch.manual_seed(point.seed)
    model = load_encoder(point.encoder, MODELS, max_length=max_length)
    with torch.autocast(gpu.DEVICE, torch.bfloat16, enabled=gpu.IS_BFLOAT16):
        mined = gpu.mine_peer(columns, texts.drop(new.document_id).tolist(), model, negatives)
    prompts = {
        name: model.prompts.get("query" if name == "anchor" else "document", "")
        for name in mined.column_names
    }
    how: dict[str, Any] = {"learning_rate": RATE, "warmup_steps": 0.1, "seed": point.seed}
    how |= {"num_train_epochs": epochs, "batch_sampler": "no_duplicates", "prompts": prompts}
    gpu.train_peer(model, mined, gpu.MNRL, BATCH, **how)
    model.save(str(root / "peer"), create_model_card=False)
    seconds = round(time.monotonic() - started, 1)
    dense = DenseParams(max_length=max_length)
    networks = {"network": dense.of(point.encoder), "dense": dense.as_saved(str(root / "peer"))}
    summary = {"rows": len(mined), "pairs": len(pairs), "epochs": epochs, "seconds": seconds}
    splits = [split_of(root, name, summary) for name in ("test", "dev")]
    dev_texts = splits[1].queries.text.tolist()
    parts = [Part("bm25", BM25Index.load(artifact(root, "bm25_index")))]
    for name, encoder in networks.items():
        parts.append(encoded(name, encoder, corpus, dev_texts, Store(STORE)))
    search = HybridSearch.build(parts, corpus, depth=DEPTH, about={})
    test_runs, dev_runs = (runs_of_parts(search, split, DEPTH) for split in splits)
    return summary, test_runs, dev_runs


def labels_of(root: Path, summary: Mapping[str, Any]) -> pd.DataFrame:
    """Return the queries whose labels a training used, and those of test."""
    from anmi.pipelines.evaluation.search import labelled_share
    from anmi.pipelines.training.nodes import labels_used

    queries = table(root, "queries")
    seed = summary.get("seed", 0)
    return labels_used(queries[:0], queries, labelled_share(summary), seed)[1]


def split_of(root: Path, name: str, summary: Mapping[str, Any]) -> Any:
    """Return the queries of a split that have a label, with corpus and labels."""
    from anmi.pipelines.evaluation.search import queries_of_split

    qrels = table(root, "qrels")
    return queries_of_split(table(root, "corpus"), labels_of(root, summary), qrels, None, name)


def measure(
    root: Path, runs: pd.DataFrame, dev_runs: pd.DataFrame, summary: Mapping[str, Any]
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Return nDCG@10 of test queries by system with their ``bucket``, and the weights of what is fused."""
    from anmi.corpus.related import hits_of
    from anmi.evaluation.generalisation import buckets, trained_positives
    from anmi.evaluation.metrics import completed_judgments, evaluate, of_documents
    from anmi.search.fit import fit_on_dev, fused_run

    test, dev = (split_of(root, name, summary) for name in ("test", "dev"))
    corpus = test.corpus
    labels = of_documents(test.qrels[test.qrels.query_id.isin(test.queries.query_id)], corpus)
    equivalents = table(root, "equivalents")
    truth = labels
    if len(equivalents):
        truth = completed_judgments(labels, equivalents)
    trained = trained_positives(labels_of(root, summary), test.qrels, ["train"])
    positives, new = (
        set(hits_of(corpus)[corpus.document_id.isin(ids)])
        for ids in (trained, table(root, "new_documents").document_id)
    )
    values = {}
    weights = {}
    for system, parts in {**SYSTEMS, "hybrid": tuple(runs.part.unique())}.items():
        names = tuple(name if name in {*runs.part} else "zero_shot" for name in parts)
        chosen = {names[0]: 1.0}
        if len(names) > 1:
            fitted = {"names": names, "positives": positives, "depth": DEPTH, "seed": 1}
            chosen = weights[system] = fit_on_dev(dev_runs, *dev, **fitted)["weights"]
        settings = {"method": "convex", "weights": chosen, "depth": DEPTH}
        values[system] = evaluate(truth, fused_run(runs, *test, settings, DEPTH), (10,))[METRIC]
    measured = pd.DataFrame(values)
    return measured.assign(bucket=buckets(measured.index, labels, positives, new)), weights


# --- result ---


class Measured(NamedTuple):
    """All seeds of a recipe: what they have in common and nDCG@10 by query, system and seed."""

    facts: dict[str, Any]
    values: pd.DataFrame

    def of(self, system: str, bucket: str) -> pd.Series:
        """Return each query's mean over seeds; a query may be of another bucket in another seed."""
        rows = self.values if bucket == "all" else self.values[self.values.bucket == bucket]
        return rows.groupby(level=0)[system].mean()


def measured_cells() -> dict[tuple[str, str, str], Measured]:
    """Return what was measured, by encoder, collection and recipe."""
    cells = {}
    for key in itertools.product(ENCODERS, COLLECTIONS, RECIPES):
        files = sorted(Point(*key, seed=0).folder.parent.glob("*/cell.json"))
        if files:
            about = [json.loads(file.read_text("utf-8")) for file in files]
            facts = {
                "encoder": key[0],
                "collection": key[1],
                "recipe": key[2],
                "seeds": len(files),
                "device": " + ".join(sorted({cell["machine"]["device"] for cell in about})),
                "max_length": " + ".join(sorted({str(cell["max_length"]) for cell in about})),
            }
            values = [pd.read_parquet(file.with_name("values.parquet")) for file in files]
            alphas = {
                name: [cell["training"].get(name) for cell in about] for name in ("alpha", "alphas")
            }
            seconds = [cell["seconds"] for cell in about]
            cells[key] = Measured(facts | alphas | {"seconds": seconds}, pd.concat(values))
    return cells


def collect() -> dict[str, Any]:
    """Return the result of the cells that are there."""
    cells = measured_cells()
    rows = []
    for key, cell in cells.items():
        is_first = next(other for other in cells if other[:2] == key[:2]) == key
        for system, bucket in itertools.product(cell.values.drop(columns="bucket"), BUCKETS):
            values = cell.of(system, bucket)
            if len(values) and (is_first or system not in BEFORE):
                facts = dict(zip(("encoder", "collection", "recipe"), key, strict=True))
                recipe = {"recipe": None} if system in BEFORE else {}
                rows.append(facts | recipe | {"system": system, "bucket": bucket, **mean(values)})
    lacking = [key for key in itertools.product(ENCODERS, COLLECTIONS, RECIPES) if key not in cells]
    return {
        "about": common.about(),
        "cells": [cell.facts for cell in cells.values()],
        "rows": rows,
        "tests": tests_of(cells),
        "not_measured": [" ".join(key) for key in lacking],
    }


def tests_of(cells: Mapping[tuple[str, str, str], Measured]) -> list[dict[str, Any]]:
    """Return paired tests, p-values corrected by Holm over all that answer one question."""
    tests = []
    for (question, over, system, than), (key, cell) in itertools.product(QUESTIONS, cells.items()):
        other = cells.get((*key[:2], over)) if over else cell
        is_asked = over is None or key[2] == "anmi"
        same = other and all(other.facts[name] == cell.facts[name] for name in ("max_length",))
        for bucket in BUCKETS if is_asked and same else ():
            both = pd.concat([cell.of(system, bucket), other.of(than, bucket)], axis=1).dropna()
            if len(both) > 1:
                facts = dict(zip(("encoder", "collection", "recipe"), key, strict=True))
                facts |= {"question": question, "system": system, "over": over or than}
                difference = paired(*both.to_numpy().T)
                tests.append(facts | {"bucket": bucket, "queries": len(both)} | difference)
    for question in {test["question"] for test in tests}:
        family = [test for test in tests if test["question"] == question]
        corrected = holm([test["p_value"] for test in family])
        for test, p_holm in zip(family, np.round(corrected, 5).tolist(), strict=True):
            test["p_holm"] = p_holm
    return tests


def page_table(document: Mapping[str, Any]) -> str:
    """Return a table with a line for each encoder, system and recipe, and a column for each collection.

    Bold is significantly above the network before training, ▼ below.
    """
    cells = pd.DataFrame(document["rows"]).fillna({"recipe": ""})
    keys = ["encoder", "system", "recipe", "collection", "bucket"]
    values = cells.set_index(keys).ndcg_10.to_dict()
    tests = {
        tuple(test[name] for name in keys): test
        for test in document["tests"]
        if test["question"] in {question for question, over, *_ in QUESTIONS if over is None}
    }
    names = {"trained": "", "bm25_and_trained": " + BM25", "hybrid": ", all parts"}
    collections = [*cells.collection.unique()]
    lines = []
    for encoder in cells.encoder.unique():
        for before, (system, suffix) in zip(
            ("zero_shot", "bm25_and_zero_shot", ""), names.items(), strict=True
        ):
            for name, recipe in ((before, ""), *((system, each) for each in RECIPES)):
                line = [shown(values, tests, (encoder, name, recipe, each)) for each in collections]
                if {*line} != {"–"}:
                    called = f"`{recipe}`" if recipe else "untrained"
                    lines.append([f"{encoder}: {called}{suffix}", *line])
    return common.markdown(["system", *collections], lines)


def shown(
    values: Mapping[tuple[str, ...], float],
    tests: Mapping[tuple[str, ...], Mapping[str, Any]],
    key: Sequence[str],
) -> str:
    """Return nDCG@10 by bucket."""
    texts = []
    for bucket in BUCKETS:
        value = values.get((*key, bucket))
        test = tests.get((*key, bucket), {"p_holm": 1.0, "difference": 0.0})
        text = "–" if value is None else f"{value:.3f}".lstrip("0")
        if test["p_holm"] < MOST_P:
            text = f"**{text}**" if test["difference"] > 0 else f"{text}▼"
        texts.append(text)
    return "/".join(texts) if {*texts} != {"–"} else "–"


# --- all cells ---


def lacking(encoder: str) -> str:
    """Return why an encoder cannot be measured here, empty where it can."""
    from anmi.retrieval import e5
    from anmi.retrieval.model_folder import MINILM_PACKAGE

    if encoder == "e5":
        return "" if e5.is_at_hand(MODELS) else f"the package {e5.PACKAGE} is not installed"
    is_there = importlib.util.find_spec(MINILM_PACKAGE) is not None
    return "" if is_there else f"the package {MINILM_PACKAGE} is not installed"


def points(encoders: Sequence[str], *others: Sequence[Any]) -> Iterator[Point]:
    """Yield what is to be measured, all of the first seed first."""
    for encoder in encoders:
        if reason := lacking(encoder):
            print(f"skipped: {encoder}, since {reason}", flush=True)
    usable = [encoder for encoder in encoders if not lacking(encoder)]
    collections, recipes, seeds = others
    for seed, *rest in itertools.product(seeds, usable, collections, recipes):
        yield Point(*rest, seed)


def main() -> None:
    arguments = common.parser(__doc__)
    choices = {"encoders": ENCODERS, "collections": COLLECTIONS, "recipes": RECIPES}
    for name, values in choices.items():
        arguments.add_argument(f"--{name}", nargs="+", choices=values, default=list(values))
    arguments.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments.add_argument("--max-length", type=int, default=256, help="tokens of a text")
    arguments.add_argument("--params", default="", help="settings of all runs, as of `kedro run`")
    arguments.add_argument("--minutes", type=float, default=np.inf, help="start no cell later")
    arguments.add_argument("--collect", action="store_true", help="only write the result")
    options = arguments.parse_args()
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{WORK / 'mlflow.db'}")
    WORK.mkdir(parents=True, exist_ok=True)
    more = dict(part.split("=", 1) for part in filter(None, options.params.split(",")))
    started = time.monotonic()
    if not options.collect:
        for point in points(options.encoders, options.collections, options.recipes, options.seeds):
            if time.monotonic() - started > 60 * options.minutes:
                print(f"stopped before {point}, after {options.minutes:g} minutes", flush=True)
                return
            run(point, point.settings(options.max_length, more))
    document = collect()
    common.save("networks", document)
    common.fill(PAGE, "networks.py", page_table(document))


if __name__ == "__main__":
    main()
