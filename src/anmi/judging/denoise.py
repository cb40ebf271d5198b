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
from anmi.judging.llm import Answers
from anmi.judging.prior import Examples, fit_contaminated
from anmi.ragged import Bools, Float32s, Float64s, Int64s
from anmi.store import Store

_TEMPERATURE: Final = 0.1
# A calibrated judge weighs about 1; one that tells nothing would be fitted to noise without a
# bound.
_LARGEST_WEIGHT: Final = 5.0
_FEWEST_POSITIVES: Final = 50
_TINY: Final = 1e-9
# Negatives per positive in training; more would add more cost than signal.
_NEGATIVES_PER_POSITIVE: Final = 3
# What is at least as likely to be relevant, or without other evidence above this share of the
# positive's similarity, is not trained on: a false negative teaches the very error that is to be
# found. 5 % is about the base rate of the nearest 16: on five collections with planted truth 62 to
# 78 % stay, of which 0.2 to 1.1 % are relevant.
DOUBTFUL: Final = 0.05
_DOUBTFUL_RATIO: Final = 0.95
# Area under the ROC curve below which a judge tells too little to learn from it how many candidates
# are relevant.
_LOWEST_AUC: Final = 0.6
# Pairs whose texts are in memory at once.
_PAIRS_AT_ONCE: Final = 65_536
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
        texts = [self.query_texts[str(query)] for query in block.query_ids]
        return fold_of(texts, self.options.folds, self.seed)

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
        blocks = list[Candidates]()
        evidence = list[NDArray[Any]]()
        no_evidence = np.zeros((0, 0))
        for block in shards.only("p_evidence"):
            documents = block.documents[:, : self.depth]
            source = block.source[:, : self.depth]
            blocks.append(Candidates(block.query_ids, block.positives, documents, source))
            chance = block.columns.get("p_evidence", no_evidence)[:, : self.depth]
            evidence.append(chance[np.isfinite(chance)])
        judged = Candidates.concatenate(blocks)
        self._check_folds(judged)
        chances = np.concatenate(evidence)
        expected = float(np.mean(chances)) if len(chances) else DOUBTFUL
        is_judged = np.hstack([judged.filled, judged.positives != PADDING])
        rows, slots = np.nonzero(is_judged)
        width = judged.documents.shape[1]
        pairs = pd.DataFrame(
            {
                "query": judged.query_ids[rows],
                "document": np.hstack([judged.documents, judged.positives])[is_judged],
                "label": slots >= width,
                "fold": self.fold(judged)[rows],
            }
        )
        smallest, *larger = self.options.models
        self.judges = self._made(smallest, shards)
        scores, chance, self.summary = self._judge(pairs, self.judges, expected)
        self.summary |= {"options": self.options.model_dump(mode="json"), "warnings": []}
        if self.summary["auc"] < _LOWEST_AUC:
            self._warn(
                f"its AUC on held-out labels is {self.summary['auc']:.2f}, below {_LOWEST_AUC}, so"
                " it is no judge of this collection: name a cross-encoder in"
                " denoising.cross_encoder.model, or take a recipe that reads p_evidence"
            )
        for model in larger:
            self._confirm(pairs, chance, model, shards)
        self._check_bars(chance[~pairs.label])
        tables = np.full((2, *is_judged.shape), np.nan, np.float32)
        tables[:, is_judged] = scores, chance
        cross, p_cross = tables
        return Judgments(
            _with_soft_labels(
                judged.with_columns(
                    {"cross": cross[:, :width], "p_cross": p_cross[:, :width]},
                    {"cross": cross[:, width:], "p_cross": p_cross[:, width:]},
                )
            )
        )

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

    def _warn(self, problem: str) -> None:
        sentence = f"cross-encoder: {problem}"
        log.warning(sentence)
        self.summary["warnings"].append(sentence)

    def _made(self, model: str, shards: CandidateShards) -> list[CrossEncoderJudge]:
        """One judge per fold; a ready-made one is the same for all."""
        options = self.options.model_copy(update={"model": model})
        if model != TRAINED:
            return [CrossEncoderJudge(options)] * options.folds
        examples = pd.concat([self._examples(block) for block in shards], ignore_index=True)
        return [
            TrainedCrossEncoder(
                options,
                self.models,
                training_pairs(examples, fold, options, self.seed),
                self.seed,
            )
            for fold in range(options.folds)
        ]

    def _examples(self, block: Candidates) -> pd.DataFrame:
        """Return training pairs: positives, what a language model read, and undoubted candidates.

        The label of what was read is its chance of being relevant.
        """
        is_known = block.positives != PADDING
        is_clean = block.filled & ~self._doubtful(block)
        is_clean[:, self.depth :] = False
        draws = seeds.uniform(
            self.seed, "teacher/negatives", list(block.query_ids), block.documents
        )
        order = np.argsort(np.where(is_clean, draws, 2.0), axis=1)
        negatives = is_known.sum(axis=1, keepdims=True) * _NEGATIVES_PER_POSITIVE
        is_drawn = is_clean & (np.argsort(order, axis=1) < negatives)
        is_read = block.filled & np.isfinite(block.columns.get(GRADE, np.nan))
        chance = block.columns.get("p_evidence", np.zeros(block.documents.shape))
        is_used = np.hstack([is_known, is_drawn | is_read])
        rows, _ = np.nonzero(is_used)
        documents = np.hstack([block.positives, block.documents])[is_used]
        labels = np.hstack([np.ones(is_known.shape), np.where(is_read, chance, 0.0)])[is_used]
        return pd.DataFrame(
            {
                "row": block.query_ids[rows],
                "query": [self.query_texts[str(query)] for query in block.query_ids[rows]],
                "document": [self.document_texts[document] for document in documents],
                "label": labels,
                "fold": self.fold(block)[rows],
            }
        )

    def _doubtful(self, block: Candidates) -> Bools:
        """Return which candidates may well be relevant, bool [Q, M].

        Other evidence says so, or where there is none likeness: what looks like the positive to the
        encoder that mined, which is a weak rule.
        """
        is_known = block.positives != PADDING
        similarity = np.where(is_known, block.positive_columns["dense"], np.nan)
        lowest = np.nanmin(similarity, axis=1, keepdims=True)
        ceiling = lowest - np.abs(lowest) * (1 - _DOUBTFUL_RATIO)
        doubtful: Bools = ~(block.columns["dense"] < ceiling)
        evidence = block.columns.get("p_evidence")
        if evidence is not None:
            doubtful = np.where(np.isfinite(evidence), evidence >= DOUBTFUL, doubtful)
        # What a person marked as not relevant is not doubtful, however it looks.
        return doubtful & (block.columns.get(MARKED, np.nan) != 0)

    def _judge(
        self,
        pairs: pd.DataFrame,
        judges: list[CrossEncoderJudge],
        expected: float,
    ) -> tuple[Float32s, Float64s, dict[str, Any]]:
        """Return scores, probabilities and a summary of pairs ``query, document, label, fold``."""
        scores = np.full(len(pairs), np.nan, np.float32)
        queries = pairs["query"].to_numpy()
        documents = pairs.document.to_numpy()
        with tqdm(
            total=len(pairs),
            desc="judging",
            unit="pair",
            delay=2,
            disable=None,
        ) as bar:
            for fold, judge in enumerate(judges):
                of_fold = np.flatnonzero(pairs.fold == fold)
                for start in range(0, len(of_fold), _PAIRS_AT_ONCE):
                    rows = of_fold[start : start + _PAIRS_AT_ONCE]
                    texts = [
                        join(self.query_texts[str(query)], self.document_texts[document])
                        for query, document in zip(queries[rows], documents[rows], strict=True)
                    ]
                    scores[rows] = judge.score(texts, self.store, bar)
        corrected = self.options.probability == "corrected"
        chance, summary = probabilities(scores, pairs.label, pairs.fold, expected, corrected)
        summary["folds"] = [judge.describe() for judge in judges]
        summary["judged_pairs"] = len(pairs)
        return scores, chance, summary

    def _confirm(
        self,
        pairs: pd.DataFrame,
        chance: Float64s,
        model: str,
        shards: CandidateShards,
    ) -> None:
        """Let a larger model judge, in place, what reaches the lowest bar."""
        lowest = min((bar for _, bar in self.bars), default=0.5)
        reaches = chance >= lowest
        candidates = chance[reaches & ~pairs.label]
        positives = int(reaches.sum()) - len(candidates)
        if positives < _FEWEST_POSITIVES or not len(candidates):
            self._warn(
                f"{model} confirms nothing: {len(candidates):,} candidates and {positives:,}"
                f" positives reach {lowest:g} by the smaller one, and 1 and {_FEWEST_POSITIVES}"
                " are needed"
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
        fit = partial(_of_unlabelled, expected=expected, is_fixed=auc < _LOWEST_AUC)
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
    scores: NDArray[Any],
    labels: NDArray[Any],
    expected: float,
    is_fixed: bool,
) -> Platt:
    """Fit the chance that an unlabelled document is relevant, at the expected share if fixed."""
    score, labelled, weights = scored_examples(scores, labels)
    centre = float(score.mean())
    spread = float(score.std()) or 1.0
    # There is as much evidence as there are positives.
    number = np.arange(len(score)) % labelled.sum()
    examples = Examples(((score - centre) / spread)[:, None], labelled, weights, number, number)
    fitted = fit_contaminated(examples, np.zeros(1), 0.0, expected)
    slope = fitted.coefficients[0] / spread
    shift = float(logit(expected) - logit(fitted.share)) if is_fixed else 0.0
    return Platt(slope, fitted.intercept + shift - slope * centre)


def soft_labels(scores_positive: NDArray[Any], scores_candidates: NDArray[Any]) -> Float64s:
    """Return the distribution to train towards with a KL divergence (RocketQA v2's distillation).

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
    is_scored = np.isfinite(scores)
    # −1e300 instead of −∞, for which a row without a score would be 0/0; such a row is all 0.
    energies = np.where(is_scored, scores / _TEMPERATURE, -1e300)
    return np.where(is_scored, softmax(energies, axis=1), 0.0)


def _with_soft_labels(block: Candidates) -> Candidates:
    """Return the block with ``soft_label``, over a row's first positive and its judged candidates.

    It is made of the probabilities: raw scores have no common scale, and at its temperature logits
    would leave all the mass to the best.
    """
    of_positive = block.positive_columns["p_cross"][:, :1]
    of_candidates = block.columns["p_cross"]
    labels = soft_labels(of_positive, of_candidates)
    positive_labels = np.where(np.isfinite(of_positive), labels[:, :1], np.nan)
    candidate_labels = np.where(np.isfinite(of_candidates), labels[:, 1:], np.nan)
    width = block.positives.shape[1]
    return block.with_columns(
        {"soft_label": candidate_labels}, {"soft_label": widened(positive_labels, width)}
    )


class Judgments:
    """Adds a judge's ``cross``, ``p_cross`` and ``soft_label`` to blocks of their queries.

    Parameters
    ----------
    judged
        All queries with these columns, their first candidates and their positives as they stand in
        the blocks.
    """

    def __init__(self, judged: Candidates) -> None:
        self._judged = judged
        self._query_ids = pd.Index(judged.query_ids)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with its judgments.

        Raises
        ------
        AnmiError
            A query that was not judged.
        """
        rows = self._query_ids.get_indexer(pd.Index(block.query_ids))
        if (rows < 0).any():
            raise AnmiError(
                f'query "{block.query_ids[rows < 0][0]}" was not judged: judge the candidates that'
                " are asked for"
            )
        columns, positive_columns = (
            {name: widened(values[rows], width) for name, values in judged.items()}
            for judged, width in (
                (self._judged.columns, block.documents.shape[1]),
                (self._judged.positive_columns, block.positives.shape[1]),
            )
        )
        return block.with_columns(columns, positive_columns)


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
            for columns, column, label in (
                (block.positive_columns, "p_heldout", 1),
                (block.columns, "p_evidence", 0),
            ):
                fused = columns[column].ravel()
                parts.append((fused, columns["p_cross"].ravel(), np.full(len(fused), label)))
        fused, cross, labels = map(np.concatenate, zip(*parts, strict=True))
        prior = float(np.clip(np.nanmean(cross[labels == 0]), _TINY, 1 - _TINY))
        is_judged = np.isfinite(fused) & np.isfinite(cross)
        hidden = int(labels[is_judged].sum())
        if hidden < _FEWEST_POSITIVES or hidden == is_judged.sum():
            return Stack(0.0, prior, 0)
        odds = log_odds(fused[is_judged])
        added_odds = log_odds(cross[is_judged]) - logit(prior)
        return Stack(_weight(odds, added_odds, labels[is_judged]), prior, hidden)

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with ``p_relevant`` of candidates and of hidden positives."""
        columns = block.columns
        positive_columns = block.positive_columns
        relevant = combined(columns["p_evidence"], columns["p_cross"], self.weight, self.prior)
        held_out = combined(
            positive_columns["p_heldout"],
            positive_columns["p_cross"],
            self.weight,
            self.prior,
        )
        return block.with_columns(
            {"p_relevant": relevant}, {"p_relevant": held_out, "p_heldout": held_out}
        )


def stacked(
    judgments: Judgments,
    stack: Stack,
    answers: Answers | None,
    block: Candidates,
) -> Candidates:
    """Return a block with a model's answers, if any, the judgments and ``p_relevant``."""
    return stack(judgments(block if answers is None else answers(block)))


def _weight(odds: Float64s, added_odds: Float64s, labels: Int64s) -> float:
    """Return the likeliest weight of the added log-odds.

    An intercept absorbs that hidden positives are rarer or commoner than in truth.
    """

    def objective(point: Float64s) -> tuple[float, Float64s]:
        score = odds + point[0] * added_odds + point[1]
        error = (expit(score) - labels) / len(labels)
        loss = float((np.logaddexp(0, score) - labels * score).mean())
        return loss, np.array([error @ added_odds, error.sum()])

    bounds = [(0, _LARGEST_WEIGHT), (None, None)]
    optimum = minimize(
        objective,
        np.zeros(2),
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
    )
    return float(optimum.x[0])
