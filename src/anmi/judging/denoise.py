"""A cross-encoder judges candidates, and its probability joins that of the fused judge."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from tqdm import tqdm

from anmi import seeds
from anmi.candidates import GRADE, MARKED, PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.calibration import Platt, cross_fitted, reliability
from anmi.judging.cross_encoder import (
    CrossEncoderJudge,
    CrossEncoderOptions,
    TrainedCrossEncoder,
    fold_of,
    join,
    normalised,
    training_pairs,
)
from anmi.judging.fused import combined, log_odds
from anmi.judging.llm import Read
from anmi.store import Store

_TEMPERATURE: Final = 0.1
# A calibrated judge weighs about 1; one that tells nothing would be fitted to noise without a bound.
_MOST: Final = 5.0
_LEAST: Final = 50
_TINY: Final = 1e-9
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
    judges: list[CrossEncoderJudge] = field(default_factory=list)
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

    def _made(self, options: CrossEncoderOptions, shards: CandidateShards) -> list[CrossEncoderJudge]:
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


def soft_labels(scores_positive: NDArray[Any], scores_candidates: NDArray[Any]) -> NDArray[np.float64]:
    """Distribution over (positives, candidates) to train towards with a KL divergence (RocketQA v2's distillation).

    Parameters
    ----------
    scores_positive, scores_candidates
        In [0, 1], for which the temperature of the softmax is made; [Q, P] and [Q, M]. NaN is missing and gets no mass.

    Returns
    -------
    numpy.ndarray
        [Q, P + M], rows sum to 1; a row without any score is all 0.

    Examples
    --------
    >>> soft_labels(np.array([[0.9]]), np.array([[0.9, np.nan]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    scores = np.concatenate([scores_positive, scores_candidates], axis=1).astype(np.float64)
    known = np.isfinite(scores)
    # −1e300 instead of −∞, for which a row without a score would be 0/0; such a row is all 0.
    return np.where(known, softmax(np.where(known, scores / _TEMPERATURE, -1e300), axis=1), 0.0)


@dataclass(frozen=True)
class RawScores:
    """A judge's scores of Q queries, each with the first candidates of its row and its positives.

    Attributes
    ----------
    query_ids
        [Q].
    folds
        By which of the cross-fitted judges each query was judged, int64 [Q].
    candidates, positives
        float32 [Q, M] and [Q, P]; NaN where not judged.
    """

    query_ids: NDArray[np.str_]
    folds: NDArray[np.int64]
    candidates: NDArray[np.float32]
    positives: NDArray[np.float32]

    @staticmethod
    def concatenate(parts: Sequence[RawScores], depth: int) -> RawScores:
        """Put the scores of several blocks together, of no more than ``depth`` candidates each."""
        return RawScores(
            np.concatenate([part.query_ids for part in parts]),
            np.concatenate([part.folds for part in parts]),
            _stacked([part.candidates[:, :depth] for part in parts]),
            _stacked([part.positives for part in parts]),
        )

    def pairs(self) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """Scores, labels (1 of positives, 0 of candidates) and folds of the n judged pairs, each [n]."""
        parts = []
        for scores, label in ((self.candidates, 0), (self.positives, 1)):
            row, slot = np.nonzero(np.isfinite(scores))
            parts.append((scores[row, slot], np.full(len(row), label), self.folds[row]))
        scores, labels, folds = (np.concatenate(each) for each in zip(*parts, strict=True))
        return scores, labels, folds


class Judgments:
    """Adds what the judge said of its queries to blocks of them.

    ``cross`` is the raw score, ``p_cross`` the calibrated probability, and ``soft_label`` the row's softmax of the
    probabilities over its first positive and its judged candidates (see :func:`soft_labels`; raw scores have no common
    scale, and at its temperature logits would leave all the mass to the best).

    Parameters
    ----------
    raw
        Scores of the candidates and positives as they stand in the blocks.
    calibrators
        By fold.
    """

    def __init__(self, raw: RawScores, calibrators: Mapping[int, Platt]) -> None:
        self._order = np.argsort(raw.query_ids, kind="stable")
        self._query_ids = raw.query_ids[self._order]
        self.raw, self._calibrators = raw, dict(calibrators)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with its judgments.

        Raises
        ------
        AnmiError
            A query that was not judged.
        """
        row = self._rows(block.query_ids)
        fold = self.raw.folds[row]
        columns, positive_columns = (
            {"cross": _widened(scores[row], documents.shape[1])}
            for scores, documents in ((self.raw.candidates, block.documents), (self.raw.positives, block.positives))
        )
        for target in (columns, positive_columns):
            probability = np.full(target["cross"].shape, np.nan)
            for number, calibrator in self._calibrators.items():
                probability[fold == number] = calibrator(target["cross"][fold == number])
            target["p_cross"] = probability.astype(np.float32)
        own, others = positive_columns["p_cross"], columns["p_cross"]
        labels = soft_labels(own[:, :1], others).astype(np.float32)
        positive_columns["soft_label"] = np.full(own.shape, np.nan, np.float32)
        positive_columns["soft_label"][:, :1] = np.where(np.isfinite(own[:, :1]), labels[:, :1], np.nan)
        columns["soft_label"] = np.where(np.isfinite(others), labels[:, 1:], np.nan)
        return block.with_columns(columns, positive_columns)

    def _rows(self, query_ids: NDArray[np.str_]) -> NDArray[np.int64]:
        at = np.minimum(np.searchsorted(self._query_ids, query_ids), len(self._query_ids) - 1)
        unknown = self._query_ids[at] != query_ids
        if unknown.any():
            raise AnmiError(f'query "{query_ids[unknown][0]}" was not judged: judge the candidates that are asked for')
        return self._order[at]


def _stacked(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    width = max(part.shape[1] for part in parts)
    return np.concatenate([_widened(part, width) for part in parts])


def _widened(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return the first ``width`` columns; those that are not there are NaN."""
    values = values[:, :width]
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=np.nan)


@dataclass(frozen=True)
class Stack:
    """Weight of a second judge's evidence, fitted on hidden positives.

    Attributes
    ----------
    weight
        0 to 5, on the log-odds; 0 where too few positives can be hidden, so that the second judge has no say.
    prior
        Base rate of the second judge's probability.
    hidden
        Hidden positives the weight was fitted on.
    """

    weight: float
    prior: float
    hidden: int

    @staticmethod
    def fit(shards: CandidateShards) -> Stack:
        """Fit the weight by maximum likelihood of hidden positives against candidates.

        Parameters
        ----------
        shards
            With ``p_evidence`` and ``p_cross`` of candidates, ``p_heldout`` and ``p_cross`` of positives; both judges
            must be cross-fitted.
        """
        first, second, label, every = [], [], [], []
        for block in shards:
            own = block.positive_columns
            parts = ((own["p_heldout"], own["p_cross"], 1), (block.columns["p_evidence"], block.columns["p_cross"], 0))
            for fused, cross, tag in parts:
                every.append(cross[np.isfinite(cross)])
                known = np.isfinite(fused) & np.isfinite(cross)
                first.append(fused[known])
                second.append(cross[known])
                label.append(np.full(int(known.sum()), tag))
        prior = float(np.clip(np.concatenate(every).mean(), _TINY, 1 - _TINY))
        kind = np.concatenate(label)
        hidden = int((kind == 1).sum())
        if hidden < _LEAST or hidden == len(kind):
            return Stack(0.0, prior, 0)
        return Stack(_weight(np.concatenate(first), np.concatenate(second), kind, prior), prior, hidden)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with ``p_relevant`` of candidates, and of positives that can be hidden."""
        own = block.positive_columns
        return block.with_columns(
            {"p_relevant": combined(block.columns["p_evidence"], block.columns["p_cross"], self.weight, self.prior)},
            {
                "p_relevant": (held := combined(own["p_heldout"], own["p_cross"], self.weight, self.prior)),
                "p_heldout": held,
            },
        )


@dataclass(frozen=True)
class Stacked:
    """Adds to a block what the second judge says and what follows from both, in a worker where need be.

    Attributes
    ----------
    judgments
        Of the second judge.
    stack
        Its weight.
    answers
        Of a language model, which come first.
    """

    judgments: Judgments
    stack: Stack
    answers: Read | None = None

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with all judgments and ``p_relevant``."""
        return self.stack(self.judgments(block if self.answers is None else self.answers(block)))


def _weight(first: NDArray[np.float64], second: NDArray[np.float64], label: NDArray[np.int64], prior: float) -> float:
    """Return the likeliest weight; the intercept absorbs that hidden positives are rarer or commoner than in truth."""
    base, more = log_odds(first), log_odds(second) - logit(prior)

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        score = base + point[0] * more + point[1]
        error = (expit(score) - label) / len(label)
        return float((np.logaddexp(0, score) - label * score).mean()), np.array([error @ more, error.sum()])

    found = minimize(objective, np.zeros(2), jac=True, bounds=[(0, _MOST), (None, None)], method="L-BFGS-B")
    return float(found.x[0])
