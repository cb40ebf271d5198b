"""What negatives from a graph, and schedules for them, bring on WebNLG; by recipe, mean over seeds.

Every cell trains the static encoder on all training queries with the options of a recipe, and measures on the test
queries: nDCG@10 by completed and by original judgments, entity linking, and how well it tells documents from false
variants of them (factuality AUC; variants of test documents are seen by no training). Nearly half of the test queries
are of categories that training does not have, so both halves are measured apart as well. ``steps_to_reference`` is the
last step of the first epoch whose dev nDCG@10 is not below the one that ``dnh_random`` ends with, with the same seed;
results/dnh.json is of before, when a dev loss stood in its place, measured every 25 steps. A cell is kept once it is
done. What is not run again stays as it is in the result. Times are measured apart, the recipes
taking turns with fixed negatives of equal number: ``step_seconds``; ``slower_than_fixed``, by the processor's time,
which holds that texts are of other lengths and are tokenised anew; and ``sampling_share``, what drawing and taking in
embeddings take beside all the rest of the same steps. Run from the repository's root:

    python benchmarks/dnh.py
    python benchmarks/dnh.py --only-timing
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from anmi.corpus.knowledge import Knowledge, KnowledgeGraph
from anmi.corpus.related import COPY
from anmi.corpus.sources import load_collection
from anmi.corpus.texts import document_texts
from anmi.evaluation.factuality import factuality, factuality_pairs, linking, pair_similarities
from anmi.evaluation.metrics import completed_judgments, evaluate
from anmi.evaluation.retrieval import dev_metric, run_table, search
from anmi.pipelines.reporting.nodes import machine, versions
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.retrieval.encoders import encode, load_encoder
from anmi.retrieval.variants.build import make_variants
from anmi.retrieval.variants.params import VariantParams
from anmi.selection.recipe import recipe_book
from anmi.training.mixed import MixedSampler, Stock
from anmi.training.options import TrainingOptions
from anmi.training.recorder import DEV_METRIC
from anmi.training.trainer import train
from curriculum_step import seconds, timed_steps

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "dnh.json"
DATA = Path(os.environ.get("ANMI_DATA") or ROOT.parent / "shared" / "data")
MODELS = ROOT / "data" / "store" / "models"
# By name what each sets over the training of dnh_linear.
RECIPES: dict[str, dict[str, Any]] = {
    "dnh_random": {"curriculum": "none", "sources": {"mixed": {"random": 1, "graph": 0, "latent": 0}}},
    "dnh_random_graph": {"curriculum": "none", "sources": {"mixed": {"random": 0.3, "graph": 0.7, "latent": 0}}},
    "dnh_random_latent": {"curriculum": "none", "sources": {"mixed": {"random": 0.4, "graph": 0, "latent": 0.6}}},
    "dnh_linear": {}, "dnh_step": {"curriculum": "step"}, "dnh_triggered": {"curriculum": "triggered"},
    "dnh_adversary": {"sources": {"mixed": {"adversary": 0.1}}},
}  # fmt: skip
REFERENCE = "dnh_random"
# By text alone: what would be drawn if nobody knew what documents state.
UNFILTERED = "dnh_linear without the fact filter"
TIMES = ("step_seconds", "slower_than_fixed", "sampling_share")
PER_SEED = (
    "seed",
    "ndcg_10_completed",
    "factuality_auc",
    "best_epoch",
    "stages",
    "shares",
    "last",
    "factuality_by_kind",
)


class World:
    """A collection with its graph, as every cell reads it."""

    def __init__(self, collection: str) -> None:
        self.name = collection
        self.collection = load_collection(f"kg:{DATA / collection}")
        self.ids = self.collection.corpus.document_id.tolist()
        self.texts = document_texts(self.collection.corpus)
        known = self.collection.entities, self.collection.graph, self.collection.facts
        self.graph = KnowledgeGraph.from_tables(*known, self.ids)
        queries = self.collection.queries
        self.categories = pd.Series([json.loads(text)["category"] for text in queries.metadata], index=queries.query_id)
        place = pd.Series(np.arange(len(self.ids)), index=self.ids)
        own = place.loc[self.collection.qrels.document_id.unique()].to_numpy(np.int32)
        self.variants = make_variants(self.graph, own, self.ids, self.texts, VariantParams(), seed=1)
        copies = self.collection.duplicates.rename(columns={"duplicate_of": "other_id"}).assign(kind=COPY)
        self.stock = Stock.from_tables(
            self.collection.corpus, Knowledge(known[0], known[1], known[2]), self.variants, copies
        )

    def of(self, split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Queries and qrels of a split."""
        queries, qrels = self.collection.queries, self.collection.qrels
        return queries[queries.split == split], qrels[qrels.split == split]

    def rows(self, negatives: int = 0) -> pd.DataFrame:
        """Training rows, with so many fixed random negatives."""
        queries, qrels = self.of("train")
        text, documents = queries.set_index("query_id").text, dict(zip(self.ids, self.texts, strict=True))
        drawn = np.random.default_rng(0).integers(len(self.ids), size=(len(qrels), negatives)).tolist()
        return pd.DataFrame(
            {
                "query_id": query, "query": text[query], "positive_id": own, "positive": documents[own],
                "negative_ids": [self.ids[i] for i in line], "negatives": [self.texts[i] for i in line],
                "weights": [1.0] * negatives, "query_weight": 1.0, "positive_ids": [own],
            }
            for query, own, line in zip(qrels.query_id, qrels.document_id, drawn, strict=True)
        )  # fmt: skip


def options_of(recipe: str) -> TrainingOptions:
    """Training options of a recipe of the project."""
    book = recipe_book(yaml.safe_load((ROOT / "conf/base/recipes.yml").read_text(encoding="utf-8"))["recipes"])
    changes = RECIPES.get(recipe, {})
    options = merged_options(book.get("dnh_linear"), TrainingParams(options=changes))
    if recipe != UNFILTERED:
        return options
    return options.model_copy(update={"sources": options.sources.model_copy(update={"fact_filter": False})})


def run_cell(world: World, recipe: str, seed: int) -> dict[str, Any]:
    """Train once and measure."""
    corpus, queries, qrels = world.collection.corpus, world.collection.queries, world.collection.qrels
    encoder = load_encoder("static", MODELS)
    metric = dev_metric(corpus, queries, qrels, 20_000, "float32", seed)
    made = train(
        world.rows(), encoder=encoder, options=options_of(recipe), output=None, evaluate_dev=metric, seed=seed,
        stock=world.stock,
    )  # fmt: skip
    asked, own = world.of("test")
    found = search(encoder, asked.text.tolist(), world.texts, 100)
    run = run_table(asked.query_id.tolist(), world.ids, *found)
    judgments = {"original": own, "completed": completed_judgments(own, world.collection.equivalents)}
    about = dict(zip(world.ids, world.graph.about.tolist(), strict=True))
    linked = linking(run, own, about)
    # A few test documents are positives of training queries, too: their variants were trained on.
    held_out = own[~own.document_id.isin(world.of("train")[1].document_id)]
    pairs = factuality_pairs(asked, held_out, dict(zip(world.ids, world.texts, strict=True)), world.variants, seed=1)
    similarities = pair_similarities(pairs, lambda texts, role: encode(encoder, texts, None, role=role))
    told = factuality(pairs, *similarities, seed=1, resamples=1000)
    tables = {name: evaluate(labels, run, (10,))["ndcg@10"] for name, labels in judgments.items()}
    scores = {name: table.mean() for name, table in tables.items()}
    trained = set(world.categories.loc[world.of("train")[0].query_id])
    unseen = set(asked.query_id[~asked.query_id.map(world.categories).isin(trained)])
    apart: dict[str, float] = {}
    for name in ("seen", "unseen"):
        mine = pairs.query_id.isin(unseen).to_numpy() == (name == "unseen")
        kinds = factuality(pairs[mine], *(values[mine] for values in similarities), seed=1, resamples=10)
        apart[f"factuality_auc_{name}"] = float(kinds.loc["all", "auc"])
        chosen = tables["completed"].index.isin(unseen) == (name == "unseen")
        apart[f"ndcg_10_completed_{name}"] = float(tables["completed"][chosen].mean())
    log = made.log
    stages = log.loc[log.stage.diff().fillna(0) != 0, ["step", "stage"]] if "stage" in log else pd.DataFrame()
    curve = log.dropna(subset=DEV_METRIC)
    return {
        "collection": world.name, "recipe": recipe, "seed": seed,
        "false_negative_rate": float((log.false_negative_rate * log.negatives).sum() / log.negatives.sum()),
        "dev": dict(zip(curve.step.tolist(), curve[DEV_METRIC].tolist(), strict=True)),
        "best_epoch": made.summary["best_epoch"], "train_seconds": made.summary["seconds"],
        "linking_accuracy": float(linked.accuracy.mean()), "mrr_10": float(linked.mrr_10.mean()),
        **{f"ndcg_10_{name}": float(score) for name, score in scores.items()}, **apart,
        "factuality_auc": float(told.loc["all", "auc"]), "factuality_paired": float(told.loc["all", "paired"]),
        "factuality_by_kind": {kind: [float(row.auc), float(row.paired)] for kind, row in told.iterrows()},
        "shares": {name: float(log[f"share_{name}"].mean()) for name in ("random", "graph", "latent", "edit")},
        "last": {
            name: float(log[name].tail(100).mean())
            for name in ("margin_violations", "latent_hit_rate", "latent_staleness", "replaced", "loss")
            if name in log
        },
        "stages": stages.to_numpy().tolist(),
    }  # fmt: skip


def kept(world: World, recipe: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return a cell, from its file if it was made with the same code and options."""
    code = [
        path.read_text()
        for part in ("training", "retrieval/variants")
        for path in sorted((ROOT / "src/anmi" / part).rglob("*.py"))
    ]
    key = hashlib.blake2b("".join([*code, options_of(recipe).model_dump_json()]).encode(), digest_size=8).hexdigest()
    path = folder / f"{world.name.replace('/', '-')}-{recipe.replace(' ', '_')}-{seed}-{key}.json"
    if not path.exists():
        cell = run_cell(world, recipe, seed)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(cell), encoding="utf-8")
    return dict(json.loads(path.read_text(encoding="utf-8")))


@contextmanager
def timed_drawing() -> Iterator[list[float]]:
    """Note the processor's seconds for the negatives of every step: drawing them, and taking in what was encoded."""
    spent: list[float] = []
    draw, observe = MixedSampler.__call__, MixedSampler.observe

    def drawn(self: MixedSampler, *args: Any) -> Any:
        begun = time.process_time()
        made = draw(self, *args)
        spent.append(time.process_time() - begun)
        return made

    def observed(self: MixedSampler, *args: Any) -> None:
        begun = time.process_time()
        observe(self, *args)
        spent[-1] += time.process_time() - begun

    MixedSampler.__call__, MixedSampler.observe = drawn, observed  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        MixedSampler.__call__, MixedSampler.observe = draw, observe  # type: ignore[method-assign]


Times = dict[str, list[tuple[float, float, float]]]


def step_seconds(world: World, steps: int, repeats: int) -> Times:
    """Seconds a step, by the clock, by the processor and for the negatives, of final mixes and of fixed negatives.

    They take turns.
    """
    fixed = without_schedule(options_of(REFERENCE)).model_copy(update={"sources": TrainingOptions().sources})
    cases = {"fixed": fixed} | {
        name: without_schedule(options_of(name))
        for name in ("dnh_random", "dnh_random_graph", "dnh_random_latent", "dnh_linear")
    }
    rows = world.rows(15).iloc[: 64 * steps]
    found: Times = {name: [] for name in cases}
    for repeat in range(repeats + 1):
        order = list(cases)[repeat % len(cases) :] + list(cases)[: repeat % len(cases)]
        for name in order:
            encoder = load_encoder("static", MODELS)
            with timed_steps() as begun, timed_drawing() as drawn:
                train(
                    rows, encoder=encoder, options=cases[name], output=None, seed=1, stock=world.stock,
                    show_progress=False,
                )  # fmt: skip
            # The first round fills caches; of the others the second epoch counts, in which neighbours are known.
            if repeat:
                half = len(begun) // 2
                found[name].append((*seconds(begun[half:]), sum(drawn[half:-1]) / (len(begun) - half - 1)))
    return found


def without_schedule(options: TrainingOptions) -> TrainingOptions:
    """The final mix from the first step on, for two epochs."""
    return options.model_copy(update={"epochs": 2, "curriculum": TrainingOptions().curriculum})


def timing(recipe: str, steps: Times) -> dict[str, float | None]:
    """What is told of a recipe's times; None where they were not measured."""
    timed = steps.get(recipe if recipe in steps else "dnh_linear", [])
    if not timed:
        return dict.fromkeys(TIMES)
    # By the processor's time, which others who use the machine change less.
    slower = [one / fixed for (_, one, _), (_, fixed, _) in zip(timed, steps["fixed"], strict=True)]
    return {
        "step_seconds": round(statistics.median(clock for clock, _, _ in timed), 5),
        "slower_than_fixed": round(statistics.median(slower) - 1, 3),
        "sampling_share": round(statistics.median(drawn / (whole - drawn) for _, whole, drawn in timed), 3),
    }


def rows_of(cells: list[dict[str, Any]], steps: Times) -> list[dict[str, Any]]:
    """Average over seeds; without cells of the reference nobody knows how many steps it takes to reach it."""
    reference = {cell["seed"]: list(cell["dev"].values())[-1] for cell in cells if cell["recipe"] == REFERENCE}
    rows = []
    for recipe in dict.fromkeys(cell["recipe"] for cell in cells):
        mine = [cell for cell in cells if cell["recipe"] == recipe]
        reached = [
            next((int(step) for step, dev in cell["dev"].items() if dev >= reference[cell["seed"]]), None)
            if cell["seed"] in reference
            else None
            for cell in mine
        ]
        last = [int(list(cell["dev"])[-1]) for cell in mine]

        def mean(name: str, cells: list[dict[str, Any]] = mine) -> float:
            return round(float(np.mean([cell[name] for cell in cells])), 4)

        rows.append({
            "collection": mine[0]["collection"], "recipe": recipe, "seed_count": len(mine),
            "false_negative_rate": mean("false_negative_rate"),
            "steps": last[0],
            "steps_to_reference": None if None in reached else round(float(np.mean(reached)), 1),
            "share_of_steps": None if None in reached else round(float(np.mean(np.divide(reached, last))), 3),
            "final_dev_ndcg_10": round(float(np.mean([list(cell["dev"].values())[-1] for cell in mine])), 4),
            **{name: mean(name) for name in (
                "factuality_auc", "factuality_paired", "linking_accuracy", "mrr_10", "ndcg_10_completed",
                "ndcg_10_original", "ndcg_10_completed_seen", "ndcg_10_completed_unseen", "factuality_auc_seen",
                "factuality_auc_unseen",
            )},
            **timing(recipe, steps),
            "seeds": [{key: cell[key] for key in PER_SEED} for cell in mine],
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", default="kg_webnlg/beir_en")
    parser.add_argument("--recipes", nargs="+", default=[*RECIPES, UNFILTERED])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=ROOT / "data" / "benchmarks" / "dnh")
    parser.add_argument("--no-timing", action="store_true")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of what is timed")
    parser.add_argument("--only-timing", action="store_true", help="train nothing but what is timed")
    arguments = parser.parse_args()
    world = World(arguments.collection)
    steps = {} if arguments.no_timing else step_seconds(world, 60, arguments.repeats)
    if arguments.only_timing:
        old = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
        write([row | timing(row["recipe"], steps) if row["collection"] == world.name else row for row in old])
        return
    cells: list[dict[str, Any]] = []
    made: dict[str, dict[str, Any]] = {}
    for seed in range(1, arguments.seeds + 1):
        for recipe in arguments.recipes:
            cells.append(kept(world, recipe, seed, arguments.work))
            print({k: v for k, v in cells[-1].items() if k not in ("dev", "factuality_by_kind")}, flush=True)
        old = json.loads(RESULT.read_text(encoding="utf-8"))["rows"] if RESULT.exists() else []
        before = {(row["collection"], row["recipe"]): row for row in old}
        for row in rows_of(cells, steps):
            known = before.pop((row["collection"], row["recipe"]), {})
            # Times that were not measured anew are those of before.
            made[row["recipe"]] = row if steps else row | {name: known.get(name) for name in TIMES}
        write([*before.values(), *made.values()])


def write(rows: list[dict[str, Any]]) -> None:
    """Write the result."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    document = {"date": date, "machine": machine(), "versions": versions(), "rows": rows}
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
