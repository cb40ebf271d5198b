"""These nodes plant truth and count what the mining makes of it."""

from __future__ import annotations

import datetime
import logging
from typing import Any

import pandas as pd

from anmi.candidates import CandidateShards, ColumnShards
from anmi.corpus.related import copies
from anmi.evaluation.audit import NothingToPlant, PlantedTruth, plant, without_source
from anmi.pipelines.ingestion.nodes import ingest
from anmi.pipelines.params import AuditParams, IngestionParams
from anmi.selection.recipe import RecipeBook, with_probabilities, with_stage_columns

log = logging.getLogger(__name__)


def ingest_all(collection: str, params: IngestionParams, seed: int) -> dict[str, Any]:
    """Read the collection without a cap on its queries, and hide what its equivalents were made of.

    What can be planted shows only when all labels are there.
    """
    uncapped = params.model_copy(update={"api_docs_queries": 0, "max_queries": 0})
    tables = ingest(collection, uncapped, seed)
    return tables | {"corpus": without_source(tables["corpus"])}


def plant_truth(
    *,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    equivalents: pd.DataFrame,
    related_documents: pd.DataFrame,
    params: AuditParams,
    judges_for: str,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return what the mining may know of the audited queries, and the truth that it may not.

    All three are empty where a retraining, which judges for one recipe, finds nothing to plant.
    """
    try:
        planted = plant(
            queries,
            qrels,
            equivalents,
            copies(related_documents),
            kinds=params.kinds,
            hide=params.hide,
            limit=params.queries,
            seed=seed,
        )
    except NothingToPlant as error:
        if judges_for == RecipeBook.every:
            raise
        log.warning("Planting measures nothing: %s", error)
        truth = pd.DataFrame(columns=["query_id", "document_id", "kind"], dtype="str")
        return queries[:0], qrels[:0], truth
    counts = ", ".join(
        f"{count} {kind}" for kind, count in planted.truth.groupby("kind").size().items()
    )
    log.info("Planted %s for %d queries", counts, len(planted.queries))
    return planted.queries, planted.qrels, planted.truth


def audit_recipes(
    candidates: CandidateShards,
    *,
    truth: pd.DataFrame,
    corpus: pd.DataFrame,
    info: dict[str, Any],
    recipes: RecipeBook,
    encoder: str,
    params: AuditParams,
    seed: int,
    recipe: str | None = None,
    **columns: ColumnShards,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Count what every recipe takes of the planted truth for negatives, and how judgments tell it.

    With a recipe only that one is run, beside ``naive_top``, whose false negatives are those of no
    filter at all. Returns the findings of recipes and of judges, and a summary.
    """
    from anmi.evaluation import audit
    from anmi.report.console import audited

    about = {
        "collection": info["collection"],
        "encoder": encoder,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "depth": params.depth,
    }
    if truth.empty:
        return pd.DataFrame(), pd.DataFrame(), about
    if recipe is not None:
        chosen: dict[str, Any] = {
            name: recipes.get(name) for name in {recipe, "naive_top"} & {*recipes.names()}
        }
        recipes = RecipeBook.model_construct(**dict(sorted(chosen.items())))
    planted = PlantedTruth(truth, corpus.document_id)
    judged = with_stage_columns(candidates, **columns).map(with_probabilities)
    by_recipe = audit.audit_recipes(judged, planted, recipes, seed=seed)
    by_judge = audit.audit_judges(judged, planted, depth=params.depth)
    for table in (by_recipe, by_judge):
        table.insert(0, "collection", info["collection"])
    for name, _, rate, _, gap, *_ in audited(by_recipe):
        log.info("%s: false negatives %s, gap %s", name, rate, gap)
    log.info("See all of it with: kedro anmi audit")
    found_share = audit.found_share(candidates.only(), planted)
    summary = audit.summarise(by_recipe, by_judge, truth, found_share)
    return by_recipe, by_judge, about | summary


def gate(recipes: pd.DataFrame, summary: dict[str, Any], recipe: str, params: AuditParams) -> None:
    """Fail the run where the recipe has too many false negatives, once findings are saved."""
    from anmi.evaluation.audit import check_false_negatives

    if params.max_false_negative_rate is not None:
        recipe = params.recipe or recipe
        check_false_negatives(recipes, recipe, params.max_false_negative_rate)
        log.info(
            "Recipe %s has no more false negatives than audit.max_false_negative_rate allows",
            recipe,
        )
