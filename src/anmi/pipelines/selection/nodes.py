"""These nodes run the recipe and write training rows."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.candidates import PADDING, Candidates, CandidateShards, ColumnShards
from anmi.corpus.knowledge import Knowledge
from anmi.corpus.texts import among, document_texts, joined_texts, values_by_id
from anmi.corpus.types import empty
from anmi.engine import EngineParams, map_blocks
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


def select_negatives(
    candidates: CandidateShards,
    *,
    corpus: pd.DataFrame,
    new_documents: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    seed: int,
    engine: EngineParams,
    dev: CandidateShards,
    **columns: ColumnShards,
) -> CandidateShards:
    """Run the recipe: verdicts and weights for every candidate.

    What is to be new to training is rejected first.
    """
    runner = Runner(recipes.get(recipe), seed)
    measured = with_stage_columns(candidates, **columns)
    # What is fitted looks at what the recipe reads, and at what held-out positives were given.
    read = measured.only(*needed(runner.recipe.requires), "p_heldout")
    runner.fit(read.map(with_probabilities), dev)
    is_new = among(corpus.document_id, new_documents.document_id)
    return map_blocks(engine, partial(_selected, runner, is_new), measured, "selecting")


def _selected(runner: Runner, is_new: Bools, block: Candidates) -> Candidates:
    """Apply a fitted recipe to a block."""
    block = with_probabilities(block)
    return runner.apply(block.rejected("new document", is_new[block.documents], NEW))


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
    """Write the selection out as training rows with texts, weights, scores and the query's split.

    Raises
    ------
    AnmiError
        The recipe wants negatives and none is left, naming the step that rejected most. Where there
        is no training query, there is nothing to want them for.
    """
    from anmi.evaluation.diagnostics import Funnel, diagnose

    rows = rows_of(selection, corpus, queries, qrels, related_documents)
    if (queries.split == "train").any() and recipes.get(recipe).negatives and not rows.negatives:
        reason = _why_none(diagnose(selection, Funnel(1))[0])
        raise AnmiError(f'recipe "{recipe}" left no negative for any query: {reason}')
    return rows


def rows_of(
    selection: CandidateShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    related_documents: pd.DataFrame,
) -> TrainingRows:
    """Return the training rows of a selection, see :func:`anmi.selection.rows.training_rows`."""
    ids = corpus.document_id.tolist()
    numbers = dict(zip(ids, range(len(ids)), strict=True))
    selves = own_documents(queries, numbers).tolist()
    return training_rows(
        selection,
        ids,
        joined_texts(corpus),
        dict(zip(queries.query_id, queries.text, strict=True)),
        RelatedDocuments.from_table(related_documents, ids),
        {
            query_id: document
            for query_id, document in zip(queries.query_id, selves, strict=True)
            if document != PADDING
        },
        dict(zip(queries.query_id, queries.split, strict=True)),
        Positives(qrels, numbers),
    )


def _why_none(funnel: list[dict[str, Any]]) -> str:
    """Say what took the negatives."""
    whole = funnel[0]
    if not whole["queries"]:
        return "no training query was mined"
    if not whole["candidates"]:
        return (
            "no document besides the positives and their copies was found for any of them, so no"
            " step had anything to choose from; give the collection more documents that differ, or"
            " raise bm25.depth, dense.depth or dense.random where they are small"
        )
    rejecting = [step for step in funnel if step["kind"] in ("rejected", "uncertain", "promoted")]
    worst = max(rejecting, key=lambda step: step["candidates"], default={"candidates": 0})
    if not worst["candidates"]:
        return f"none of the {whole['candidates']} candidates was drawn; let the recipe draw some"
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
    training: TrainingParams,
) -> pd.DataFrame:
    """Make variants of positives that say something else, if training draws from mixed sources.

    Those of dev and test are never trained on; an evaluation holds them against the documents they
    were made from.
    """
    from anmi.retrieval.variants.build import VARIANT_COLUMNS, counts_of, edited, make_variants

    if merged_options(recipes.get(recipe), training).sources.kind != "mixed":
        return empty(*VARIANT_COLUMNS)
    ids = corpus.document_id.tolist()
    positives = qrels[(qrels.relevance > 0) & among(qrels.query_id, queries.query_id)]
    documents = np.flatnonzero(among(corpus.document_id, positives.document_id)).astype(np.int32)
    writer = None
    if selection.generator is not None:
        ask = Endpoint(selection.generator).ask
        writer = partial(edited, ask, selection.generator.max_characters)
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
    training_rows: pd.DataFrame,
    equivalents: pd.DataFrame,
    qrels: pd.DataFrame,
    queries: pd.DataFrame,
    info: dict[str, Any],
    fused_judge: dict[str, Any],
    recipe: str,
    recipes: RecipeBook,
    corpus: pd.DataFrame,
    marks: pd.DataFrame,
) -> dict[str, Any]:
    """Count what happened to the candidates, and how many negatives were in truth relevant.

    It reads ``equivalents``, so nothing that it returns goes back into mining; beside the count it
    says on which collections the judge's coefficients were fitted. Where a person marked pairs
    (``marks``, of the ``corpus``), it compares the marks with what the judges had said.
    """
    from anmi.evaluation import diagnostics

    negatives = recipes.get(recipe).negatives
    labelled = training_rows[training_rows.origin == "qrels"]
    source_of = values_by_id(queries, "query_id", "source", info["collection"])
    document_ids = corpus.document_id.tolist()
    ranges = diagnostics.ranges(selection, diagnostics.SCORE_COLUMNS)
    measures: dict[str, Any] = {
        "distributions": diagnostics.Distributions(ranges),
        "by_source": diagnostics.BySource(training_rows, source_of, info["collection"]),
        "origins": diagnostics.Origins(),
        "funnel": diagnostics.Funnel(negatives),
        "expected": diagnostics.Expected(fused_judge),
        "dense": diagnostics.Gap("dense"),
        "elo": diagnostics.Gap("elo"),
        "by_nearness": diagnostics.RelevanceByNearness(equivalents, document_ids),
    }
    if len(marks):
        measures["marked"] = diagnostics.AgainstMarks(marks, document_ids)
    results = diagnostics.diagnose(selection, *measures.values())
    measured: dict[str, Any] = dict(zip(measures, results, strict=True))
    measured["gaps"] = {name: measured.pop(name) for name in ("dense", "elo")}
    measured.setdefault("marked", None)
    _log_measured(measured)
    false_negatives = None
    if negatives:
        false_negatives = _false_negatives(labelled, equivalents, qrels, fused_judge)
    is_full = labelled.negative_ids.map(len) >= negatives
    return {
        "recipe": recipe,
        "rows": len(training_rows),
        "negatives_wanted": negatives,
        "coverage": float(is_full.mean()) if len(labelled) else 0.0,
        "promoted": int((training_rows.origin == "promoted").sum()),
        "false_negatives": false_negatives,
        **measured,
    }


def _false_negatives(
    labelled: pd.DataFrame,
    equivalents: pd.DataFrame,
    qrels: pd.DataFrame,
    fused_judge: dict[str, Any],
) -> dict[str, Any] | None:
    """Return how many selected negatives are relevant, None where the truth is not known."""
    from anmi.evaluation import diagnostics

    if equivalents.empty:
        return None
    query_rows = labelled.drop_duplicates("query_id")
    counts = diagnostics.false_negatives(query_rows, equivalents, qrels)
    return counts | {"of": "selected", "judge": provenance(fused_judge)}


def _log_measured(measured: dict[str, Any]) -> None:
    from anmi.report.console import expected_sentence

    if marked := measured["marked"]:
        _LOG.info(
            "Against %d marks, %d of them relevant: Brier score %.3f of what the judges said",
            marked["relevant"] + marked["not_relevant"],
            marked["relevant"],
            marked["brier"],
        )
    if sentence := expected_sentence(measured["expected"]):
        level = logging.WARNING if measured["expected"]["warning"] else logging.INFO
        _LOG.log(level, "%s", sentence)
