"""The work of an ablation on one mined collection: select once per recipe, then train and search once per seed.

Both run in worker processes. Each leaves one file, written aside and renamed, that carries the fingerprint of all that
can change it; where a file with that fingerprint lies, the work is done.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import pandas as pd

from anmi.fingerprint import hash_value
from anmi.pipelines.ablation.code import code
from anmi.pipelines.ablation.mining import Mined, book_of, mined
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.selection.recipe import RecipeBook
from anmi.training.options import TrainingOptions

CUTOFFS: Final = (10, 100)
# Measured beside the trained encoder.
SYSTEMS: Final = ("bm25", "zero_shot", "hybrid")
METRICS: Final = ("ndcg@10", "mrr@10", "recall@100")


@dataclass(frozen=True)
class Place:
    """A mined collection, as worker processes find it.

    Attributes
    ----------
    name
        Of the collection in the set.
    fingerprint
        Of what was mined.
    folder
        What was mined, and beside it what is made from it.
    """

    name: str
    fingerprint: str
    configuration: Path
    folder: Path
    store: Path
    truth: Literal["equivalents", "none"]
    false_negatives: Literal["auto", "none"]

    @property
    def mined(self) -> Mined:
        """The artifacts."""
        return mined(self.configuration, self.folder, self.store)

    def file(self, kind: str, name: str) -> Path:
        """Return where a file of this collection lies; beside the mined folder, which is thrown away as a whole."""
        return self.folder.parent / kind / name


@dataclass(frozen=True)
class SelectionJob:
    """Negatives of one recipe on one collection.

    Attributes
    ----------
    fingerprint
        Hash of what can change them: what was mined, the steps, the seed, the code. Made with the job and sent along,
        so that a file of the package that is edited meanwhile parts no worker from the run that waits for it.
    """

    place: Place
    recipe: str
    recipes: RecipeBook = field(repr=False)
    seed: int
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        chosen = self.recipes.get(self.recipe).model_dump(mode="json", include={"steps", "negatives"})
        chosen["mixed"] = self.is_mixed
        parts = [self.place.fingerprint, chosen, self.seed, self.place.false_negatives, code(select, _false_negatives)]
        object.__setattr__(self, "fingerprint", hash_value(parts, 8))

    @property
    def options(self) -> TrainingOptions:
        """How the recipe trains if nothing else is said."""
        return merged_options(self.recipes.get(self.recipe), TrainingParams())

    @property
    def is_mixed(self) -> bool:
        """Whether training draws negatives from the corpus itself."""
        return self.options.sources.kind != "mined"

    @property
    def variants(self) -> Path:
        """What of it is no document of the corpus; only where it is mixed."""
        return self.rows.with_suffix(".variants.parquet")

    @property
    def rows(self) -> Path:
        """The training rows."""
        return self.place.file("selections", f"{self.recipe}-{self.fingerprint}.parquet")

    @property
    def target(self) -> Path:
        """The facts about them; written last."""
        return self.rows.with_suffix(".json")


@dataclass(frozen=True)
class CellJob:
    """One training: a recipe and a seed on one collection.

    Attributes
    ----------
    held_out
        Share of the documents that adaptation does not see.
    fingerprint
        Hash of what can change the cell: its selection, training options, encoder, seed, truth, the code.
    """

    selection: SelectionJob
    encoder: str
    training: TrainingParams
    dense: DenseParams
    seed: int
    held_out: float
    split: Literal["test", "dev"] = "test"
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        options = merged_options(self.selection.recipes.get(self.recipe), self.training).model_dump(mode="json")
        dense = self.dense.model_dump(mode="json")
        parts = [self.selection.fingerprint, options, self.training.dev_documents, dense, self.encoder, self.seed]
        parts += [self.training.refit, self.held_out, self.split]
        parts += [self.place.truth, code(run_cell, measure, buckets)]
        object.__setattr__(self, "fingerprint", hash_value(parts, 8))

    @property
    def place(self) -> Place:
        """The collection."""
        return self.selection.place

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return self.selection.recipe

    @property
    def target(self) -> Path:
        """The file of the finished cell."""
        return self.place.file("cells", f"{self.recipe}-seed{self.seed}-{self.fingerprint}.json")


def read(path: Path) -> dict[str, Any] | None:
    """Return what a finished job left, None where it is not finished."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _write(path: Path, content: dict[str, Any]) -> None:
    from anmi.datasets.files import plain
    from anmi.files import aside

    with aside(path) as unfinished:
        text = json.dumps(plain(content), ensure_ascii=False, allow_nan=False)
        unfinished.write_text(text, encoding="utf-8")


def select(job: SelectionJob) -> None:
    """Run a recipe on the rated candidates; leave the training rows and what is to be said of them."""
    from anmi.files import aside
    from anmi.pipelines.selection.nodes import fit_recipe, make_training_rows, make_variants, select_negatives
    from anmi.pipelines.selection.params import SelectionParams
    from anmi.selection.plan import MiningPlan
    from anmi.selection.rated import RATED
    from anmi.selection.rows import of_split

    started = time.monotonic()
    data, recipe = job.place.mined, job.recipes.get(job.recipe)
    asked: dict[str, Any] = {"recipe": job.recipe, "recipes": job.recipes, "seed": job.seed}
    asked |= {name: data[name] for name in RATED} | {"mining_plan": MiningPlan().as_dict()}
    selection = select_negatives(**asked, fits=fit_recipe(**asked, queries=data["queries"]))
    rows = make_training_rows(
        selection=selection, recipe=job.recipe, recipes=job.recipes,
        **{name: data[name] for name in ("corpus", "queries", "related_documents")},
    )  # fmt: skip
    counted = of_split(rows.to_pandas(), "train")
    labelled = counted[counted.origin == "qrels"]
    filled = labelled.negative_ids.map(len) >= recipe.negatives
    seconds = round(time.monotonic() - started, 2)
    variants = make_variants(
        corpus=data["corpus"], queries=data["queries"], qrels=data["qrels"], knowledge=data["knowledge"],
        recipe=job.recipe, recipes=job.recipes, selection=SelectionParams(), seed=job.seed,
    )  # fmt: skip
    with aside(job.rows) as path:
        rows.save(path)
    with aside(job.variants) as path:
        variants.to_parquet(path, index=False, compression="zstd")
    _write(job.target, {
        "rows": len(labelled), "promoted": len(counted) - len(labelled), "coverage": float(filled.mean()),
        "select_seconds": seconds, **_false_negatives(job, labelled),
    })  # fmt: skip


def _false_negatives(job: SelectionJob, rows: pd.DataFrame) -> dict[str, Any]:
    """Return the share of negatives that are in truth relevant, and by what it is known or why it is not."""
    unknown = dict.fromkeys(("false_negative_rate", "false_negative_rate_low", "false_negative_rate_high"))
    if job.place.false_negatives == "none":
        return unknown | {"false_negative_rate_from": "not measured: the set's collection says false_negatives: none"}
    if job.is_mixed:
        return unknown | {"false_negative_rate_from": "not measured: drawn from the corpus while training"}
    if not rows.negative_ids.map(len).sum():
        return unknown | {"false_negative_rate_from": "no mined negatives"}
    pool = ", of the pool that training draws from" if job.options.draws else ""
    data = job.place.mined
    if job.place.truth == "equivalents":
        from anmi.evaluation.diagnostics import false_negatives

        counted = false_negatives(rows, data["equivalents"], data["qrels"])
        share = {
            "false_negative_rate": counted["share"],
            "false_negative_rate_low": counted["low"],
            "false_negative_rate_high": counted["high"],
        }
        return share | {"false_negative_rate_from": f"equivalents{pool}"}
    if data.no_audit:
        return unknown | {"false_negative_rate_from": f"no audit: {data.no_audit}"}
    from anmi.pipelines.audit.nodes import audit_recipes
    from anmi.selection.rated import RATED

    found = audit_recipes(
        truth=data["planted_truth"], recipes=book_of(job.recipes, [job.recipe]), seed=job.seed,
        info=data["audit.collection_info"], **{name: data[f"audit.{name}"] for name in (*RATED, "corpus")},
    )  # fmt: skip
    own = found[found.default].iloc[0]
    return {name: float(own[name]) for name in unknown} | {"false_negative_rate_from": f"audit: hidden positives{pool}"}


def run_cell(job: CellJob) -> None:
    """Train with one seed, search the whole corpus, and leave every test query's metrics.

    Training and evaluation are the nodes that a run uses, epochs and the hybrid's weight chosen on dev and all.
    Completed judgments are made here, after training, and go nowhere but into the metrics.
    """
    from anmi.adaptation.held_out import splits
    from anmi.corpus.texts import document_texts
    from anmi.pipelines.evaluation.params import EvaluationParams
    from anmi.pipelines.evaluation.search import build_search, run_systems
    from anmi.pipelines.training.nodes import train_retriever
    from anmi.runs.memory import peak_mib, reset_peak
    from anmi.selection.row_table import load
    from anmi.store import Store

    started, data = time.time(), job.place.mined
    corpus, queries, qrels = data["corpus"], data["queries"], data["qrels"]
    rows, variants = load(job.selection.rows), pd.read_parquet(job.selection.variants)
    common: dict[str, Any] = {name: data[name] for name in ("corpus", "queries", "qrels", "pseudo_queries")}
    common |= {"recipe": job.recipe, "dense": job.dense}
    evaluation = EvaluationParams(split=job.split, cutoffs=CUTOFFS)
    reset_peak()
    with Store(job.place.store) as store:
        common["store"] = store
        made = train_retriever(
            rows=rows, knowledge=data["knowledge"], related_documents=data["related_documents"], variants=variants,
            encoder=job.encoder, recipes=job.selection.recipes, params=job.training, seed=job.seed,
            mining_seed=job.selection.seed, held_out=job.held_out, **common,
        )  # fmt: skip
        summary = {key: value for key, value in made["training_summary"].items() if key != "options"}
        before = time.monotonic()
        search = build_search(
            trained_model=made["trained_model"], bm25_index=data["bm25_index"], dev_run=made["dev_run"], seed=job.seed,
            training_summary=summary, info=data["collection_info"], params=evaluation, **common,
        )  # fmt: skip
        runs = run_systems(
            search_index=search, encoder=job.encoder, training_summary=summary, params=evaluation, **common
        )
        seconds = round(time.monotonic() - before, 2)
    memory = peak_mib()
    shutil.rmtree(made["trained_model"], ignore_errors=True)
    asked = queries[(queries.split == job.split) & queries.query_id.isin(qrels.query_id)]
    # By the seed of mining, the same for all cells of a collection, whatever a recipe is trained on.
    away = corpus.document_id[splits(document_texts(corpus), job.selection.seed, job.held_out) != "train"]
    of = {str(system): run for system, run in runs.groupby("system")}
    others = {system: of[system] for system in SYSTEMS}
    queries_of = measure(of[job.recipe], asked, qrels, data, job.place.truth, summary["trained_on"], set(away), others)
    passes = (summary, summary.get("first_pass", {}))
    _write(job.target, {
        "collection": job.place.name, "recipe": job.recipe, "seed": job.seed, "encoder": job.encoder,
        "started": started, "ended": time.time(), "search_seconds": seconds, "memory_mb": round(memory),
        "train_seconds": sum(each.get("seconds", 0.0) for each in passes), "training": summary, "queries": queries_of,
        "weights": search.settings["weights"],
    })  # fmt: skip


def measure(
    run: pd.DataFrame,
    asked: pd.DataFrame,
    qrels: pd.DataFrame,
    data: Any,
    truth: str,
    trained_on: Sequence[str] = ("train",),
    held_out: Collection[str] = (),
    others: Mapping[str, pd.DataFrame] = MappingProxyType({}),
) -> dict[str, dict[str, list[Any]]]:
    """Return for ``original`` and, where truth is known, ``completed`` judgments the columns of a table of queries.

    Of ``others``, runs by the names of their systems, nDCG@10 is a column ``<system>_ndcg@10`` of the same table.
    """
    from anmi.evaluation.ablation import COMPLETED, METRIC, ORIGINAL
    from anmi.evaluation.completed import completed_judgments
    from anmi.evaluation.metrics import evaluate

    own = qrels[qrels.query_id.isin(asked.query_id)]
    judgments = {ORIGINAL: own}
    if truth == "equivalents":
        judgments[COMPLETED] = completed_judgments(own, data["equivalents"])
    kinds = {"query_id": asked.query_id.tolist()} | buckets(asked, qrels, trained_on, held_out)
    made = {}
    for name, labels in judgments.items():
        tables = {"": (run, METRICS)} | {f"{system}_": (found, (METRIC,)) for system, found in others.items()}
        made[name] = dict(kinds)
        for prefix, (found, metrics) in tables.items():
            table = evaluate(labels, found, CUTOFFS, ignore_identical_ids=False).loc[asked.query_id.tolist()]
            made[name] |= {f"{prefix}{metric}": table[metric].tolist() for metric in metrics}
    return made


def buckets(
    asked: pd.DataFrame, qrels: pd.DataFrame, trained_on: Sequence[str] = ("train",), held_out: Collection[str] = ()
) -> dict[str, list[str]]:
    """Return what kind each query is, in two ways.

    ``documents``: what training saw of its relevant documents, see :func:`anmi.evaluation.generalisation.buckets`. All
    labels of the splits count, and held-out documents whether a recipe was adapted or not, so that all recipes are
    compared on the same queries. ``hardness``: thirds of the queries by how hard their text is, since nearly all
    queries of a collection would fall into one bucket of fixed borders. The script alone tells languages apart here, so
    that no optional package is needed.
    """
    from anmi.corpus.hardness import HardnessParams, hardness
    from anmi.evaluation import generalisation
    from anmi.evaluation.buckets import bucket_of, thirds

    positives = generalisation.trained_positives(qrels[["query_id", "split"]], qrels, trained_on)
    hard = hardness(asked.text.tolist(), HardnessParams(code_mix="script")).value
    return {
        "documents": generalisation.buckets(asked.query_id, qrels, positives, held_out).tolist(),
        "hardness": bucket_of(hard, *thirds(hard)).tolist(),
    }
