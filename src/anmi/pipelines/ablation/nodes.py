"""Nodes of the ablation."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd

from anmi.errors import AnmiError
from anmi.pipelines.ablation.params import AblationParams
from anmi.pipelines.adaptation.params import AdaptationParams
from anmi.pipelines.audit.params import AuditParams
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.consistency.params import ConsistencyParams
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.elo.params import EloParams
from anmi.pipelines.ingestion.params import IngestionParams
from anmi.pipelines.training.params import TrainingParams
from anmi.selection.recipe import RecipeBook

_FROM_SELECTION: Final = (
    "rows", "promoted", "coverage", "false_negative_rate", "false_negative_rate_low", "false_negative_rate_high",
    "false_negative_rate_from", "select_seconds",
)  # fmt: skip
_QUERY_KEY: Final = ("collection", "recipe", "seed", "judgments", "query_id")
_FROM_CELL: Final = ("train_seconds", "search_seconds", "memory_mb", "started", "ended")


def run_ablation(
    *,
    ablation: AblationParams,
    recipes: RecipeBook,
    ingestion: IngestionParams,
    adaptation: AdaptationParams,
    bm25: BM25Params,
    consistency: ConsistencyParams,
    dense: DenseParams,
    denoising: DenoisingParams,
    elo: EloParams,
    audit: AuditParams,
    training: TrainingParams,
    seed: int,
    work: Path,
    store: Path,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mine, select, train and search all cells of the chosen set that are not there yet.

    Returns
    -------
    cells, queries
        A row per cell, failed ones with their ``error``; and a row per finished cell, judgments and test query.
    """
    from kedro.utils import find_kedro_project

    from anmi.evaluation.ablation import KINDS, METRIC
    from anmi.pipelines.ablation.mining import book_of
    from anmi.pipelines.ablation.schedule import Plan, run

    recipes = recipes.with_variants(ablation.chosen.variants)
    ablation.check_recipes(recipes.names())
    branches = {
        "ingestion": ingestion, "adaptation": adaptation, "bm25": bm25, "consistency": consistency, "dense": dense,
        "denoising": denoising, "elo": elo, "audit": audit, "training": training,
    }  # fmt: skip
    own = book_of(recipes, ablation.chosen.recipes)
    project = find_kedro_project(Path.cwd()) or Path.cwd()
    rows, tables = [], [pd.DataFrame(columns=[*_QUERY_KEY, *KINDS, METRIC])]
    for done in run(Plan(ablation, own, branches, seed, work, store, project)):
        key: dict[str, Any] = {"collection": done.collection, "recipe": done.recipe, "seed": done.seed}
        row: dict[str, Any] = key | {"encoder": ablation.chosen.encoder, "error": done.error, "reused": done.reused}
        row |= {name: (done.selection or {}).get(name) for name in _FROM_SELECTION}
        row |= {name: (done.cell or {}).get(name) for name in _FROM_CELL}
        for judgments, columns in (done.cell["queries"] if done.cell else {}).items():
            table = pd.DataFrame(columns)
            row[f"ndcg_10_{judgments}"] = float(table["ndcg@10"].mean())
            tables.append(table.assign(judgments=judgments, **key))
        rows.append(row)
    numbers = [
        "coverage", "false_negative_rate", "false_negative_rate_low", "false_negative_rate_high", "select_seconds",
        "train_seconds", "search_seconds", "memory_mb",
    ]  # fmt: skip
    cells = pd.DataFrame(rows)
    cells[numbers] = cells[numbers].astype(float)
    return cells, pd.concat(tables[1:] or tables, ignore_index=True)


def compare_recipes(
    cells: pd.DataFrame, queries: pd.DataFrame, ablation: AblationParams, denoising: DenoisingParams, seed: int
) -> dict[str, Any]:
    """Return everything ``kedro anmi ablation`` shows, as one JSON document.

    Every row says by coefficients of which the fused judge judged: ``without`` names the collection whose truth had no
    part in them.
    """
    from anmi.evaluation.ablation import Design, means, table
    from anmi.judging.fusing import left_out
    from anmi.pipelines.reporting.nodes import machine, versions

    chosen = ablation.chosen
    failed = cells[cells.error != ""]
    finished = cells[cells.error == ""]
    design = Design(
        encoder=chosen.encoder,
        recipes=chosen.recipes,
        collections=[name for name in chosen.collections if name in set(finished.collection)],
        baseline=chosen.baseline,
        focus=chosen.focus,
        ours=chosen.ours,
        seed=seed,
        resamples=ablation.resamples,
        confidence=ablation.confidence,
        level=ablation.level,
    )
    without = {
        name: left_out(each.fused.get("without", denoising.fused.without), each.collection)
        for name, each in ablation.collections.items()
    }
    return {
        "set": ablation.set,
        **chosen.model_dump(mode="json"),
        "level": ablation.level,
        "confidence": ablation.confidence,
        "resamples": ablation.resamples,
        "refit": ablation.refits,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "from": {name: ablation.collections[name].model_dump(mode="json") for name in chosen.collections},
        "cells": {"finished": len(finished), "reused": int(finished.reused.sum()), "failed": len(failed)},
        "failed": failed[["collection", "recipe", "seed", "error"]].to_dict("records"),
        "rows": [row | {"without": without[row["collection"]]} for row in table(finished, queries, design)],
        "means": means(queries, design) if design.collections else [],
    }


def render_ablation(results: dict[str, Any]) -> str:
    """Return the results as one self-contained HTML document."""
    from anmi.report.ablation_html import render

    return render(results)


def finish(results: dict[str, Any], report: str) -> None:
    """Print the tables; then fail where a cell failed. Takes all that an ablation leaves, so that it is saved by then.

    Raises
    ------
    AnmiError
        Naming the failed cells, and how to go on.
    """
    from anmi.report.ablation import console, show

    show(results, console())
    if failed := results["failed"]:
        names = sorted({f"{cell['collection']}/{cell['recipe']}/seed {cell['seed']}" for cell in failed})
        rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
        asked = len(failed) + results["cells"]["finished"]
        raise AnmiError(
            f"{len(failed)} of {asked} cells failed ({', '.join(names[:5])}{rest}; the first: {failed[0]['error']}): "
            "put right what they say and run the same command again, which does only what is missing"
        )
