"""Adding a judged probability of relevance to candidates."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from anmi import seeds
from anmi.candidates import GRADE, MARKED, PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.calibration import Platt, cross_fitted, reliability
from anmi.judging.cross_encoder import (
    CrossEncoderOptions,
    TrainedCrossEncoder,
    fold_of,
    normalised,
    training_pairs,
)
from anmi.judging.judgments import Judgments, RawScores
from anmi.judging.pointwise import CrossEncoderJudge, PointwiseJudge, join
from anmi.store import Store

log = logging.getLogger(__name__)
_Scorer = Callable[[Sequence[str], Store, "tqdm[Any] | None"], NDArray[np.float32]]


@dataclass
class Judge:
    """A pointwise judge – by default cross-fitted cross-encoders – and its calibration.

    Parameters
    ----------
    options
        Which judge, and how it is made.
    depth
        Candidates judged per query, in the block's order (best by fused rank first).
    store
        Cache of judgments.
    models
        Folder of trained cross-encoders.
    query_texts, document_texts
        Texts by query id and by document index.
    seed
        Of the run.

    Attributes
    ----------
    judges, calibrators
        By fold: what scores the fold's queries, and its calibration on the queries of all other folds.
    judgments
        What was found, once fitted.
    """

    options: CrossEncoderOptions
    depth: int
    store: Store
    models: Path
    query_texts: dict[str, str]
    document_texts: Sequence[str]
    seed: int
    judges: list[PointwiseJudge] = field(default_factory=list)
    calibrators: dict[int, Platt] = field(default_factory=dict)
    judgments: Judgments | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    def fold(self, block: Candidates) -> NDArray[np.int64]:
        """Return the fold of each row of a block, [Q]."""
        return fold_of([self.query_texts[str(q)] for q in block.query_ids], self.options.folds, self.seed)

    def fit(self, shards: CandidateShards) -> Judgments:
        """Prepare the judges (trained when first needed), score all shards and fit the calibration.

        Returns
        -------
        Judgments
            What was found, ready to be added to the shards.

        Raises
        ------
        AnmiError
            Too few queries for the folds, or a judge whose scores cannot be used or calibrated.
        """
        total = self._pairs(shards.only())
        self.judges = self._made(self.options, shards)
        judged = self._collect(shards.only(), [judge.score for judge in self.judges], "judging", total)
        # Every judged pair counts once, so a probability starts from the share of positives in the pool; unlabelled
        # candidates count as not relevant, which makes it an underestimate where many of them are.
        scores, labels, folds = judged.pairs()
        probability, self.calibrators = cross_fitted(scores, labels, folds)
        self.judgments = Judgments(judged, self.calibrators)
        self._summarise(scores, labels, probability)
        return self.judgments

    def _to_judge(self, block: Candidates) -> int:
        """Count the pairs of a block that are judged."""
        return int(np.minimum(block.filled.sum(axis=1), self.depth).sum() + (block.positives != PADDING).sum())

    def _pairs(self, shards: CandidateShards) -> int:
        """Count the pairs to be judged, and check that there are queries for the folds."""
        texts, total = set[str](), 0
        for block in shards:
            texts |= {normalised(self.query_texts[str(query)]) for query in block.query_ids}
            total += self._to_judge(block)
        folds = self.options.folds
        if len(texts) < folds or len(set(fold_of(sorted(texts), folds, self.seed).tolist())) < 2:
            raise AnmiError(
                f"the cross-encoder is cross-fitted over {folds} folds and there are {len(texts)} queries of different "
                "text, too few; lower denoising.cross_encoder.folds or give more training queries"
            )
        return total

    def _made(self, options: CrossEncoderOptions, shards: CandidateShards) -> list[PointwiseJudge]:
        """One judge per fold; a ready-made one is the same for all."""
        if not options.trained:
            return [CrossEncoderJudge(options)] * self.options.folds
        examples = pd.concat([self._examples(block) for block in shards], ignore_index=True)
        pairs = [training_pairs(examples, fold, options, self.seed) for fold in range(self.options.folds)]
        return [TrainedCrossEncoder(options, self.models, each, self.seed) for each in pairs]

    def _examples(self, block: Candidates) -> pd.DataFrame:
        """Pairs of a block: positives, what a language model read (its chance as label), and undoubted candidates."""
        fold = self.fold(block)
        known = block.positives != PADDING
        clean = block.filled & ~self._doubtful(block)
        clean[:, self.depth :] = False
        draws = seeds.uniform(self.seed, "teacher/negatives", list(block.query_ids), block.documents)
        wanted = known.sum(axis=1, keepdims=True) * self.options.negatives
        order = np.argsort(np.where(clean, draws, 2.0), axis=1)
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
        read = block.filled & np.isfinite(block.columns.get(GRADE, np.nan))
        taken = clean & (place < wanted) & ~read
        chance = block.columns.get("p_evidence", np.zeros(block.documents.shape))
        ones, zeros = np.ones(block.positives.shape), np.zeros(block.documents.shape)
        parts = [
            (known, block.positives, ones), (taken, block.documents, zeros), (read, block.documents, chance),
        ]  # fmt: skip
        tables = [
            pd.DataFrame({
                "row": block.query_ids[row],
                "query": [self.query_texts[str(q)] for q in block.query_ids[row]],
                "document": [self.document_texts[d] for d in documents[row, slot]],
                "label": labels[row, slot],
                "fold": fold[row],
            })
            for (row, slot), documents, labels in ((np.nonzero(mask), ids, values) for mask, ids, values in parts)
        ]  # fmt: skip
        return pd.concat(tables, ignore_index=True)

    def _doubtful(self, block: Candidates) -> NDArray[np.bool_]:
        """True where a candidate may well be relevant, [Q, M]: by other evidence, or where there is none by likeness.

        The likeness rule is weak: what it calls doubtful is what looks like the positive to the encoder that mined.
        """
        known = block.positives != PADDING
        lowest = np.nanmin(np.where(known, block.positive_columns["dense"], np.nan), axis=1, keepdims=True)
        ceiling = lowest - np.abs(lowest) * (1 - self.options.doubtful_ratio)
        doubtful: NDArray[np.bool_] = ~(block.columns["dense"] < ceiling)
        evidence = block.columns.get("p_evidence")
        if evidence is not None:
            doubtful = np.where(np.isfinite(evidence), evidence >= self.options.doubtful_probability, doubtful)
        # What a person marked as not relevant is not doubtful, however it looks.
        return doubtful & (block.columns[MARKED] != 0) if MARKED in block.columns else doubtful

    def _scores(
        self, block: Candidates, scorers: Sequence[_Scorer], bar: tqdm[Any] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Raw scores of a block's candidates [Q, M] and positives [Q, P]; NaN where not judged."""
        fold = self.fold(block)
        judged = block.filled.copy()
        judged[:, self.depth :] = False
        results = []
        for documents, mask in ((block.documents, judged), (block.positives, block.positives != PADDING)):
            scores = np.full(documents.shape, np.nan, np.float32)
            for number, score in enumerate(scorers):
                row, slot = np.nonzero(mask & (fold == number)[:, None])
                ids, chosen = block.query_ids[row], documents[row, slot]
                texts = [
                    join(self.query_texts[str(q)], self.document_texts[d]) for q, d in zip(ids, chosen, strict=True)
                ]
                scores[row, slot] = score(texts, self.store, bar)
            results.append(scores)
        return results[0], results[1]

    def _collect(self, shards: CandidateShards, scorers: Sequence[_Scorer], description: str, total: int) -> RawScores:
        """Raw scores of all queries."""
        parts = []
        with tqdm(total=total, desc=description, unit="pair", delay=2, disable=None) as bar:
            for block in shards:
                parts.append(RawScores(block.query_ids, self.fold(block), *self._scores(block, scorers, bar)))
        return RawScores.concatenate(parts, self.depth)

    def _summarise(self, raw: NDArray[Any], label: NDArray[Any], probability: NDArray[np.float64]) -> None:
        from sklearn.metrics import roc_auc_score

        auc = float(roc_auc_score(label, raw))
        if auc <= 0.5:
            log.warning(
                "cross-encoder: higher scores do not mean more relevant (AUC %.2f); its judgments say little", auc
            )
        self.summary |= {
            "options": json.loads(self.options.model_dump_json()),
            "folds": [judge.describe() for judge in self.judges],
            "judged_pairs": len(raw),
            "auc_positive_against_candidates": auc,
            "calibration": [asdict(self.calibrators[fold]) for fold in sorted(self.calibrators)],
            "reliability": reliability(probability, label),
        }

    def __call__(self, block: Candidates) -> Candidates:
        """Return a block of fitted queries with what the judge says; see :class:`Judgments`."""
        if self.judgments is None:
            raise AnmiError("the judge was not fitted")
        return self.judgments(block)
