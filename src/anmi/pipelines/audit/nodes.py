"""These nodes plant truth and count what the mining makes of it."""

from __future__ import annotations

import datetime
import logging
from typing import Any

import pandas as pd

from anmi.candidates import CandidateShards, ColumnShards
from anmi.pipelines.ingestion.nodes import ingest
from anmi.pipelines.params import AuditParams, IngestionParams
from anmi.selection.recipe import RecipeBook

log = logging.getLogger(__name__)


def ingest_all(collection: str, params: IngestionParams, seed: int) -> dict[str, Any]:
    """Read the collection without a cap on its queries, and hide what its equivalents were made of.

    What can be planted shows only when all labels are there.
    """
    from anmi.evaluation.planting import without_source

    made = ingest(collection, params.model_copy(update={"api_docs_queries": 0, "max_queries": 0}), seed)
    return made | {"corpus": without_source(made["corpus"])}


def plant_truth(
    *,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    equivalents: pd.DataFrame,
    related_documents: pd.DataFrame,
    params: AuditParams,
    seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return what the mining may know of the audited queries, and the truth that it may not."""
    from anmi.corpus.related import copies
    from anmi.evaluation.planting import plant

    planted = plant(
        queries, qrels, equivalents, copies(related_documents),
        kinds=params.kinds, hide=params.hide, limit=params.queries, seed=seed,
    )  # fmt: skip
    log.info(
        "Planted %s for %d queries",
        ", ".join(f"{count} {kind}" for kind, count in planted.truth.groupby("kind").size().items()),
        len(planted.queries),
    )
    return planted.queries, planted.qrels, planted.truth


def audit_recipes(
    candidates: CandidateShards,
    *,
    truth: pd.DataFrame,
    corpus: pd.DataFrame,
    info: dict[str, Any],
    recipes: RecipeBook,
    seed: int,
    recipe: str | None = None,
    **columns: ColumnShards,
) -> pd.DataFrame:
    """Run every recipe, or this one and ``naive_top``, and count what of the planted truth it takes for negatives."""
    from anmi.evaluation import audit
    from anmi.evaluation.planting import PlantedTruth
    from anmi.selection.recipe import with_probabilities, with_stage_columns

    if recipe is not None:
        # Beside the recipe's own false negatives those of no filter at all, where the book has it.
        chosen: dict[str, Any] = {
            name: recipes.get(name) for name in sorted({recipe, "naive_top"} & {*recipes.names()})
        }
        recipes = RecipeBook.model_construct(**chosen)
    planted = PlantedTruth(truth, corpus.document_id)
    table = audit.audit_recipes(
        with_stage_columns(candidates, **columns).map(with_probabilities), planted, recipes, seed=seed
    )
    table.insert(0, "collection", info["collection"])
    return table


def audit_judges(
    candidates: CandidateShards,
    *,
    truth: pd.DataFrame,
    corpus: pd.DataFrame,
    info: dict[str, Any],
    params: AuditParams,
    **columns: ColumnShards,
) -> pd.DataFrame:
    """Measure how well each judgment tells the planted documents from the others."""
    from anmi.evaluation import audit
    from anmi.evaluation.planting import PlantedTruth
    from anmi.selection.recipe import with_probabilities, with_stage_columns

    planted = PlantedTruth(truth, corpus.document_id)
    table = audit.audit_judges(
        with_stage_columns(candidates, **columns).map(with_probabilities), planted, depth=params.depth
    )
    table.insert(0, "collection", info["collection"])
    return table


def summarise_audit(
    candidates: CandidateShards,
    *,
    recipes: pd.DataFrame,
    judges: pd.DataFrame,
    truth: pd.DataFrame,
    corpus: pd.DataFrame,
    info: dict[str, Any],
    encoder: str,
    params: AuditParams,
) -> dict[str, Any]:
    """Put the audit into one document, and log a line per recipe."""
    from anmi.evaluation.audit import found_share, summarise
    from anmi.evaluation.planting import PlantedTruth
    from anmi.report.console import audited

    for name, _, rate, _, gap, *_ in audited(recipes):
        log.info("%s: false negatives %s, gap %s", name, rate, gap)
    log.info("See all of it with: kedro anmi audit")

    found = found_share(candidates.only(), PlantedTruth(truth, corpus.document_id))
    return {
        "collection": info["collection"],
        "encoder": encoder,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "depth": params.depth,
        **summarise(recipes, judges, truth, found),
    }


def gate(
    recipes: pd.DataFrame, judges: pd.DataFrame, summary: dict[str, Any], *, recipe: str, params: AuditParams
) -> None:
    """Fail the run where the recipe has too many false negatives; all that an audit leaves is saved by then."""
    from anmi.evaluation.audit import check_false_negatives

    if params.max_false_negative_rate is not None:
        check_false_negatives(recipes, params.recipe or recipe, params.max_false_negative_rate)
        log.info(
            "Recipe %s has no more false negatives than audit.max_false_negative_rate allows", params.recipe or recipe
        )
