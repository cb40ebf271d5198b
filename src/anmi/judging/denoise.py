"""A cross-encoder judges candidates, and its probability joins that of the fused judge."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from tqdm import tqdm

from anmi import seeds
from anmi.candidates import GRADE, MARKED, PADDING, Candidates, CandidateShards, widened
from anmi.errors import AnmiError
from anmi.judging.calibration import Platt, cross_fitted, reliability, scored_examples
from anmi.judging.cross_encoder import (
    TRAINED,
    CrossEncoderJudge,
    CrossEncoderOptions,
    TrainedCrossEncoder,
    fold_of,
    join,
    normalised,
    training_pairs,
)
from anmi.judging.fused import combined, log_odds
from anmi.judging.hidden import Examples
from anmi.judging.llm import Read
from anmi.judging.prior import fit_contaminated
from anmi.ragged import Bools, Float32s, Float64s, Int64s
from anmi.store import Store

_TEMPERATURE: Final = 0.1
# A calibrated judge weighs about 1; one that tells nothing would be fitted to noise without a
# bound.
_MOST: Final = 5.0
_LEAST: Final = 50
_TINY: Final = 1e-9
# Negatives per positive in training; more would add more cost than signal.
_NEGATIVES: Final = 3
# What is at least as likely to be relevant, or without other evidence above this share of the
# positive's similarity, is not trained on: a false negative teaches the very error that is to be
# found. 5 % is about the base rate of the nearest 16: on five collections with planted truth 62 to
# 78 % stay, of which 0.2 to 1.1 % are relevant.
DOUBTFUL: Final = 0.05
_DOUBTFUL_RATIO: Final = 0.95
# Area under the ROC curve below which a judge tells too little to learn from it how many candidates
# are relevant.
_POOREST: Final = 0.6
# Pairs whose texts are in memory at once.
_TEXTS: Final = 65_536
log = logging.getLogger(__name__)


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
    bars
        Steps of the recipe that hold ``p_cross`` against a threshold, and it.

    Attributes
    ----------
    judges
        By fold: what scores the fold's queries; of several models, the first one.
    summary
        What was found, for the report.
    """

    options: CrossEncoderOptions
    depth: int
    store: Store
    models: Path
    query_texts: dict[str, str]
    document_texts: Sequence[str]
    seed: int
    bars: Sequence[tuple[str, float]] = ()
    judges: list[CrossEncoderJudge] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    def fold(self, block: Candidates) -> Int64s:
        """Return the fold of each row of a block, [Q]."""
        return fold_of(
            [self.query_texts[str(q)] for q in block.query_ids], self.options.folds, self.seed
        )

    def fit(self, shards: CandidateShards) -> Judgments:
        """Prepare the judges (trained when first needed), score all shards and make probabilities.

        The first model judges every candidate, the next one only what the one before gives a
        probability that reaches a bar.

        Returns
        -------
        Judgments
            What was found, ready to be added to the shards.

        Raises
        ------
        AnmiError
            Too few queries for the folds, or a judge whose scores cannot be used or calibrated.
        """
        blocks = [self._first(block) for block in shards.only("p_evidence")]
        judged = Candidates.concatenate([block for block, _ in blocks])
        self._check_folds(judged)
        evidence = np.concatenate([values for _, values in blocks])
        expected = float(np.mean(evidence)) if len(evidence) else DOUBTFUL
        is_judged = np.hstack([judged.filled, judged.positives != PADDING])
        row, slot = np.nonzero(is_judged)
        width = judged.documents.shape[1]
        pairs = pd.DataFrame(
            {
                "query": judged.query_ids[row],
                "document": np.hstack([judged.documents, judged.positives])[row, slot],
                "label": slot >= width,
                "fold": self.fold(judged)[row],
            }
        )
        first, *larger = self.options.models
        self.judges = self._made(first, shards)
        scores, chance, self.summary = self._judge(pairs, self.judges, expected)
        self.summary |= {"options": self.options.model_dump(mode="json"), "warnings": []}
        if self.summary["auc"] < _POOREST:
            self._warn(
                f"its AUC on held-out labels is {self.summary['auc']:.2f}, below {_POOREST}, so it"
                " is no judge of this collection: name a cross-encoder in"
                " denoising.cross_encoder.model, or take a recipe that reads p_evidence"
            )
        for model in larger:
            self._confirm(pairs, chance, model, shards)
        self._check_bars(chance[~pairs.label])
        tables = np.full((2, *is_judged.shape), np.nan, np.float32)
        tables[:, is_judged] = scores, chance
        sides = [
            dict(zip(("cross", "p_cross"), part, strict=True))
            for part in np.split(tables, [width], axis=2)
        ]
        return Judgments(_with_soft_labels(judged.with_columns(*sides)))

    def _first(self, block: Candidates) -> tuple[Candidates, NDArray[Any]]:
        """Return the candidates that are judged, and what other evidence says of them."""
        documents = block.documents[:, : self.depth]
        few = Candidates(block.query_ids, block.positives, documents, block.source[:, : self.depth])
        evidence = block.columns.get("p_evidence", np.zeros((0, 0)))[:, : self.depth]
        return few, evidence[np.isfinite(evidence)]

    def _check_folds(self, judged: Candidates) -> None:
        texts = {normalised(self.query_texts[str(query)]) for query in judged.query_ids}
        folds = self.options.folds
        if len(texts) < folds or len(set(fold_of(sorted(texts), folds, self.seed).tolist())) < 2:
            raise AnmiError(
                f"the cross-encoder is cross-fitted over {folds} folds and there are {len(texts)}"
                " queries of different text, too few; lower denoising.cross_encoder.folds or give"
                " more training queries"
            )

    def _check_bars(self, probability: NDArray[Any]) -> None:
        """Warn of a step whose bar no candidate reaches, since it changes nothing."""
        highest = float(probability.max(initial=0.0))
        self.summary["highest"] = highest
        for step, bar in self.bars:
            if highest < bar:
                self._warn(
                    f'no candidate reaches the threshold {bar:g} of the step "{step}" (the highest'
                    f" p_cross is {highest:.3f}), so the step changes nothing: lower its threshold,"
                    " or name a stronger cross-encoder in denoising.cross_encoder.model"
                )

    def _warn(self, what: str) -> None:
        sentence = f"cross-encoder: {what}"
        log.warning(sentence)
        self.summary["warnings"].append(sentence)

    def _made(self, model: str, shards: CandidateShards) -> list[CrossEncoderJudge]:
        """One judge per fold; a ready-made one is the same for all."""
        options = self.options.model_copy(update={"model": model})
        if model != TRAINED:
            return [CrossEncoderJudge(options)] * options.folds
        examples = pd.concat([self._examples(block) for block in shards], ignore_index=True)
        pairs = [
            training_pairs(examples, fold, options, self.seed) for fold in range(options.folds)
        ]
        return [TrainedCrossEncoder(options, self.models, each, self.seed) for each in pairs]

    def _examples(self, block: Candidates) -> pd.DataFrame:
        """Pairs of a block: positives, what a language model read (its chance as label), and undoubted candidates."""
        known = block.positives != PADDING
        clean = block.filled & ~self._doubtful(block)
        clean[:, self.depth :] = False
        draws = seeds.uniform(
            self.seed, "teacher/negatives", list(block.query_ids), block.documents
        )
        wanted = known.sum(axis=1, keepdims=True) * _NEGATIVES
        place = np.argsort(np.argsort(np.where(clean, draws, 2.0), axis=1), axis=1)
        read = block.filled & np.isfinite(block.columns.get(GRADE, np.nan))
        taken = clean & (place < wanted) & ~read
        chance = block.columns.get("p_evidence", np.zeros(block.documents.shape))
        row, slot = np.nonzero(np.hstack([known, taken | read]))
        documents = np.hstack([block.positives, block.documents])[row, slot]
        label = np.hstack([np.ones(known.shape), np.where(read, chance, 0.0)])[row, slot]
        queries = [self.query_texts[str(query)] for query in block.query_ids[row]]
        told = {
            "row": block.query_ids[row],
            "query": queries,
            "document": [self.document_texts[d] for d in documents],
        }
        return pd.DataFrame(told | {"label": label, "fold": self.fold(block)[row]})

    def _doubtful(self, block: Candidates) -> Bools:
        """True where a candidate may well be relevant, [Q, M]: by other evidence, or where there is none by likeness.

        The likeness rule is weak: what it calls doubtful is what looks like the positive to the
        encoder that mined.
        """
        known = block.positives != PADDING
        lowest = np.nanmin(
            np.where(known, block.positive_columns["dense"], np.nan), axis=1, keepdims=True
        )
        ceiling = lowest - np.abs(lowest) * (1 - _DOUBTFUL_RATIO)
        doubtful: Bools = ~(block.columns["dense"] < ceiling)
        evidence = block.columns.get("p_evidence")
        if evidence is not None:
            doubtful = np.where(np.isfinite(evidence), evidence >= DOUBTFUL, doubtful)
        # What a person marked as not relevant is not doubtful, however it looks.
        return doubtful & (block.columns[MARKED] != 0) if MARKED in block.columns else doubtful

    def _judge(
        self, pairs: pd.DataFrame, judges: list[CrossEncoderJudge], expected: float
    ) -> tuple[Float32s, Float64s, dict[str, Any]]:
        """Return scores, probabilities and a summary of pairs ``query, document, label, fold``."""
        scores = np.full(len(pairs), np.nan, np.float32)
        queries = pairs["query"].to_numpy()
        documents = pairs.document.to_numpy()
        with tqdm(total=len(pairs), desc="judging", unit="pair", delay=2, disable=None) as bar:
            for number, judge in enumerate(judges):
                of_fold = np.flatnonzero(pairs.fold == number)
                for start in range(0, len(of_fold), _TEXTS):
                    part = of_fold[start : start + _TEXTS]
                    texts = [
                        join(self.query_texts[str(query)], self.document_texts[document])
                        for query, document in zip(queries[part], documents[part], strict=True)
                    ]
                    scores[part] = judge.score(texts, self.store, bar)
        corrected = self.options.probability == "corrected"
        chance, summary = probabilities(scores, pairs.label, pairs.fold, expected, corrected)
        summary["folds"] = [judge.describe() for judge in judges]
        summary["judged_pairs"] = len(pairs)
        return scores, chance, summary

    def _confirm(
        self, pairs: pd.DataFrame, chance: Float64s, model: str, shards: CandidateShards
    ) -> None:
        """Let a larger model judge, in place, what reaches the lowest bar."""
        lowest = min((bar for _, bar in self.bars), default=0.5)
        reaches = chance >= lowest
        candidates = chance[reaches & ~pairs.label]
        positives = int(reaches.sum()) - len(candidates)
        if positives < _LEAST or not len(candidates):
            self._warn(
                f"{model} confirms nothing: {len(candidates):,} candidates and {positives:,}"
                f" positives reach {lowest:g} by the smaller one, and 1 and {_LEAST} are needed"
            )
            return
        judges = self._made(model, shards)
        _, chance[reaches], summary = self._judge(pairs[reaches], judges, float(candidates.mean()))
        self.summary.setdefault("confirmed", []).append(summary)


def probabilities(
    scores: NDArray[Any],
    labels: Any,
    folds: Any,
    expected: float,
    corrected: bool = True,
) -> tuple[Float64s, dict[str, Any]]:
    """Return the chance of each judged document that it is relevant, and how it was found.

    Corrected, it is the chance of an unlabelled candidate. A logistic function of the score and the
    share of relevant candidates are fitted together, by the likelihood of positives and candidates
    (:func:`anmi.judging.prior.fit_contaminated`; EM ends at the same share). If the scores hardly
    tell relevant from other documents, the share stays the expected one.

    Parameters
    ----------
    scores, labels, folds
        [n]: logits, 1 for known positives and 0 for candidates, and folds of the cross-fitting.
    expected
        Share of relevant candidates that is expected before looking, between 0 and 1.
    corrected
        False takes the sigmoid of the scores as it is.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> relevant = np.append(np.ones(400), draw.random(6_000) < 0.2)
    >>> scores = 2 * draw.normal(size=6_400) + 5 * relevant - 6
    >>> labels = np.repeat([1, 0], [400, 6_000])
    >>> chance, summary = probabilities(scores, labels, np.arange(6_400) % 3, 0.05)
    >>> round(float(chance[400:].mean()), 1), round(summary["share"], 1)
    (0.2, 0.2)
    """
    from sklearn.metrics import roc_auc_score

    label = np.asarray(labels, np.int64)
    against_candidates = float(roc_auc_score(label, scores))
    # Against those of them that are not relevant.
    auc = 0.5 + (against_candidates - 0.5) / (1 - expected)
    calibrators = dict[int, Platt]()
    if corrected:
        fit = partial(_of_unlabelled, expected=expected, fixed=auc < _POOREST)
        chance, calibrators = cross_fitted(scores, label, folds, fit)
    else:
        chance = expit(np.asarray(scores, np.float64))
    share = float(chance[label == 0].mean())
    # What can be compared with labels: the chance of being one of the positives.
    odds = chance * label.mean() / (1 - label.mean()) / share
    return chance, {
        "auc_positive_against_candidates": against_candidates,
        "auc": auc,
        "share": share,
        "expected_share": expected,
        "calibration": [asdict(calibrators[fold]) for fold in sorted(calibrators)],
        "reliability": reliability(odds / (1 + odds) if corrected else chance, label),
    }


def _of_unlabelled(
    scores: NDArray[Any], labels: NDArray[Any], expected: float, fixed: bool
) -> Platt:
    """Fit the chance that an unlabelled document is relevant, at the expected share if fixed."""
    score, labelled, weights = scored_examples(scores, labels)
    centre = float(score.mean())
    spread = float(score.std()) or 1.0
    # There is as much evidence as there are positives.
    number = np.arange(len(score)) % labelled.sum()
    seen = Examples(((score - centre) / spread)[:, None], labelled, weights, number, number)
    fitted = fit_contaminated(seen, np.zeros(1), 0.0, expected)
    slope = fitted.coefficients[0] / spread
    shift = float(logit(expected) - logit(fitted.share)) if fixed else 0.0
    return Platt(slope, fitted.intercept + shift - slope * centre)


def soft_labels(scores_positive: NDArray[Any], scores_candidates: NDArray[Any]) -> Float64s:
    """Distribution over (positives, candidates) to train towards with a KL divergence (RocketQA v2's distillation).

    Parameters
    ----------
    scores_positive, scores_candidates
        In [0, 1], for which the temperature of the softmax is made; [Q, P] and [Q, M]. NaN is
        missing and gets no mass.

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


def _with_soft_labels(block: Candidates) -> Candidates:
    """Return the block with ``soft_label``: of a row, over its first positive and its judged candidates.

    It is made of the probabilities: raw scores have no common scale, and at its temperature logits
    would leave all the mass to the best.
    """
    own = block.positive_columns["p_cross"]
    others = block.columns["p_cross"]
    labels = soft_labels(own[:, :1], others)
    first = np.where(np.isfinite(own[:, :1]), labels[:, :1], np.nan)
    soft = np.where(np.isfinite(others), labels[:, 1:], np.nan)
    return block.with_columns({"soft_label": soft}, {"soft_label": widened(first, own.shape[1])})


class Judgments:
    """Adds to blocks what the judge said of their queries: ``cross``, ``p_cross`` and ``soft_label``.

    Parameters
    ----------
    judged
        All queries with these columns, their first candidates and their positives as they stand in
        the blocks.
    """

    def __init__(self, judged: Candidates) -> None:
        self._judged = judged
        self._names = pd.Index(judged.query_ids)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with its judgments.

        Raises
        ------
        AnmiError
            A query that was not judged.
        """
        row = self._names.get_indexer(pd.Index(block.query_ids))
        if (row < 0).any():
            raise AnmiError(
                f'query "{block.query_ids[row < 0][0]}" was not judged: judge the candidates that'
                " are asked for"
            )
        columns, own = (
            {name: widened(values[row], width) for name, values in side.items()}
            for side, width in (
                (self._judged.columns, block.documents.shape[1]),
                (self._judged.positive_columns, block.positives.shape[1]),
            )
        )
        return block.with_columns(columns, own)


@dataclass(frozen=True)
class Stack:
    """Weight of a second judge's evidence, fitted on hidden positives.

    Attributes
    ----------
    weight
        0 to 5, on the log-odds; 0 where too few positives can be hidden, so that the second judge
        has no say.
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
            With ``p_evidence`` and ``p_cross`` of candidates, ``p_heldout`` and ``p_cross`` of
            positives; both judges must be cross-fitted.
        """
        parts = list[tuple[NDArray[Any], ...]]()
        for block in shards:
            for side, name, tag in (
                (block.positive_columns, "p_heldout", 1),
                (block.columns, "p_evidence", 0),
            ):
                fused = side[name].ravel()
                cross = side["p_cross"].ravel()
                parts.append((fused, cross, np.full(len(cross), tag)))
        fused, cross, label = map(np.concatenate, zip(*parts, strict=True))
        prior = float(np.clip(np.nanmean(cross[label == 0]), _TINY, 1 - _TINY))
        known = np.isfinite(fused) & np.isfinite(cross)
        hidden = int(label[known].sum())
        if hidden < _LEAST or hidden == known.sum():
            return Stack(0.0, prior, 0)
        return Stack(_weight(fused[known], cross[known], label[known], prior), prior, hidden)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with ``p_relevant`` of candidates, and of positives that can be hidden."""
        own = block.positive_columns
        held = combined(own["p_heldout"], own["p_cross"], self.weight, self.prior)
        relevant = combined(
            block.columns["p_evidence"], block.columns["p_cross"], self.weight, self.prior
        )
        return block.with_columns({"p_relevant": relevant}, {"p_relevant": held, "p_heldout": held})


def stacked(
    judgments: Judgments, stack: Stack, answers: Read | None, block: Candidates
) -> Candidates:
    """Return a block with a model's answers, if any, what the second judge says and, by its weight, ``p_relevant``."""
    return stack(judgments(block if answers is None else answers(block)))


def _weight(first: NDArray[Any], second: NDArray[Any], label: Int64s, prior: float) -> float:
    """Return the likeliest weight; the intercept absorbs that hidden positives are rarer or commoner than in truth."""
    base = log_odds(first)
    more = log_odds(second) - logit(prior)

    def objective(point: Float64s) -> tuple[float, Float64s]:
        score = base + point[0] * more + point[1]
        error = (expit(score) - label) / len(label)
        return float((np.logaddexp(0, score) - label * score).mean()), np.array(
            [error @ more, error.sum()]
        )

    found = minimize(
        objective, np.zeros(2), jac=True, bounds=[(0, _MOST), (None, None)], method="L-BFGS-B"
    )
    return float(found.x[0])
