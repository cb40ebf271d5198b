"""Adding a judged probability of relevance to candidates."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax
from tqdm import tqdm

from anmi import seeds
from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.calibration import Calibrator, cross_fitted, fit_platt, reliability
from anmi.judging.cascade import Cascade
from anmi.judging.pointwise import PointwiseJudge, join, load_pointwise
from anmi.judging.teacher import (
    ConfirmOptions,
    Teacher,
    TeacherOptions,
    TrainedOptions,
    fold_of,
    normalised,
    training_pairs,
)
from anmi.store import Store

log = logging.getLogger(__name__)
_Judged = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
_Scorer = Callable[[Sequence[str], Store, "tqdm[Any] | None"], NDArray[np.float32]]


def soft_labels(
    scores_positive: NDArray[Any], scores_candidates: NDArray[Any], temperature: float = 0.1
) -> NDArray[np.float64]:
    """Distribution over (positives, candidates) to train towards with a KL divergence (RocketQA v2's distillation).

    Parameters
    ----------
    scores_positive, scores_candidates
        [Q, P] and [Q, M]; NaN is missing and gets no mass. The default temperature is made for scores in [0, 1].
    temperature
        Of the softmax; lower is nearer to the best alone.

    Returns
    -------
    numpy.ndarray
        [Q, P + M], rows sum to 1; a row without any score is all 0.

    Examples
    --------
    >>> soft_labels(np.array([[0.9]]), np.array([[0.9, np.nan]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    if temperature <= 0:
        raise AnmiError(f"soft labels need a temperature above 0, not {temperature}")
    scores = np.concatenate([scores_positive, scores_candidates], axis=1).astype(np.float64)
    known = np.isfinite(scores)
    # −1e300 instead of −∞, for which a row without a score would be 0/0.
    labels = softmax(np.where(known, scores / temperature, -1e300), axis=1)
    return np.where(known, labels, 0.0)


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
        Folder of trained teachers.
    query_texts, document_texts
        Texts by query id and by document index.
    seed
        Of the run.
    kept
        Fingerprints of an earlier run's teachers to judge by, one per fold; without any they are trained.

    Attributes
    ----------
    judges, calibrators
        By fold: what scores the fold's queries, and its calibration on the queries of all other folds.
    """

    options: TeacherOptions
    depth: int
    store: Store
    models: Path
    query_texts: dict[str, str]
    document_texts: Sequence[str]
    seed: int
    kept: Sequence[str] = ()
    judges: list[PointwiseJudge] = field(default_factory=list)
    calibrators: dict[int, Calibrator] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)

    def fold(self, block: Candidates) -> NDArray[np.int64]:
        """Return the fold of each row of a block, [Q]."""
        return fold_of([self.query_texts[str(q)] for q in block.query_ids], self.options.folds, self.seed)

    def fit(self, shards: CandidateShards) -> None:
        """Prepare the judges (trained when first needed), score all shards and fit the calibration.

        Raises
        ------
        AnmiError
            Too few queries for the folds, or a judge whose scores cannot be used or calibrated.
        """
        self._check_folds(shards)
        self.judges = self._made(self.options, shards)
        judged = self._collect(shards, [judge.score for judge in self.judges], "judging")
        if self.options.confirm is not None:
            judged = self._confirm(shards, self.options.confirm, judged)
        # Every judged pair counts once, so a probability starts from the share of positives in the pool; unlabelled
        # candidates count as not relevant, which makes it an underestimate where many of them are.
        probability, self.calibrators = cross_fitted(*judged, method=self.options.calibration)
        self._summarise(*judged[:2], probability)

    def _check_folds(self, shards: CandidateShards) -> None:
        texts = {normalised(self.query_texts[str(query)]) for block in shards for query in block.query_ids}
        folds = self.options.folds
        if len(texts) < folds or len(set(fold_of(sorted(texts), folds, self.seed).tolist())) < 2:
            raise AnmiError(
                f"the teacher is cross-fitted over {folds} folds and there are {len(texts)} queries of different text, "
                "too few; lower denoising.teacher.folds or give more training queries"
            )

    def _made(self, options: TrainedOptions, shards: CandidateShards) -> list[PointwiseJudge]:
        """One judge per fold; a ready-made one is the same for all."""
        if options is self.options and self.kept:
            return [Teacher.kept(options, self.models, each, fold) for fold, each in enumerate(self.kept)]
        if not options.trained:
            return [load_pointwise(options, self.models)] * self.options.folds
        examples = pd.concat([self._examples(block) for block in shards], ignore_index=True)
        pairs = [training_pairs(examples, fold, options, self.seed) for fold in range(self.options.folds)]
        return [Teacher(options, self.models, each, self.seed) for each in pairs]

    def _examples(self, block: Candidates) -> pd.DataFrame:
        """Labelled pairs of a block: every positive, and candidates that are not doubtful."""
        fold = self.fold(block)
        known = block.positives != PADDING
        clean = block.filled & ~self._doubtful(block)
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

    def _doubtful(self, block: Candidates) -> NDArray[np.bool_]:
        """True where a candidate may well be relevant, [Q, M]: by other evidence, or where there is none by likeness.

        The likeness rule is weak: what it calls doubtful is what looks like the positive to the encoder that mined.
        """
        known = block.positives != PADDING
        lowest = np.nanmin(np.where(known, block.positive_columns["dense"], np.nan), axis=1, keepdims=True)
        ceiling = lowest - np.abs(lowest) * (1 - self.options.doubtful_ratio)
        alike: NDArray[np.bool_] = ~(block.columns["dense"] < ceiling)
        evidence = block.columns.get("p_evidence")
        if evidence is None:
            return alike
        return np.where(np.isfinite(evidence), evidence >= self.options.doubtful_probability, alike)

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

    def _collect(self, shards: CandidateShards, scorers: Sequence[_Scorer], description: str) -> _Judged:
        """Raw scores, labels and folds of all judged pairs, each [n]; positives are labelled 1, candidates 0."""
        scores, labels, folds = [], [], []
        total = sum(int(np.minimum(b.filled.sum(1), self.depth).sum() + (b.positives >= 0).sum()) for b in shards)
        with tqdm(total=total, desc=description, unit="pair", delay=2) as bar:
            for block in shards:
                fold = self.fold(block)
                for values, tag in zip(self._scores(block, scorers, bar), (0, 1), strict=True):
                    row, slot = np.nonzero(np.isfinite(values))
                    scores.append(values[row, slot])
                    labels.append(np.full(len(row), tag))
                    folds.append(fold[row])
        return np.concatenate(scores), np.concatenate(labels), np.concatenate(folds)

    def _confirm(self, shards: CandidateShards, options: ConfirmOptions, judged: _Judged) -> _Judged:
        """Put a second judge behind the first, of which all is given, and collect what both say together."""
        raw, label, fold = judged
        calibrations = [fit_platt(raw[fold != number], label[fold != number]) for number in range(self.options.folds)]
        parts = zip(self.judges, calibrations, self._made(options, shards), strict=True)
        cascades = [Cascade(*each, options.threshold, options.band) for each in parts]
        raw, label, fold = self._collect(shards, [cascade.confirm for cascade in cascades], "confirming")
        for number, cascade in enumerate(cascades):
            others = fold != number
            if len(np.unique(label[others])) > 1:
                cascade.confirmation = fit_platt(raw[others], label[others])
            elif not others.all():
                log.warning(
                    "Near the threshold there are %d pairs, all of one kind, to calibrate the second judge on, so the "
                    "first one decides; widen denoising.teacher.confirm.band",
                    int(others.sum()),
                )
        self.judges = [*cascades]
        judged = self._collect(shards, [cascade.score for cascade in cascades], "judging")
        self.summary["confirmed_pairs"] = sum(cascade.confirmed for cascade in cascades)
        log.info("The second judge decided %d of %d pairs", self.summary["confirmed_pairs"], len(judged[0]))
        return judged

    def _summarise(self, raw: NDArray[Any], label: NDArray[Any], probability: NDArray[np.float64]) -> None:
        from sklearn.metrics import roc_auc_score

        auc = float(roc_auc_score(label, raw))
        if auc <= 0.5:
            log.warning("teacher: higher scores do not mean more relevant (AUC %.2f); its judgments say little", auc)
        self.summary |= {
            "options": json.loads(self.options.model_dump_json()),
            "folds": [judge.describe() for judge in self.judges],
            "judged_pairs": len(raw),
            "auc_positive_against_candidates": auc,
            "calibration": [self.calibrators[fold].as_dict() for fold in sorted(self.calibrators)],
            "reliability": reliability(probability, label),
        }

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with what the judge says of candidates and positives.

        ``cross`` is its raw score, ``p_cross`` the calibrated probability, and ``soft_label`` the row's softmax of the
        probabilities over its first positive and its judged candidates (see :func:`soft_labels`; raw scores have no
        common scale, and at its temperature logits would leave all the mass to the best).
        """
        if not self.calibrators:
            raise AnmiError("the judge was not fitted")
        fold = self.fold(block)
        scored = self._scores(block, [judge.score for judge in self.judges], None)
        columns, positive_columns = ({"cross": scores} for scores in scored)
        for target in (columns, positive_columns):
            probability = np.full(target["cross"].shape, np.nan)
            for number, calibrator in self.calibrators.items():
                probability[fold == number] = calibrator(target["cross"][fold == number])
            target["p_cross"] = probability.astype(np.float32)
        own, others = positive_columns["p_cross"], columns["p_cross"]
        labels = soft_labels(own[:, :1], others).astype(np.float32)
        positive_columns["soft_label"] = np.full(own.shape, np.nan, np.float32)
        positive_columns["soft_label"][:, :1] = np.where(np.isfinite(own[:, :1]), labels[:, :1], np.nan)
        columns["soft_label"] = np.where(np.isfinite(others), labels[:, 1:], np.nan)
        return block.with_columns(columns, positive_columns)
