"""How many of the most similar documents are relevant, where no positive can be hidden.

Coefficients carry over from collection to collection, the share of relevant documents that they
expect does not: on SciFact the shipped ones expect 0.2 % where 1.2 % were hidden. So probabilities
are raised until their mean over the most similar documents is a share that is to be reckoned with:
the odds of all are multiplied by one factor, as under a label shift (Saerens et al. 2002,
"Adjusting the Outputs of a Classifier to New a Priori Probabilities"). That paper's own way to the
share, EM over the candidates, is of no use here, since it takes for granted that the densities
carry over: on three of six collections it ends at 0 (benchmarks/calibration.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from anmi.candidates import PADDING, Candidates
from anmi.judging.fused import FEATURES, FusedModel
from anmi.ragged import Bools, Float32s, Float64s, Int64s

# Two thirds of all shares are expected within a factor of about seven of the prior: between the
# collections that the shipped coefficients were fitted on they differ by a factor of six.
_SPREAD: Final = 2.0
# A query's hundred nearest candidates tell as much as about ten independent ones: they are alike.
_INDEPENDENT: Final = 10.0
# Log of f₁/f₀ beyond which a document is surely relevant, far below what a float holds.
_HIGHEST_LOG_RATIO: Final = 300.0
# Ranks up to which known positives are counted, and how many of a query's at most.
_RANKS: Final = np.array([1, 2, 3, 5, 10, 20, 40, 100])
_POSITIVES: Final = 8
# A group of documents that are like the positive: how many at least and at most, how much like it
# by tf-idf, and by how much the next is less so. On six real collections 2 to 26 % of the queries
# have one, on paraphrases 94 % and more.
_SMALLEST_GROUP: Final = 3
_LARGEST_GROUP: Final = 60
_ALIKE: Final = 0.15
_FALL: Final = 2.0
# Evidence that a document has by itself: beside a known positive that positive would be no witness.
_OF_THE_QUERY: Final = ("dense", "match", "coverage")
_FLAT: Final = 1e-6
# Log-odds by which probabilities are raised, at most; no share between 1e-4 and ½ asks for more.
_LARGEST_SHIFT: Final = 40.0


@dataclass(frozen=True)
class Examples:
    """n examples.

    Attributes
    ----------
    values
        Inputs, [n, K]; NaN where unknown.
    labelled
        True for labelled documents, False for those of the pool, [n].
    weights
        Each query has 1 for its labelled documents and 1 for its pool, [n].
    fold, query
        Fold and number of the query, [n].
    """

    values: NDArray[Any]
    labelled: Bools
    weights: Float64s
    fold: Int64s
    query: Int64s

    def take(self, rows: Bools) -> Examples:
        """Return some of them."""
        return Examples(*(values[rows] for values in vars(self).values()))

    @property
    def queries(self) -> int:
        """How many queries they are of."""
        return len(np.unique(self.query))


def examples_of(blocks: Iterable[tuple[Candidates, Float32s, Int64s]]) -> Examples | None:
    """Take blocks, of which no query is in two, as examples; None where there are none.

    Parameters
    ----------
    blocks
        Of each block: rows with a labelled document first and documents of the pool behind it, of
        which a query may have several; their inputs, [R, M, K]; and the fold of each row, [R].
    """
    parts = list[tuple[NDArray[Any], ...]]()
    queries = 0
    for block, values, fold in blocks:
        query_ids, query, row_counts = np.unique(
            block.query_ids, return_inverse=True, return_counts=True
        )
        filled = block.filled
        labelled = filled & (np.arange(filled.shape[1]) == 0)
        pool_size = np.maximum((filled & ~labelled).sum(axis=1, keepdims=True), 1)
        weights = np.where(labelled, 1.0, 1.0 / pool_size) / row_counts[query][:, None]
        rows, _ = np.nonzero(filled)
        parts.append(
            (values[filled], labelled[filled], weights[filled], fold[rows], queries + query[rows])
        )
        queries += len(query_ids)
    return Examples(*map(np.concatenate, zip(*parts, strict=True))) if queries else None


@dataclass(frozen=True)
class Contaminated:
    """What was fitted.

    Attributes
    ----------
    coefficients
        Of log f₁/f₀, on the inputs; K numbers ≥ 0.
    intercept
        With it they give the log-odds that an unlabelled document is relevant.
    share
        Of relevant documents in the pool, π, between 0 and 1.
    """

    coefficients: tuple[float, ...]
    intercept: float
    share: float


def fit_contaminated(
    examples: Examples,
    centre: NDArray[Any],
    ridge: float,
    expected: float,
) -> Contaminated:
    """Fit coefficients and share together by penalised maximum likelihood.

    Parameters
    ----------
    examples
        Their inputs are finite and standardised. Labelled documents and those of the pool are made
        to weigh the same; the more queries there are, the less the expected share matters.
    centre
        Coefficients that the ridge pulls to, [K].
    ridge
        Weight of the squared distance from them beside the mean log-likelihood.
    expected
        Share of relevant documents in the pool that is expected before looking, between 0 and 1.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> relevant = draw.random(20_000) < 0.2
    >>> pool, labelled = draw.normal(size=20_000) + 2 * relevant, draw.normal(size=5_000) + 2
    >>> values, number = np.append(labelled, pool)[:, None], np.arange(25_000)
    >>> examples = Examples(values, number < 5_000, np.ones(25_000), 0 * number, number % 2_000)
    >>> fitted = fit_contaminated(examples, np.zeros(1), 0.0, 0.02)
    >>> round(fitted.share, 1), round(fitted.coefficients[0])
    (0.2, 2)
    """
    labelled = examples.labelled
    weights = examples.weights
    labelled_mass = np.where(labelled, weights, 0).sum()
    pool_mass = weights.sum() - labelled_mass
    weight = np.where(labelled, 0.5 * weights / labelled_mass, 0.5 * weights / pool_mass)
    width = examples.values.shape[1]
    values = examples.values.astype(np.float64)
    expected_odds = float(scipy.special.logit(expected))
    pull = 1 / (_SPREAD**2 * _INDEPENDENT * examples.queries)

    def objective(point: Float64s) -> tuple[float, Float64s]:
        slopes = point[:width]
        odds = float(point[width + 1])
        share, complement = (float(side) for side in scipy.special.expit([odds, -odds]))
        log_ratio = values @ slopes + point[width]
        # f₁/f₀, and from it the densities of the pool and of both kinds together, over f₀: one
        # exponential and two logarithms, of which nearly all of the time is.
        ratio = np.exp(np.minimum(log_ratio, _HIGHEST_LOG_RATIO))
        pool = share * ratio + complement
        mixture = ratio + pool
        losses = np.log(mixture) - np.where(labelled, log_ratio, np.log(pool))
        error = weight * (ratio / mixture - labelled)
        relevant = ratio * (share / pool)
        deviation = slopes - centre
        excess = odds - expected_odds
        loss = (weight * losses).sum() + ridge * (deviation**2).sum() + 0.5 * pull * excess**2
        by_log_ratio = error * (1 - relevant)
        by_odds = -(error * (relevant - share)).sum() + pull * excess
        by_slopes = values.T @ by_log_ratio + 2 * ridge * deviation
        return float(loss), np.concatenate([by_slopes, [by_log_ratio.sum(), by_odds]])

    start = np.concatenate([np.maximum(centre, 0.1), [0.0, expected_odds]])
    bounds = [(0.0, None)] * width + [(None, None)] * 2
    options = {"maxiter": 500}
    optimum = scipy.optimize.minimize(
        objective,
        start,
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options=options,
    )
    *slopes, intercept, odds = optimum.x.tolist()
    return Contaminated(tuple(slopes), intercept + odds, float(scipy.special.expit(odds)))


def share_by_known(
    blocks: Iterable[Candidates],
    *,
    ridge: float,
    expected: float,
    fewest_queries: int,
) -> float | None:
    """Return the share of relevant documents among the most similar that known positives suggest.

    It compares ``dense``, ``match`` and ``coverage`` of the known positives with those of the
    candidates by :func:`fit_contaminated`. Known positives are seldom average relevant documents,
    and these three kinds of evidence never tell surely, so it is rather an upper bound.

    Parameters
    ----------
    blocks
        From :func:`anmi.judging.evidence.gather_known`.
    ridge, expected
        Of the fit.
    fewest_queries
        Queries with a known positive among the most similar documents, below which there is nothing
        to learn: None.
    """
    examples = examples_of(map(_by_itself, blocks))
    if examples is None or examples.queries < fewest_queries:
        return None
    scale = np.nanstd(examples.values, axis=0)
    centred = examples.values - np.nanmean(examples.values, axis=0)
    standard = np.nan_to_num(centred / np.where(scale > _FLAT, scale, 1))
    centre = np.zeros(len(_OF_THE_QUERY))
    return fit_contaminated(replace(examples, values=standard), centre, ridge, expected).share


def _by_itself(block: Candidates) -> tuple[Candidates, Float32s, Int64s]:
    """Return a block with the inputs that a document has by itself, [R, M, 3], all in one fold."""
    inputs = [FEATURES[name].value(block.columns, {}) for name in _OF_THE_QUERY]
    values = np.stack(inputs, axis=2).astype(np.float32)
    return block, values, np.zeros(len(block), np.int64)


def as_relevant(blocks: Iterable[Candidates], depth: int) -> tuple[float, float]:
    """Return an upper bound on a query's relevant documents, and the share of positives reached.

    Were the known positive any one of n relevant documents, each as likely as the others, then it
    would be among the first k of a ranking with a chance of at most k/n, whatever the ranking. So n
    is at most k over the share of queries in which it is, and the smallest such bound of all k and
    of both rankings, by vectors and by terms, is returned. Where labels were given to what ranks
    highest, or queries were written from a document, it is too small.

    Parameters
    ----------
    blocks
        With ``dense``, and ``bm25`` where that was asked, of candidates and positives.
    depth
        A positive is reached if it ranks within this many candidates by similarity.
    """
    within = np.zeros((2, len(_RANKS)))
    queries = 0
    reached = 0.0
    for block in blocks:
        is_known = (block.positives != PADDING)[:, :_POSITIVES]
        queries += int(is_known.any(axis=1).sum())
        weight = is_known / np.maximum(is_known.sum(axis=1, keepdims=True), 1)
        rankings = [name for name in ("dense", "bm25") if name in block.columns]
        for number, name in enumerate(rankings):
            scores = block.positive_columns[name][:, :_POSITIVES, None]
            rivals = np.where(block.filled, block.columns[name], np.nan)[:, None, :]
            higher = (rivals > scores).sum(axis=2)
            equal = (rivals == scores).sum(axis=2)
            rank = np.where(np.isnan(scores[:, :, 0]), np.inf, 1 + higher + equal / 2)
            within[number] += [float((weight * (rank < last + 1)).sum()) for last in _RANKS]
            reached += float((weight * (rank <= depth)).sum()) if name == "dense" else 0.0
    # What never was seen may be so in half a query.
    return float((_RANKS * queries / np.maximum(within, 0.5)).min()), reached / max(queries, 1)


def clusters(likeness: Float32s) -> Bools:
    """Mark groups of candidates that are far more like the positive than all others, bool [Q, M].

    The likeness falls to less than half from the last of a group of at least three to the next
    document, and only there for the last time. Paraphrases are like that, and so are translations,
    and the parts of a series.

    Examples
    --------
    >>> clusters(np.array([[0.1, 0.5, 0.3, 0.4, 0.1, 0.09]], np.float32)).tolist()
    [[False, True, True, True, False, False]]
    """
    values = np.nan_to_num(likeness)
    ordered = -np.sort(-values, axis=1)[:, : _LARGEST_GROUP + 1]
    falls = (ordered[:, :-1] >= _FALL * ordered[:, 1:]) & (ordered[:, :-1] >= _ALIKE)
    last_fall = falls.shape[1] - np.argmax(falls[:, ::-1], axis=1)
    size = np.where(falls.any(axis=1), last_fall, 0)
    lowest = np.take_along_axis(ordered, np.maximum(size - 1, 0)[:, None], axis=1)
    return (values >= lowest) & (size >= _SMALLEST_GROUP)[:, None]


def with_mean(
    model: FusedModel,
    values: Float32s,
    share: float,
) -> tuple[FusedModel, float]:
    """Return a model whose mean probability is at least a given share, and that mean.

    Probabilities are never lowered: what makes a judge doubt many documents may be that many are
    relevant, and a candidate that is doubted wrongly costs less than one that is trusted wrongly.

    Parameters
    ----------
    model
        Whose order of candidates is kept.
    values
        Inputs of the documents that the share is of, [n, K]; those of which nothing is known do not
        count.
    share
        Between 0 and 1.

    Examples
    --------
    >>> model = FusedModel((0.0,) * 11, (1.0,) * 11, (1.0,) * 11, -6.0)
    >>> values = np.random.default_rng(0).normal(size=(500, 11)).astype(np.float32)
    >>> raised, mean = with_mean(model, values, 0.25)
    >>> round(mean, 2), raised.intercept > model.intercept
    (0.25, True)
    """
    chance = model(values)
    chance = chance[np.isfinite(chance)]
    mean = float(chance.mean()) if len(chance) else share
    if mean >= share:
        return model, mean
    odds = scipy.special.logit(np.clip(chance, np.exp(-_LARGEST_SHIFT / 2), None))

    def excess(shift: float) -> float:
        return float(scipy.special.expit(odds + shift).mean()) - share

    shift = float(scipy.optimize.brentq(excess, 0.0, _LARGEST_SHIFT))
    return replace(model, intercept=model.intercept + shift), share
