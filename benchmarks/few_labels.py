"""What labels bring: the default trained with few labels, beside its parts and what an oracle chooses.

A cell is a collection, a number of labelled queries and a seed. The queries are drawn from train
and dev by a hash, so that a larger set contains the smaller; the labels of the others are taken
away before ingestion, those of test stay. Of each cell a folder keeps its tables, without vectors
and models. Cells of the same settings are kept, so the script may be interrupted: cheap ones come
first. ``hybrid`` is the default: as it was measured, and ``final``, as it is deployed. Its regret
is what the best of the other systems has more. ``prior`` is what the weights before any dev query
lose on a collection: those of the package, and those that are best on the other collections.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

import common
from anmi import seeds
from anmi.corpus.related import hits_of
from anmi.corpus.sources import load_collection
from anmi.evaluation.metrics import completed_judgments
from anmi.evaluation.significance import holm
from anmi.judging.fused import shipped
from anmi.search.fit import Measured, labelled_lists, points, prior
from anmi.search.parts import CORPUS
from common import DATA, METRIC, ROOT, artifact, kedro, mean, paired, parser, save, table
from parts import BUCKETS, TABLES, Cell

WORK: Final = common.WORK / "few_labels"
# Small collections first; the training queries that ablation.py takes, None: all.
MOST_TRAIN_QUERIES: Final = {
    "xquad/de": None,
    "scifact": None,
    "api_docs": None,
    "hinglish_top": None,
    "medquad": None,
    "sae4k_ko": 2000,
}
# Constants of the package were chosen on these; the others are shown apart.
CHOSEN_ON: Final = ("scifact", "api_docs", "hinglish_top", "sae4k_ko", "xquad/de")
# In the order in which they are run, and in that of tables.
LABELS: Final = ("all", "0", "25", "100", "10", "250", "5", "50")
IN_ORDER: Final = ("0", "5", "10", "25", "50", "100", "250", "all")
FEW: Final = ("0", "5", "10", "25")
PARTS: Final = ("bm25", "dense", "network")
RECIPE: Final = "anmi"
UNTRAINED: Final = "bm25_and_network"
# The default as it was measured, and as it is deployed.
DEFAULTS: Final = {"hybrid": False, "final": True}
SINGLE: Final = ("bm25", "network", "zero_shot", RECIPE)
OTHERS: Final = (*SINGLE, UNTRAINED)
DEPTH: Final = 100
KEPT: Final = {
    *(f"{name}.parquet" for name in (*TABLES, "query_buckets", "new_documents", "training_log")),
    "results.json",
    "training_summary.json",
}


class Point(NamedTuple):
    """What is measured in one run; ``labels`` is a number or ``all``."""

    collection: str
    labels: str
    seed: int

    @property
    def folder(self) -> Path:
        """Data root of the run."""
        return WORK / self.collection.replace("/", "_") / self.labels / f"seed{self.seed}"


# --- run ---


def source(collection: str) -> Path:
    """Return the folder of a collection in the layout of BEIR; `api_docs` is written as one."""
    if collection != "api_docs":
        return DATA / collection
    folder = WORK / "collections" / collection
    if not (folder / "qrels" / "train.tsv").is_file():
        # A seed of no run: the same hash would cut no dev queries from those that are not for test.
        loaded = load_collection(collection, seed=0)
        # What is known of test queries measures.
        labels = loaded.qrels.replace({"split": {"dev": "train"}})
        tests = completed_judgments(labels[labels.split == "test"], loaded.equivalents)
        labels = pd.concat([tests.assign(split="test"), labels[labels.split == "train"]])
        common.write_beir(folder, loaded.corpus, loaded.queries, labels)
    return folder


def drawn(labels: pd.DataFrame, number: str, seed: int, most_train: int | None) -> list[str]:
    """Return so many labelled queries of train and dev, in the proportion that the collection has."""
    ids = {}
    for split in ("train", "dev"):
        is_positive = (labels.split == split) & (labels.score.astype(float) > 0)
        names = labels["query-id"][is_positive].drop_duplicates().to_numpy()
        ids[split] = names[np.argsort(seeds.position(seed, "few labels", names), kind="stable")]
    if number == "all":
        return [*ids["train"][:most_train], *ids["dev"]]
    dev = round(int(number) * len(ids["dev"]) / sum(map(len, ids.values())))
    return [*ids["train"][: int(number) - dev], *ids["dev"][:dev]]


def write_collection(point: Point, target: Path) -> None:
    """Write the collection of a cell, in which other queries of train and dev have no label."""
    folder = source(point.collection)
    files = {path.stem: path for path in (folder / "qrels").glob("*.tsv")}
    tables = [
        pd.read_csv(path, sep="\t", dtype=str).assign(split=split) for split, path in files.items()
    ]
    labels = pd.concat(tables)
    most_train = MOST_TRAIN_QUERIES[point.collection]
    chosen = drawn(labels, point.labels, point.seed, most_train)
    labels = labels[(labels.split == "test") | labels["query-id"].isin(chosen)]
    (target / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        shutil.copy(folder / name, target)
    for split, rows in labels.groupby("split"):
        rows.drop(columns="split").to_csv(target / "qrels" / f"{split}.tsv", sep="\t", index=False)


def settings(point: Point, more: str) -> dict[str, str]:
    """Return the parameters of a run."""
    trains_again = (ROOT / "conf" / "base" / "parameters_final.yml").is_file()
    # No judge that saw the collection.
    is_shipped = point.collection in shipped()["without"]
    return {
        "collection": f"beir:{point.folder / 'beir'}",
        "recipe": RECIPE,
        "seed": str(point.seed),
        **({"final": "always"} if trains_again else {}),
        **({"denoising.fused.without": point.collection} if is_shipped else {}),
        **dict(part.split("=", 1) for part in filter(None, more.split(","))),
    }


def run(point: Point, more: str) -> None:
    """Run a cell that is not there, and keep its figures and tables."""
    params = settings(point, more)
    file = point.folder / "figures.json"
    if file.is_file() and json.loads(file.read_text("utf-8"))["params"] == params:
        return
    shutil.rmtree(point.folder, ignore_errors=True)
    write_collection(point, point.folder / "beir")
    started = time.monotonic()
    words = ",".join(f"{name}={value}" for name, value in params.items())
    code = kedro("run", "--params", words, data=point.folder, check=False)
    if code:
        print(f"failed: {point}", flush=True)
        return
    figures = {
        "params": params,
        "commit": common.state()["commit"],
        "date": common.now(),
        "seconds": round(time.monotonic() - started),
        **figures_of(point.folder),
    }
    for path in [*point.folder.glob("0*/*"), point.folder / "beir"]:
        if path.name not in KEPT:
            shutil.rmtree(path)
    file.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    print(point, f"{figures['seconds']} s", flush=True)


# --- figures of a cell ---


def figures_of(folder: Path) -> dict[str, Any]:
    """Return rows and paired tests of a run, and write nDCG@10 of every query and system beside."""
    scores = table(folder, "query_metrics")
    values = scores.pivot_table(METRIC, "query_id", "system")
    values = values[[name for name in (*OTHERS, "hybrid") if name in values]]
    finals = folder.glob("*/final.query_metrics.parquet/*")
    again = next((part for part in map(pd.read_parquet, finals) if METRIC in part), None)
    # Where nothing was trained again, what was measured is deployed.
    values["final"] = values.hybrid if again is None else again.set_index("query_id")[METRIC]
    values.to_parquet(folder / "values.parquet")
    cell = Cell(folder)
    summary = json.loads(artifact(folder, "training_summary.json").read_text("utf-8"))
    chosen = {"alpha": summary.get("alpha"), "weights": cell.search["weights"]}
    rows = rows_of(values, cell.buckets, chosen)
    best = values[[name for name in SINGLE if name in values]].mean().idxmax()
    by_system = [row for row in rows if row["system"] == best]
    rows += [row | {"system": "oracle_system", "chosen": {"system": best}} for row in by_system]
    by_weights = ndcg_by_weights(cell)
    by_weights.to_parquet(folder / "by_weights.parquet")
    best_weights = by_weights.loc[by_weights.ndcg_10.idxmax()].drop("ndcg_10").to_dict()
    for row in cell.rows(best_weights):
        named = {name: row[name] for name in ("bucket", "ndcg_10", "low", "high", "queries")}
        oracle = {"system": "oracle_weights", "final": False, "regret": None}
        rows.append(oracle | named | {"chosen": {"weights": row["weights"]}})
    tests = [
        {"final": final, "than": UNTRAINED} | paired(values[name], values[UNTRAINED])
        for name, final in DEFAULTS.items()
        if UNTRAINED in values
    ]
    return {"left_out": cell.search["left_out"], "rows": rows, "tests": tests}


def rows_of(
    values: pd.DataFrame, buckets: pd.Series, chosen: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a row for each bucket and system.

    ``values`` are nDCG@10 by query and system, ``buckets`` those of queries, ``chosen`` what the
    default chose.
    """
    rows = []
    for bucket in BUCKETS:
        part = values[(bucket == "all") | (buckets.reindex(values.index) == bucket)]
        for name in part if len(part) else ():
            row = {"system": name, "final": False, "bucket": bucket, **mean(part[name])}
            row |= {"regret": None, "chosen": None}
            if name in DEFAULTS:
                best = part[[other for other in OTHERS if other in part]].mean().idxmax()
                test = paired(part[best], part[name])
                row |= {"system": "hybrid", "final": DEFAULTS[name], "regret": test["difference"]}
                row |= {"regret_low": test["low"], "regret_high": test["high"]}
                row |= {"best": best, "chosen": chosen}
            rows.append(row)
    return rows


def ndcg_by_weights(cell: Cell) -> pd.DataFrame:
    """Return mean nDCG@10 on test queries, ``ndcg_10``, by the weights of all parts, a column each."""
    names = [name for name in cell.runs.part.unique() if name != "zero_shot"]
    corpus, queries, _ = cell.test
    queries = queries[queries.query_id.isin(cell.buckets.index)].drop_duplicates("query_id")
    truth = cell.truth[cell.truth.document_id.isin(hits_of(corpus))]
    lists = labelled_lists(cell.runs, corpus, queries, truth, names=names, depth=DEPTH)
    measured = Measured(*lists, np.ones(len(queries)))
    weights = points(len(names))
    means = [measured.ndcg(tuple(point)).mean() for point in weights.tolist()]
    return pd.DataFrame(weights, columns=names).assign(ndcg_10=means)


# --- all cells ---


def collect() -> dict[str, Any]:
    """Return the result of the cells that are there."""
    rows: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    cells: dict[str, Any] = {}
    fewer: dict[tuple[str, int], tuple[Any, pd.DataFrame]] = {}
    for collection, labels in itertools.product(MOST_TRAIN_QUERIES, IN_ORDER):
        for file in sorted(Point(collection, labels, 0).folder.parent.glob("*/figures.json")):
            seed = int(file.parent.name.removeprefix("seed"))
            number = labels if labels == "all" else int(labels)
            facts = {"collection": collection, "labels": number, "seed": seed}
            figures = json.loads(file.read_text("utf-8"))
            del figures["params"]
            rows += [facts | row for row in figures.pop("rows")]
            tests += [facts | row for row in figures.pop("tests")]
            cells["/".join(file.parts[-4:-1])] = figures
            values = pd.read_parquet(file.with_name("values.parquet"))
            than, before = fewer.get((collection, seed), (None, values[:0]))
            fewer[collection, seed] = (number, values)
            tests += [
                facts
                | {"final": final, "than": than}
                | paired(values.loc[before.index, name], before[name])
                for name, final in DEFAULTS.items()
                if len(before)
            ]
    about = common.about() | {"cells": cells}
    return {"about": about, "rows": rows, "tests": tests, "prior": priors()}


def priors() -> list[dict[str, Any]]:
    """Return what weights lose that are chosen without a dev query: ours, and the other collections'.

    Cells with BM25, a trained encoder and the network, with up to 25 labels and with all of them.
    """
    losses: dict[tuple[str, str], list[pd.Series]] = {}
    losses_of_ours: dict[tuple[str, str], list[float]] = {}
    for collection, labels in itertools.product(MOST_TRAIN_QUERIES, (*FEW, "all")):
        for file in Point(collection, labels, 0).folder.parent.glob("*/by_weights.parquet"):
            by_weights = pd.read_parquet(file)
            if {*PARTS} <= {*by_weights}:
                without = by_weights[by_weights.get(CORPUS, 0.0) == 0]
                ndcg = without.round(dict.fromkeys(PARTS, 1)).set_index([*PARTS]).ndcg_10
                key = (collection, "few" if labels in FEW else labels)
                loss = ndcg.max() - ndcg
                losses.setdefault(key, []).append(loss)
                ours = np.array([*prior(PARTS, len(Cell(file.parent).positives)).values()])
                nearest = min(loss.index, key=lambda point: np.abs(ours - point).sum())
                losses_of_ours.setdefault(key, []).append(float(loss[nearest]))
    means = pd.DataFrame({key: sum(cells) / len(cells) for key, cells in losses.items()})
    rows = []
    for collection, labels in means:
        others = means.drop(columns=[key for key in means if labels != key[1]])
        others = others.drop(columns=collection, level=0)
        if len(others.columns):
            best = others.mean(axis=1).idxmin()
            row: dict[str, Any] = {"collection": collection, "labels": labels}
            row["loss"] = round(np.mean(losses_of_ours[collection, labels]), 4)
            row["best_of_others"] = dict(zip(PARTS, best, strict=True))
            row["loss_of_best_of_others"] = round(means.loc[best, (collection, labels)], 4)
            rows.append(row)
    return rows


def goals(document: Mapping[str, Any]) -> str:
    """Return whether the default is as good as it should be, over all queries, as a table."""
    apart = [name for name in MOST_TRAIN_QUERIES if name not in CHOSEN_ON]
    groups = {"all": [*MOST_TRAIN_QUERIES], "chosen on": [*CHOSEN_ON], "apart": apart}
    lines = []
    for (group, names), final in itertools.product(groups.items(), DEFAULTS.values()):
        rows, tests = (
            [row for row in document[kind] if row["collection"] in names and row["final"] == final]
            for kind in ("rows", "tests")
        )
        rows = [row for row in rows if (row["system"], row["bucket"]) == ("hybrid", "all")]
        if rows:
            worst = max(rows, key=lambda row: row["regret_low"])
            cell = f"{worst['collection']}, {worst['labels']}, seed {worst['seed']}"
            line = [group, "deployed" if final else "measured", str(len(rows))]
            line.append(f"{np.mean([row['regret'] for row in rows]):.4f}")
            line.append(f"{worst['regret_low']:.4f} ({cell})")
            line.append(str(sum(row["regret_low"] > 0.03 for row in rows)))
            line.append(worse([row for row in tests if row["than"] == UNTRAINED]))
            line.append(worse([row for row in tests if row["than"] != UNTRAINED]))
            lines.append(line)
    head = ["collections", "default", "cells", "mean regret (≤ .01)", "highest lower end (≤ .03)"]
    head += ["above .03 (0)", "below BM25 + network (0)", "worse with more labels (0)"]
    return common.markdown(head, lines)


def worse(tests: Sequence[Mapping[str, Any]]) -> str:
    """Return how many differences are significantly below 0 after Holm's correction, and before."""
    p_values = [row["p_value"] for row in tests]
    is_below = np.array([row["difference"] < 0 for row in tests], bool)
    counts = [int((is_below & (np.array(p) < 0.05)).sum()) for p in (holm(p_values), p_values)]
    return f"{counts[0]} of {len(tests)}, uncorrected {counts[1]}"


def curve(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return nDCG@10 by labels and collection: deployed, measured, and BM25 + network."""
    values: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["bucket"] == "all":
            key = (row["collection"], str(row["labels"]), row["system"], row["final"])
            values.setdefault(key, []).append(row["ndcg_10"])
    collections = [name for name in MOST_TRAIN_QUERIES if any(name in key for key in values)]
    collections.sort(key=lambda name: name not in CHOSEN_ON)
    lines = []
    for labels in (name for name in IN_ORDER if any(name == key[1] for key in values)):
        line = [labels]
        for name in collections:
            systems = (("hybrid", True), ("hybrid", False), (UNTRAINED, False))
            means = [values.get((name, labels, *system)) for system in systems]
            line.append(" / ".join(f"{np.mean(m):.3f}".lstrip("0") if m else "–" for m in means))
        lines.append(line)
    heads = [name if name in CHOSEN_ON else f"{name}\\*" for name in collections]
    return common.markdown(["labelled queries", *heads], lines)


def main() -> None:
    arguments = parser(__doc__)
    for name, values in (("collections", MOST_TRAIN_QUERIES), ("labels", LABELS)):
        arguments.add_argument(f"--{name}", nargs="+", choices=values, default=list(values))
    arguments.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments.add_argument("--minutes", help="search.minutes of all runs")
    arguments.add_argument("--params", default="", help="settings of all runs, as of `kedro run`")
    arguments.add_argument("--collect", action="store_true", help="only write the result")
    given = arguments.parse_args()
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{WORK / 'mlflow.db'}")
    minutes = f",search.minutes={given.minutes}" if given.minutes else ""
    cells = itertools.product(given.seeds, given.labels, given.collections)
    for seed, labels, collection in () if given.collect else cells:
        run(Point(collection, labels, seed), given.params + minutes)
    document = collect()
    save("few_labels", document)
    common.fill(ROOT / "README.md", "few_labels.py", curve(document["rows"]))
    print(goals(document))


if __name__ == "__main__":
    main()
