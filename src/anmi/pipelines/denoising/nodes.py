"""Nodes of denoising."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anmi.candidates import Candidates, CandidateShards
from anmi.corpus.difference import EVERYTHING, still_there
from anmi.engine import IN_PROCESS, EngineParams, map_blocks, running
from anmi.pipelines.denoising.params import DenoisingParams
from anmi.retrieval.bm25 import BM25Index
from anmi.selection.recipe import RecipeBook
from anmi.store import Store

log = logging.getLogger(__name__)
_OF_THE_TEACHER: Final = {"cross", "p_cross", "soft_label", "elo", "elo_se", "gap_se"}
_OF_EVIDENCE: Final = {
    "p_relevant", "p_evidence", "coverage", "match", "likeness", "likeness_terms", "containment", "contained", "facts",
}  # fmt: skip


def judge_by_evidence(
    candidates: CandidateShards,
    bm25_index: BM25Index,
    document_embeddings: NDArray[np.float32],
    encoder_info: dict[str, Any],
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    graph: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    params: DenoisingParams,
    seed: int,
    engine: EngineParams = IN_PROCESS,
    changes: Mapping[str, Any] = EVERYTHING,
    earlier_fused_judge: dict[str, Any] | None = None,
    info: Mapping[str, Any] = MappingProxyType({"collection": ""}),
) -> tuple[CandidateShards, dict[str, Any]]:
    """Gather the evidence and fuse it into ``p_evidence``, if the recipe reads any judgment.

    Coefficients are fitted on training queries; where rows of an earlier mining are kept, they are those of then.
    """
    if not recipes.get(recipe).requires & (_OF_EVIDENCE | _OF_THE_TEACHER):
        log.info("Recipe %s reads no judgment; candidates are passed on without evidence", recipe)
        return candidates, {"mode": "none"}
    from anmi.corpus.mined import mined_dev, of_train
    from anmi.corpus.texts import document_texts
    from anmi.judging.evidence import Material, Terms
    from anmi.judging.evidence.facts import facts_of
    from anmi.judging.fusing import FusedJudge

    material = Material(
        terms=Terms.build(document_texts(corpus), bm25_index.tokenize),
        query_texts=dict(zip(queries.query_id, queries.text, strict=True)),
        vectors=np.asarray(document_embeddings),
        facts=facts_of(corpus, graph),
    )
    judge = FusedJudge(params.fused, material, encoder_info["encoder"], seed, info["collection"])
    if changes["queries"] is None:
        judge.fit(of_train(candidates, queries))
    else:
        judge.restore(still_there(earlier_fused_judge, "fused_judge"))
    material.terms.prepare()
    total = judge.queries + len(mined_dev(queries)) if judge.queries else None
    judged = map_blocks(engine, judge, candidates, description="gathering evidence", total=total)
    return judged, judge.summary


def judge_candidates(
    evidence: CandidateShards,
    fused_judge: dict[str, Any],
    corpus: pd.DataFrame,
    queries: pd.DataFrame,
    recipe: str,
    recipes: RecipeBook,
    params: DenoisingParams,
    seed: int,
    store: Store,
    engine: EngineParams = IN_PROCESS,
    collection: str = "",
    earlier_teacher: dict[str, Any] | None = None,
    keep_judges: bool = False,
    changes: Mapping[str, Any] = EVERYTHING,
) -> tuple[CandidateShards, dict[str, Any]]:
    """Add the cross-encoder's judgment, if the recipe reads one, and the final ``p_relevant``.

    Everything is fitted on training queries; dev queries are judged by what was fitted on them.
    With ``keep_judges`` the cross-encoders of the run before are used where they fit, so only new pairs are judged.
    Where rows of an earlier mining are kept, all that was fitted is that of then.
    """
    if fused_judge["mode"] == "none":
        return evidence, {"judged_pairs": 0}
    if not recipes.get(recipe).requires & _OF_THE_TEACHER:
        log.info("Recipe %s asks no cross-encoder; the fused judge decides alone", recipe)
        return map_blocks(engine, _believed, evidence), {"judged_pairs": 0}
    from anmi.corpus.mined import mined_dev, of_dev, of_train
    from anmi.corpus.texts import document_texts
    from anmi.judging.denoise import Judge
    from anmi.judging.keeping import Fitted, kept, noted
    from anmi.judging.stacking import Stack, Stacked

    store.run = running(engine).ordered
    models, query_texts = store.path / "models", dict(zip(queries.query_id, queries.text, strict=True))
    fitted = Fitted.to(collection, params.teacher, seed, queries.text[queries.split == "train"])
    earlier, teachers = earlier_teacher or {}, list[str]()
    again = changes["queries"] is not None
    if again:
        earlier = still_there(earlier, "teacher")
        teachers = [str(fold["fingerprint"]) for fold in earlier["folds"]] if params.teacher.trained else []
    elif keep_judges and params.teacher.trained:
        teachers, reason = kept(earlier, fitted, params.teacher, models, params.most_new)
        log.info("teacher: %s", f"trained anew, since {reason}" if reason else "that of the last run is kept")
    judge = Judge(
        options=params.teacher,
        depth=params.depth,
        store=store,
        models=models,
        query_texts=query_texts,
        document_texts=document_texts(corpus),
        seed=seed,
        kept=teachers,
    )
    if again:
        judgments = judge.again(evidence, earlier["calibration"])
        judged = map_blocks(engine, Stacked(judgments, Stack(**earlier["stack"])), evidence)
        return judged, earlier | {"kept": True, "judged_pairs": judge.summary["judged_pairs"]}
    # What is fitted looks at a few of many columns.
    read = of_train(evidence.only("dense", "p_evidence", "p_heldout"), queries)
    judgments = judge.fit(read)
    stack = Stack.fit(read.map(judgments))
    if mined_dev(queries):
        judgments = judge.further(of_dev(evidence, queries))
    log.info(
        "teacher: weight %.2f beside the other evidence%s",
        stack.weight,
        "" if stack.hidden else ", since no positive can be hidden to fit one",
    )
    judged = map_blocks(engine, Stacked(judgments, stack), evidence)
    return judged, judge.summary | {
        "stack": stack.as_dict(),
        "kept": bool(teachers),
        "fitted": earlier["fitted"] if teachers else noted(fitted),
    }


def _believed(block: Candidates) -> Candidates:
    """Take the fused judge's probability as the final one."""
    columns = (block.columns, block.positive_columns)
    return block.with_columns(*({"p_relevant": values["p_evidence"]} for values in columns))
