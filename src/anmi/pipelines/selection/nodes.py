"""These nodes run the recipe and write training rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.candidates import PADDING, Candidates, CandidateShards, ColumnShards
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.texts import document_texts, joined_texts, values_by_id
from anmi.corpus.types import empty
from anmi.engine import IN_PROCESS, EngineParams, map_blocks
from anmi.errors import AnmiError
from anmi.judging.endpoint import Endpoint
from anmi.judging.fusing import provenance
from anmi.pipelines.params import SelectionParams
from anmi.pipelines.training.params import TrainingParams, merged_options
from anmi.ragged import Bools
from anmi.retrieval.pool import Positives, RelatedDocuments, own_documents
from anmi.selection.export import Exported
from anmi.selection.recipe import RecipeBook, Runner, needed, with_probabilities, with_stage_columns
from anmi.selection.rows import TrainingRows, pair_rows, training_rows

# Why a document that is to be new is no negative.
NEW: Final = "held out of mining and training, to measure what becomes of documents that come later"
_LOG = logging.getLogger(__name__)
_AS_THE_RECIPE_SAYS = TrainingParams()


def select_negatives(
    candidates: CandidateShards,
    *,
    corpus: pd.DataFrame,
    new_documents: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    seed: int,
    engine: EngineParams = IN_PROCESS,
    dev: CandidateShards | None = None,
    **columns: ColumnShards,
) -> CandidateShards:
    """Run the recipe: verdicts and weights for every candidate; what is to be new to training is rejected first."""
    runner = Runner(recipes.get(recipe), seed)
    found = with_stage_columns(candidates, **columns)
    # What is fitted looks at what the recipe reads, and at what held-out positives were given.
    read = found.only(*needed(runner.recipe.requires), "p_heldout")
    runner.fit(read.map(with_probabilities), dev)
    new = corpus.document_id.isin(new_documents.document_id).to_numpy(bool)
    return map_blocks(engine, _Selecting(runner, new), found, "selecting")


@dataclass(frozen=True)
class _Selecting:
    """Applies a fitted recipe to a block."""

    runner: Runner
    new: Bools

    def __call__(self, block: Candidates) -> Candidates:

        return self.runner.apply(
            with_probabilities(block).rejected("new document", self.new[block.documents], NEW)
        )


def make_training_rows(
    *,
    selection: CandidateShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    related_documents: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
) -> TrainingRows:
    """Write the selection out as training rows with texts, weights, every score and the ``split`` of the query.

    Raises
    ------
    AnmiError
        The recipe wants negatives and none is left, naming the step that rejected most. Where there
        is no training query, there is nothing to want them for.
    """
    from anmi.evaluation.diagnostics import Funnel, diagnose

    rows = rows_of(selection, corpus, queries, qrels, related_documents)
    if (queries.split == "train").any() and recipes.get(recipe).negatives and not rows.negatives:
        why = _why_none(diagnose(selection, Funnel(1))[0])
        raise AnmiError(f'recipe "{recipe}" left no negative for any query: {why}')
    return rows


def rows_of(
    selection: CandidateShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    related_documents: pd.DataFrame,
) -> TrainingRows:
    """Return the training rows of a selection, see :func:`anmi.selection.rows.training_rows`."""
    texts = dict(zip(queries.query_id, queries.text, strict=True))
    ids = corpus.document_id.tolist()
    position = dict(zip(ids, range(len(ids)), strict=True))
    places = own_documents(queries, position)
    labels = Positives(qrels, position)
    own = {
        query: place
        for query, place in zip(queries.query_id, places.tolist(), strict=True)
        if place != PADDING
    }
    splits = dict(zip(queries.query_id, queries.split, strict=True))
    related = RelatedDocuments.from_table(related_documents, ids)
    return training_rows(selection, ids, joined_texts(corpus), texts, related, own, splits, labels)


def _why_none(rows: list[dict[str, Any]]) -> str:
    """Say what took the negatives, from a funnel."""
    if not rows[0]["queries"]:
        return "no training query was mined"
    if not rows[0]["candidates"]:
        return (
            "no document besides the positives and their copies was found for any of them, so no"
            " step had anything to choose from; give the collection more documents that differ, or"
            " raise bm25.depth, dense.depth or dense.random where they are small"
        )
    rejected = [entry for entry in rows if entry["kind"] in ("rejected", "uncertain", "promoted")]
    worst = max(rejected, key=lambda entry: entry["candidates"], default={"candidates": 0})
    if not worst["candidates"]:
        return (
            f"none of the {rows[0]['candidates']} candidates was drawn; let the recipe draw at"
            " least one"
        )
    return f'the step "{worst["step"]}" rejected most ({worst["candidates"]} candidates): loosen it'


def make_variants(
    *,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: Knowledge,
    recipe: str,
    recipes: RecipeBook,
    selection: SelectionParams,
    seed: int,
    training: TrainingParams = _AS_THE_RECIPE_SAYS,
) -> pd.DataFrame:
    """Make variants of the positives of all splits that say something else, if training draws from mixed sources.

    Those of dev and test are never trained on; an evaluation holds them against the documents they
    were made from.
    """
    from anmi.retrieval.variants.build import VARIANT_COLUMNS, counts_of, edited, make_variants

    if merged_options(recipes.get(recipe), training).sources.kind != "mixed":
        return empty(*VARIANT_COLUMNS)
    ids = corpus.document_id.tolist()
    asked = qrels[(qrels.relevance > 0) & qrels.query_id.isin(queries.query_id)]
    documents = np.flatnonzero(corpus.document_id.isin(asked.document_id)).astype(np.int32)
    options = selection.generator
    writer = (
        None if options is None else partial(edited, Endpoint(options).ask, options.max_characters)
    )
    texts = document_texts(corpus)
    variants = make_variants(
        knowledge.of(ids), documents, ids, texts, selection.variants, seed, writer
    )
    for kind, count in counts_of(variants).items():
        _LOG.info(
            "%d variants (%s) of %d of %d documents",
            count["variants"],
            kind,
            count["documents"],
            len(documents),
        )
    return variants


def export_pairs(
    rows: pd.DataFrame, corpus: pd.DataFrame, queries: pd.DataFrame, info: dict[str, Any]
) -> Exported:
    """Return the rows in the pair format, of which there may be none."""
    return Exported("pairs", pair_rows(rows, corpus, queries, info["collection"], info["language"]))


def summarise_selection(
    *,
    selection: CandidateShards,
    rows: pd.DataFrame,
    equivalents: pd.DataFrame,
    qrels: pd.DataFrame,
    queries: pd.DataFrame,
    info: dict[str, Any],
    fused_judge: dict[str, Any],
    recipe: str,
    recipes: RecipeBook,
    corpus: pd.DataFrame,
    marks: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Count what happened to the candidates, and how many negatives were in truth relevant.

    It reads ``equivalents``, so nothing that it returns goes back into mining; beside the count it
    says on which collections the judge's coefficients were fitted. Where a person marked pairs
    (``marks``, of the ``corpus``), it compares the marks with what the judges had said.
    """
    from anmi.evaluation import diagnostics
    from anmi.report.console import expected_sentence

    wanted = recipes.get(recipe).negatives
    labelled = rows[rows.origin == "qrels"]
    source_of = values_by_id(queries, "query_id", "source", info["collection"])
    document_ids = corpus.document_id.tolist()
    measures: dict[str, Any] = {
        "distributions": diagnostics.Distributions(
            diagnostics.ranges(selection, diagnostics.SCORE_COLUMNS)
        ),
        "by_source": diagnostics.BySource(rows, source_of, info["collection"]),
        "origins": diagnostics.Origins(),
        "funnel": diagnostics.Funnel(wanted),
        "expected": diagnostics.Expected(fused_judge),
        "dense": diagnostics.Gap("dense"),
        "elo": diagnostics.Gap("elo"),
        "by_nearness": diagnostics.RelevanceByNearness(equivalents, document_ids),
    }
    if marks is not None and not marks.empty:
        measures["marked"] = diagnostics.AgainstMarks(marks, document_ids)
    found: dict[str, Any] = dict(
        zip(measures, diagnostics.diagnose(selection, *measures.values()), strict=True)
    )
    found["gaps"] = {name: found.pop(name) for name in ("dense", "elo")}
    if compared := found.setdefault("marked", None):
        marked = compared["relevant"] + compared["not_relevant"]
        relevant = compared["relevant"]
        told = "Against %d marks, %d of them relevant: Brier score %.3f of what the judges said"
        _LOG.info(told, marked, relevant, compared["brier"])
    if said := expected_sentence(found["expected"]):
        _LOG.log(logging.WARNING if found["expected"]["warning"] else logging.INFO, "%s", said)
    asked = labelled.drop_duplicates("query_id")
    counted = (
        diagnostics.false_negatives(asked, equivalents, qrels)
        if len(equivalents) and wanted
        else None
    )
    return {
        "recipe": recipe,
        "rows": len(rows),
        "negatives_wanted": wanted,
        "coverage": (
            float((labelled.negative_ids.map(len) >= wanted).mean()) if len(labelled) else 0.0
        ),
        "promoted": int((rows.origin == "promoted").sum()),
        "false_negatives": (
            None
            if counted is None
            else counted | {"of": "selected", "judge": provenance(fused_judge)}
        ),
        **found,
    }
