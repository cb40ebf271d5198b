"""Nodes of ingestion."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from anmi.candidates import CandidateShards
from anmi.corpus.knowledge import Knowledge
from anmi.pipelines.bm25.params import BM25Params
from anmi.pipelines.consistency.params import ConsistencyParams
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.pipelines.dense.params import DenseParams
from anmi.pipelines.elo.params import EloParams
from anmi.pipelines.ingestion.params import IngestionParams
from anmi.selection.plan import MiningRecord
from anmi.selection.recipe import RecipeBook
from anmi.store import Store, digest

log = logging.getLogger(__name__)


def ingest(collection: str, params: IngestionParams, seed: int, refit: bool = False) -> dict[str, Any]:
    """Read, check and split the collection named by one string, and find near-duplicates and siblings in it.

    For a refit dev queries are mined, too; where a cap leaves a share of the training queries, the same share of them.
    """
    from anmi.corpus.marks import files_of_marks, read_log, standing, with_marks
    from anmi.corpus.mined import with_mined
    from anmi.corpus.quarantine import counts_by_reason
    from anmi.corpus.raw import FieldNames
    from anmi.corpus.related import COPY, find_related
    from anmi.corpus.sources import fingerprint, load_collection

    cap = params.api_docs_queries if collection == "api_docs" else 0
    caps = [value for value in (cap, params.max_queries) if value]
    found = load_collection(
        collection,
        seed=seed,
        subset=min(caps) if caps else None,
        max_quarantine=params.max_quarantine,
        dev_share=params.dev_share,
        test_share=params.test_share,
        language=params.language,
        fields=FieldNames(params.id_column, params.title_column, params.text_column),
    )
    log_of_marks = [mark for path in files_of_marks(params.marks, collection) for mark in read_log(path)]
    found, marks = with_marks(found, standing(log_of_marks))
    related = find_related(
        found.corpus,
        found.forms,
        found.duplicates,
        similarity=params.near_similarity,
        name_share=params.name_share,
        least_words=params.near_least_words,
        sibling_keys=params.sibling_keys,
    )
    counts = found.queries.groupby("split").size().to_dict()
    info = {
        "collection": found.name,
        "language": found.language,
        "fingerprint": fingerprint(found),
        "documents": len(found.corpus),
        "queries": {str(split): int(count) for split, count in counts.items()},
        "quarantined": counts_by_reason(found.quarantine),
        "duplicates": len(found.duplicates),
        "related": {str(kind): int(count) for kind, count in related.groupby("kind").size().items() if kind != COPY},
        "equivalents": len(found.equivalents),
        "entities": len(found.entities),
        "facts": len(found.facts),
        "notes": found.notes,
    }
    return {
        "corpus": found.corpus,
        "queries": with_mined(found.queries, found.subset_share if refit else 0.0, seed),
        "qrels": found.qrels,
        "marks": marks,
        "equivalents": found.equivalents,
        "knowledge": Knowledge(found.entities, found.graph, found.facts),
        "related_documents": related,
        "quarantine": found.quarantine,
        "collection_info": info,
    }


def plan_mining(
    *,
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    qrels: pd.DataFrame,
    knowledge: Knowledge,
    update: bool,
    keep_judges: bool,
    collection: str,
    encoder: str,
    recipe: str,
    recipes: RecipeBook,
    ingestion: IngestionParams,
    bm25: BM25Params,
    consistency: ConsistencyParams,
    dense: DenseParams,
    denoising: DenoisingParams,
    elo: EloParams,
    seed: int,
    store: Store,
    earlier_mining_record: MiningRecord | None,
    earlier_selection: CandidateShards | None,
    marks: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Note what the collection consists of, and decide which queries are to be mined."""
    from anmi.corpus.contents import code_digest, models_in, with_effect
    from anmi.corpus.difference import Difference, contents_of
    from anmi.selection.kept_rows import losers, places_of
    from anmi.selection.plan import MiningPlan, plan_mining

    # What is known not to be relevant is a label as well: a query of which it changes is mined again.
    contents = contents_of(corpus, queries, qrels if marks is None else pd.concat([qrels, marks[marks.relevance == 0]]))
    stages = {"bm25": bm25, "consistency": consistency, "dense": dense, "denoising": denoising, "elo": elo}
    chosen = {
        **{name: params.model_dump(mode="json") for name, params in stages.items()},
        "ingestion": ingestion.model_dump(mode="json", exclude={"most_changed", "marks"}),
        "recipe": recipes.get(recipe).model_dump(mode="json", exclude={"training", "description", "source"}),
        "rest": [collection, encoder, seed],
    }
    # Any fact may be evidence for any query, so a graph that changed counts as a setting.
    facts = digest("graph", knowledge.graph.to_csv(index=False)).hex()
    models = models_in(chosen, Path.cwd())
    made_by = json.dumps([with_effect(chosen), models, facts], sort_keys=True, default=str)
    settings = digest("mining", made_by, code_digest()).hex()

    def lacking(earlier: MiningRecord) -> str:
        judges = earlier.fits["cross_encoder"]
        if earlier_selection is None:
            return "the selection of the last mining is not there any more"
        if denoising.cross_encoder.confirm is not None and judges.get("stack"):
            return "a cascade confirms what the cross-encoder says"
        if len(judges.get("calibration", ())) not in (0, denoising.cross_encoder.folds):
            return "a fold of the cross-encoder had no query, and so no calibration"
        names = [f"teacher-{fold['fingerprint']}" for fold in judges.get("folds", [])]
        lost = denoising.cross_encoder.trained and not all((store.path / "models" / name).is_dir() for name in names)
        return f"the cross-encoders are not in {store.path / 'models'} any more" if lost else ""

    def lost(earlier: MiningRecord, difference: Difference) -> Iterable[str]:
        gone = difference.documents.changed
        if earlier_selection is None or not (gone or difference.documents.removed):
            return []
        return losers(earlier_selection, places_of(earlier.documents, corpus.document_id.tolist(), gone))

    plan = MiningPlan(settings=settings)
    if update:
        plan = plan_mining(contents, settings, earlier_mining_record, ingestion.most_changed, lacking, lost)
        log.info("%s: %s", "Mining all" if plan.mines_all else "Mining what changed", plan.why)
    if keep_judges and earlier_mining_record is not None:
        plan = replace(plan, judges=earlier_mining_record.fits["cross_encoder"])
    return contents, plan.as_dict()
