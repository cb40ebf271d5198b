"""These nodes train once more on what was held out, or hand on what was measured."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from anmi.adaptation.pseudo_tests import labels_used
from anmi.candidates import CandidateShards
from anmi.corpus.related import count_labelled, documents_of
from anmi.corpus.texts import normalised
from anmi.files import Linked
from anmi.pipelines.dense.nodes import cut_from
from anmi.pipelines.evaluation.nodes import average_systems, score_runs
from anmi.pipelines.evaluation.search import (
    ABOUT_THE_FIT,
    deployed_search,
    queries_of_split,
    runs_of_parts,
)
from anmi.pipelines.params import DenseParams, EvaluationParams, TrainAgain
from anmi.pipelines.selection.nodes import rows_of
from anmi.pipelines.training.params import TrainingParams, merged_options, retrievers_of
from anmi.ragged import Int32s
from anmi.retrieval.bm25 import BM25Index
from anmi.retrieval.pool import Positives, RelatedDocuments, own_documents
from anmi.search import HybridSearch
from anmi.selection.recipe import RecipeBook
from anmi.selection.rows import not_mined, of_no_query
from anmi.training.parts import goes_by_dev

FINAL: Final = "final"
# A first training of more minutes is not made twice without being asked for.
_MINUTES: Final = 10
MEASURED: Final = "measured_"


def choose_to_train_again(
    *,
    final: TrainAgain,
    training_summary: Mapping[str, Any],
    metrics: pd.DataFrame,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    new_documents: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    training: TrainingParams,
    evaluation: EvaluationParams,
    seed: int,
) -> dict[str, Any]:
    """Return whether to train ``again``, and the ``sentence`` that says so.

    ``queries`` are the ids of the labelled dev queries that become training queries, ``alphas``
    what the first training chose by kind of retriever; ``measured`` says whether test queries
    measure what is trained.
    """
    summaries = [training_summary, training_summary.get("companion") or {}]
    minutes = sum(summary.get("seconds", 0.0) for summary in summaries) / 60
    options = merged_options(recipes.get(recipe), training)
    curricula = (retriever.curriculum for retriever in retrievers_of(options))
    # What a loss reads of candidates and positives was judged for training queries alone.
    released = queries[:0] if options.reads else labelled_dev(corpus, queries, qrels)
    _, released = labels_used(queries[:0], released, options.labels, seed)
    held_out = corpus.document_id.isin(new_documents.document_id).to_numpy()
    documents = len(set(documents_of(corpus)[held_out]))
    reason = ""
    if final == "never":
        reason = "final is never"
    elif any(goes_by_dev(curriculum) for curriculum in curricula):
        reason = "the curriculum goes by dev queries, which would be trained on"
    elif not documents and released.empty:
        reason = "nothing was held out that training could learn from"
    elif final == "auto" and minutes > _MINUTES:
        reason = (
            f"the first training took {minutes:.0f} minutes, and final=auto trains again below"
            f" {_MINUTES}"
        )
    has_tests = evaluation.split == "test" and count_labelled(queries, qrels, "test") > 0
    is_measured = has_tests and not (reason or metrics.empty)
    return {
        "again": not reason,
        "measured": is_measured,
        "sentence": _sentence(reason, documents, len(released), is_measured),
        "queries": released.query_id.tolist(),
        "alphas": {
            summary["options"]["retriever"]: summary["alpha"]
            for summary in summaries
            if summary.get("alpha") is not None
        },
    }


def _sentence(reason: str, documents: int, queries: int, is_measured: bool) -> str:
    if reason:
        return f"What is deployed is what was measured: {reason}."
    figures = (
        f'its figures are called "{FINAL}"; no document is new to it, and "unlabelled" means'
        " unlabelled in the first training"
        if is_measured
        else "no query is left that measures it"
    )
    return (
        "All figures are of the first training; what is deployed was trained once more, on"
        f" {documents:,} more documents and {queries:,} more labelled queries: {figures}."
    )


def labelled_dev(corpus: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Return the dev queries with a relevant document, but those with the text of a test query."""
    is_positive = (qrels.relevance > 0) & qrels.document_id.isin(corpus.document_id)
    tests = queries.text[queries.split == "test"].map(normalised)
    dev = queries[(queries.split == "dev") & queries.query_id.isin(qrels.query_id[is_positive])]
    return dev[~dev.text.map(normalised).isin(tests)]


def release_held_out(
    *,
    choice: Mapping[str, Any],
    selection: CandidateShards,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    new_documents: pd.DataFrame,
    pseudo_queries: pd.DataFrame,
    related_documents: pd.DataFrame,
    bm25_index: BM25Index,
    dense: DenseParams,
    seed: int,
) -> dict[str, Any]:
    """Return the inputs of a training that holds nothing out but test queries, by their names.

    Rows of dev queries have no negatives, since nothing was mined for them. All tables are without
    rows where nothing is trained again.
    """
    if not choice["again"]:
        selection = CandidateShards.of([])
        corpus, queries, qrels, related_documents, pseudo_queries = (
            table[:0] for table in (corpus, queries, qrels, related_documents, pseudo_queries)
        )
    released = queries[queries.query_id.isin(choice["queries"])].assign(split="train")
    queries = pd.concat([queries[queries.split != "dev"], released], ignore_index=True)
    if len(released):
        mined = selection
        positives = positives_of(
            released, corpus, qrels, related_documents, bm25_index, dense.positives, seed
        )
        block = next((block for block in selection if len(block)), of_no_query())
        unmined = not_mined(released.query_id.tolist(), positives, block)
        selection = CandidateShards(lambda: chain(mined.layers(), [(unmined,)]))
    return {
        "queries": queries,
        "new_documents": new_documents[:0],
        "pseudo_queries": pseudo_queries.assign(split="train"),
        "training_rows": rows_of(selection, corpus, queries, qrels, related_documents),
    }


def positives_of(
    queries: pd.DataFrame,
    corpus: pd.DataFrame,
    qrels: pd.DataFrame,
    related_documents: pd.DataFrame,
    bm25_index: BM25Index,
    most_positives: int,
    seed: int,
) -> Int32s:
    """Return the positives that retrieval would measure, int32 [Q, P], padded with -1."""
    from anmi.retrieval.retrieve import Queries, Retrieve

    ids = corpus.document_id.tolist()
    numbers = dict(zip(ids, range(len(ids)), strict=True))
    query_ids = queries.query_id.tolist()
    retrieve = Retrieve(
        bm25=bm25_index,
        vectors=None,
        approximate=None,
        related=RelatedDocuments.from_table(related_documents, ids),
        bm25_depth=1,
        dense_depth=0,
        random=0,
        seed=seed,
        measured=most_positives,
        passages=cut_from(corpus),
    )
    labelled = Positives(qrels, numbers).of(query_ids)
    selves = own_documents(queries, numbers)
    no_vectors = np.zeros((len(query_ids), 0), np.float32)
    texts = queries.text.tolist()
    return retrieve(Queries(query_ids, texts, labelled, selves, no_vectors)).positives


def if_trained_again(function: Callable[..., Any], *choice_names: str) -> Callable[..., Any]:
    """Return a node's function that hands on what was measured where nothing is trained again.

    What was measured are its inputs ``measured_OUTPUT``. ``choice_names`` are the arguments that
    the choice holds.
    """

    @wraps(function)
    def again_or_measured(*, choice: Mapping[str, Any], **inputs: Any) -> Any:
        measured = {
            name.removeprefix(MEASURED): inputs.pop(name)
            for name in list(inputs)
            if name.startswith(MEASURED)
        }
        if choice["again"]:
            return function(**inputs, **{name: choice[name] for name in choice_names})
        handed_on = {
            name: Linked(value) if isinstance(value, Path) else value
            for name, value in measured.items()
        }
        return handed_on if len(handed_on) > 1 else next(iter(handed_on.values()))

    # Kedro checks the names of the inputs by this signature, and a hook types the parameters.
    wrapper_parameters = inspect.signature(again_or_measured, follow_wrapped=False).parameters
    parameters = {
        "choice": wrapper_parameters["choice"],
        **inspect.signature(function).parameters,
        "inputs": wrapper_parameters["inputs"],
    }
    again_or_measured.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter for name, parameter in parameters.items() if name not in choice_names]
    )
    return again_or_measured


def build_search(
    choice: Mapping[str, Any],
    search_parts: HybridSearch,
    measured_search: HybridSearch,
    corpus: pd.DataFrame,
    dense: DenseParams,
) -> HybridSearch | Linked:
    """Return the search that is deployed: the parts and weights of the measured one."""
    if not choice["again"] and measured_search.folder is not None:
        return Linked(measured_search.folder)
    settings = measured_search.settings
    fusion = {name: settings[name] for name in ("weights", "method", "depth")}
    about = {name: settings[name] for name in ABOUT_THE_FIT}
    return deployed_search(search_parts, corpus, dense.index, fusion, about)


def measure_final(
    *,
    choice: Mapping[str, Any],
    search_index: HybridSearch,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    query_buckets: pd.DataFrame,
    info: Mapping[str, Any],
    encoder: str,
    params: EvaluationParams,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """Score the search that is deployed on test queries, as the systems of the evaluation.

    Without rows where it is what was measured, or no label of a test query measures it.
    """
    from anmi.search.fit import fused_run

    if not choice["measured"]:
        return {"query_metrics": query_buckets[:0], "metrics": pd.DataFrame()}
    split = queries_of_split(corpus, queries, qrels, None, params.split)
    settings = search_index.settings
    depth = params.depth_of(corpus)
    part_runs = runs_of_parts(search_index, split, max(depth, settings["depth"]))
    run = fused_run(part_runs, *split, settings, depth).assign(system=FINAL)
    scores = score_runs(run, corpus, queries, qrels, pseudo_queries=None, params=params)
    # Pseudo-queries measure nothing here: they are trained on.
    query_buckets = query_buckets[query_buckets.query_id.isin(scores.query_id)]
    rows = average_systems(scores, info, query_buckets, encoder, params=params, seed=seed)
    return {"query_metrics": scores, "metrics": rows}
