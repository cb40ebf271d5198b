"""Adding a judged probability of relevance to candidates."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from anmi import seeds
from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.calibration import Platt, fit_platt, reliability
from anmi.judging.teacher import Teacher, TeacherOptions, fold_of, join, settings_json, training_pairs
from anmi.store import Store

log = logging.getLogger(__name__)


@dataclass
class Judge:
    """Cross-fitted cross-encoders and their calibration.

    Parameters
    ----------
    options
        How the cross-encoder is made.
    depth
        Candidates judged per query, in the block's order (best by fused rank first).
    store
        Cache of judgments.
    models
        Folder of trained teachers.
    query_texts, document_texts
        Texts by query id and by document index.
    seed
        Of the run.
    """

    options: TeacherOptions
    depth: int
    store: Store
    models: Path
    query_texts: dict[str, str]
    document_texts: Sequence[str]
    seed: int
    teachers: list[Teacher] = field(default_factory=list)
    calibrators: list[Platt] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def _folds(self) -> int:
        return self.options.folds if self.options.base == "minilm" else 1

    def fold(self, block: Candidates) -> NDArray[np.int64]:
        """Return the fold of each row of a block, [Q]."""
        return fold_of([self.query_texts[str(q)] for q in block.query_ids], self._folds, self.seed)

    def fit(self, shards: CandidateShards) -> None:
        """Prepare the teachers (trained when first needed), score all shards and fit the calibration.

        Raises
        ------
        AnmiError
            Too few queries for the folds, or a teacher whose scores cannot be calibrated.
        """
        if self.options.base == "minilm":
            examples = pd.concat([self._examples(block) for block in shards], ignore_index=True)
            pairs = [training_pairs(examples, fold, self.options, self.seed) for fold in range(self._folds)]
            self.teachers = [Teacher(self.options, self.models, each, self.seed) for each in pairs]
        else:
            self.teachers = [Teacher(self.options, self.models, None, self.seed)]
        self._calibrate(shards)

    def _examples(self, block: Candidates) -> pd.DataFrame:
        """Labelled pairs of a block: every positive, and candidates that are not doubtful."""
        fold = self.fold(block)
        known = block.positives != PADDING
        lowest = np.nanmin(np.where(known, block.positive_columns["dense"], np.nan), axis=1, keepdims=True)
        ceiling = lowest - np.abs(lowest) * (1 - self.options.doubtful_ratio)
        clean = block.filled & (block.columns["dense"] < ceiling)
        clean[:, self.depth :] = False
        draws = seeds.uniform(self.seed, "teacher/negatives", list(block.query_ids), block.documents)
        wanted = known.sum(axis=1, keepdims=True) * self.options.negatives
        order = np.argsort(np.where(clean, draws, 2.0), axis=1)
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
        taken = clean & (place < wanted)
        parts = [(known, block.positives, 1), (taken, block.documents, 0)]
        tables = [
            pd.DataFrame({
                "row": block.query_ids[row],
                "query": [self.query_texts[str(q)] for q in block.query_ids[row]],
                "document": [self.document_texts[d] for d in documents[row, slot]],
                "label": label,
                "fold": fold[row],
            })
            for (row, slot), documents, label in ((np.nonzero(mask), values, tag) for mask, values, tag in parts)
        ]  # fmt: skip
        return pd.concat(tables, ignore_index=True)

    def _scores(self, block: Candidates, bar: tqdm[Any] | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Raw scores of a block's candidates [Q, M] and positives [Q, P]; NaN where not judged."""
        fold = self.fold(block)
        judged = block.filled.copy()
        judged[:, self.depth :] = False
        results = []
        for documents, mask in ((block.documents, judged), (block.positives, block.positives != PADDING)):
            scores = np.full(documents.shape, np.nan, np.float32)
            for number, teacher in enumerate(self.teachers):
                row, slot = np.nonzero(mask & (fold == number)[:, None])
                ids, chosen = block.query_ids[row], documents[row, slot]
                texts = [
                    join(self.query_texts[str(q)], self.document_texts[d]) for q, d in zip(ids, chosen, strict=True)
                ]
                scores[row, slot] = teacher.score(texts, self.store, bar)
            results.append(scores)
        return results[0], results[1]

    def _calibrate(self, shards: CandidateShards) -> None:
        """Fit P(labelled relevant | score) among the judged pairs of the other folds.

        Every judged pair counts once, so the probability starts from the share of positives in the pool; unlabelled
        candidates count as not relevant, which makes it an underestimate where many of them are.
        """
        scores, labels, folds = [], [], []
        total = sum(int(np.minimum(b.filled.sum(1), self.depth).sum() + (b.positives >= 0).sum()) for b in shards)
        with tqdm(total=total, desc="judging", unit="pair", delay=2) as bar:
            for block in shards:
                fold = self.fold(block)
                for values, tag in zip(self._scores(block, bar), (0, 1), strict=True):
                    row, slot = np.nonzero(np.isfinite(values))
                    scores.append(values[row, slot])
                    labels.append(np.full(len(row), tag))
                    folds.append(fold[row])
        raw, label, fold = (np.concatenate(parts) for parts in (scores, labels, folds))
        self.calibrators = [
            fit_platt(raw[other], label[other])
            for other in (fold != number if self._folds > 1 else fold == number for number in range(self._folds))
        ]
        self._summarise(raw, label, fold)

    def _summarise(self, raw: NDArray[Any], label: NDArray[Any], fold: NDArray[Any]) -> None:
        from sklearn.metrics import roc_auc_score

        probability = np.zeros(len(raw))
        for number, calibrator in enumerate(self.calibrators):
            probability[fold == number] = calibrator(raw[fold == number])
        auc = float(roc_auc_score(label, raw))
        if any(calibrator.slope <= 0 for calibrator in self.calibrators):
            log.warning("teacher: higher scores do not mean more relevant (AUC %.2f); its judgments say little", auc)
        self.summary = settings_json(self.teachers) | {
            "judged_pairs": len(raw),
            "auc_positive_against_candidates": auc,
            "calibration": [calibrator.as_dict() for calibrator in self.calibrators],
            "reliability": reliability(probability, label),
        }

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with ``cross`` (raw score) and ``p_cross`` (probability), of candidates and positives."""
        if not self.calibrators:
            raise AnmiError("the judge was not fitted")
        fold = self.fold(block)
        columns, positive_columns = ({"cross": scores} for scores in self._scores(block, None))
        for target in (columns, positive_columns):
            probability = np.full(target["cross"].shape, np.nan)
            for number, calibrator in enumerate(self.calibrators):
                probability[fold == number] = calibrator(target["cross"][fold == number])
            target["p_cross"] = probability.astype(np.float32)
        return block.with_columns(columns, positive_columns)
