"""How many of the most similar documents are relevant, where the collection has no positive to hide.

Coefficients carry over from collection to collection, the share of relevant documents that they
expect does not: on SciFact the shipped ones expect 0.2 % where 1.2 % were hidden. So probabilities
are raised until their mean over the most similar documents is a share that is to be reckoned with:
the odds of all are multiplied by one factor, as under a label shift (Saerens et al. 2002,
"Adjusting the Outputs of a Classifier to New a Priori Probabilities"). That paper's own way to the
share, EM over the candidates, is of no use here, since it takes for granted that the densities
carry over: on three of six collections it ends at 0 (benchmarks/calibration.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from anmi.candidates import PADDING, Candidates
from anmi.judging.evidence import Material, gather
from anmi.judging.fused import FEATURES, FusedModel
from anmi.judging.hidden import Examples, examples, nearest, reached, shown
from anmi.ragged import Bools, Float32s, Float64s, Int64s

# Two thirds of all shares are expected within a factor of about seven of the prior: between the
# collections that the shipped coefficients were fitted on they differ by a factor of six.
_SPREAD: Final = 2.0
# A query's hundred nearest candidates tell as much as about ten independent ones: they are alike.
_INDEPENDENT: Final = 10.0
# Log of f₁/f₀ beyond which a document is surely relevant, far below what a float holds.
_HIGHEST: Final = 300.0
# Ranks up to which known positives are counted, and how many of a query's at most.
_RANKS: Final = np.array([1, 2, 3, 5, 10, 20, 40, 100])
_POSITIVES: Final = 8
# A group of documents that are like the positive: how many at least and at most, how much like it
# by tf-idf, and by how much the next is less so. On six real collections 2 to 26 % of the queries
# have one, on paraphrases 94 % and more.
_FEWEST = 3
_WIDEST = 60
_ALIKE = 0.15
_FALL = 2.0


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
    seen: Examples, centre: NDArray[Any], ridge: float, expected: float
) -> Contaminated:
    """Fit coefficients and share together by penalised maximum likelihood.

    Parameters
    ----------
    seen
        Examples whose inputs are finite and standardised. Labelled documents and those of the pool
        are made to weigh the same; the more queries there are, the less the expected share matters.
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
    >>> seen = Examples(values, number < 5_000, np.ones(25_000), 0 * number, number % 2_000)
    >>> found = fit_contaminated(seen, np.zeros(1), 0.0, 0.02)
    >>> round(found.share, 1), round(found.coefficients[0])
    (0.2, 2)
    """
    labelled = seen.labelled
    weights = seen.weights
    share = np.where(labelled, weights, 0).sum()
    weight = np.where(labelled, 0.5 * weights / share, 0.5 * weights / (weights.sum() - share))
    width = seen.values.shape[1]
    values = seen.values.astype(np.float64)
    start = float(scipy.special.logit(expected))
    pull = 1 / (_SPREAD**2 * _INDEPENDENT * seen.queries)

    def objective(point: Float64s) -> tuple[float, Float64s]:
        slopes = point[:width]
        odds = float(point[width + 1])
        of_pool, other = (float(share) for share in scipy.special.expit([odds, -odds]))
        ratio = values @ slopes + point[width]
        # f₁/f₀, and from it the densities of the pool and of both kinds together, over f₀: one
        # exponential and two logarithms, of which nearly all of the time is.
        relevant = np.exp(np.minimum(ratio, _HIGHEST))
        pool = of_pool * relevant + other
        both = relevant + pool
        losses = np.log(both) - np.where(labelled, ratio, np.log(pool))
        error = weight * (relevant / both - labelled)
        relevant *= of_pool / pool
        off = slopes - centre
        loss = (weight * losses).sum() + ridge * (off**2).sum()
        along = error * (1 - relevant)
        of_share = -(error * (relevant - of_pool)).sum() + pull * (odds - start)
        gradient = np.concatenate([values.T @ along + 2 * ridge * off, [along.sum(), of_share]])
        return float(loss + 0.5 * pull * (odds - start) ** 2), gradient

    first = np.concatenate([np.maximum(centre, 0.1), [0.0, start]])
    bounds = [(0.0, None)] * width + [(None, None)] * 2
    options = {"maxiter": 500}
    found = scipy.optimize.minimize(
        objective, first, jac=True, bounds=bounds, method="L-BFGS-B", options=options
    ).x
    *slopes, intercept, odds = found.tolist()
    return Contaminated(tuple(slopes), intercept + odds, float(scipy.special.expit(odds)))


# Evidence that a document has by itself: beside a known positive that positive would be no witness.
_OF_THE_QUERY: Final = ("dense", "match", "coverage")
_FLAT: Final = 1e-6
# Log-odds by which probabilities are raised, at most; no share between 1e-4 and ½ asks for more.
_FARTHEST: Final = 40.0


def share_by_known(
    blocks: Iterable[Candidates],
    material: Material,
    *,
    depth: int,
    ridge: float,
    expected: float,
    least: int,
) -> float | None:
    """Return the share of relevant documents among the most similar, by what known positives and candidates say.

    It compares ``dense``, ``match`` and ``coverage`` of the known positives with those of the
    candidates (:func:`anmi.judging.prior.fit_contaminated`). Known positives are seldom average
    relevant documents, and these three kinds of evidence never tell surely, so it is rather an
    upper bound.

    Parameters
    ----------
    blocks
        Queries with ``dense`` of candidates and positives.
    material
        What evidence is gathered from.
    depth
        Candidates per query, the most similar.
    ridge, expected
        Of the fit.
    least
        Queries with a known positive among the most similar documents, below which there is nothing
        to learn: None.
    """
    wanted = [FEATURES[name] for name in _OF_THE_QUERY]

    def parts() -> Iterator[tuple[Candidates, Float32s, Int64s]]:
        for block in blocks:
            known = shown(block, depth)
            known = gather(known.take(reached(known.columns["dense"])), material)
            values = np.stack([each.value(known.columns, {}) for each in wanted], axis=2)
            yield known, values.astype(np.float32), np.zeros(len(known), np.int64)

    seen = examples(parts())
    if seen is None or seen.queries < least:
        return None
    scale = np.nanstd(seen.values, axis=0)
    inputs = np.nan_to_num(
        (seen.values - np.nanmean(seen.values, axis=0)) / np.where(scale > _FLAT, scale, 1)
    )
    return fit_contaminated(
        replace(seen, values=inputs), np.zeros(len(wanted)), ridge, expected
    ).share


def most_similar(blocks: Iterable[Candidates], material: Material, depth: int) -> list[Candidates]:
    """Return the blocks with the ``depth`` most similar candidates of every query alone, and with their evidence."""
    parts = []
    for block in blocks:
        near = nearest(block, depth)
        few = Candidates(
            query_ids=block.query_ids,
            positives=block.positives,
            documents=np.take_along_axis(block.documents, near, axis=1),
            source=np.zeros(near.shape, np.uint8),
            columns={"dense": np.take_along_axis(block.columns["dense"], near, axis=1)},
            positive_columns={"dense": block.positive_columns["dense"]},
        )
        parts.append(gather(few, material))
    return parts


def as_relevant(blocks: Iterable[Candidates], depth: int) -> tuple[float, float]:
    """Return an upper bound on the relevant documents of a query, and the share of known positives that are reached.

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
    found = 0.0
    for block in blocks:
        known = (block.positives != PADDING)[:, :_POSITIVES]
        queries += int(known.any(axis=1).sum())
        weight = known / np.maximum(known.sum(axis=1, keepdims=True), 1)
        for place, name in enumerate(name for name in ("dense", "bm25") if name in block.columns):
            own = block.positive_columns[name][:, :_POSITIVES]
            other = np.where(block.filled, block.columns[name], np.nan)[:, None, :]
            above, level = (
                (same(other, own[:, :, None])).sum(axis=2) for same in (np.greater, np.equal)
            )
            rank = np.where(np.isnan(own), np.inf, 1 + above + level / 2)
            within[place] += [float((weight * (rank < last + 1)).sum()) for last in _RANKS]
            found += float((weight * (rank <= depth)).sum()) if name == "dense" else 0.0
    # What never was seen may be so in half a query.
    return float((_RANKS * queries / np.maximum(within, 0.5)).min()), found / max(queries, 1)


def clusters(likeness: Float32s) -> Bools:
    """Mark groups of candidates that are far more like the positive than all others are, bool [Q, M].

    The likeness falls to less than half from the last of a group of at least three to the next
    document, and only there for the last time. Paraphrases are like that, and so are translations,
    and the parts of a series.

    Examples
    --------
    >>> clusters(np.array([[0.1, 0.5, 0.3, 0.4, 0.1, 0.09]], np.float32)).tolist()
    [[False, True, True, True, False, False]]
    """
    values = np.nan_to_num(likeness)
    ordered = -np.sort(-values, axis=1)[:, : _WIDEST + 1]
    falls = (ordered[:, :-1] >= _FALL * ordered[:, 1:]) & (ordered[:, :-1] >= _ALIKE)
    size = np.where(falls.any(axis=1), falls.shape[1] - np.argmax(falls[:, ::-1], axis=1), 0)
    least = np.take_along_axis(ordered, np.maximum(size - 1, 0)[:, None], axis=1)
    return (values >= least) & (size >= _FEWEST)[:, None]


def with_mean(model: FusedModel, values: Float32s, least: float) -> tuple[FusedModel, float]:
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
    least
        The share, between 0 and 1.

    Examples
    --------
    >>> model = FusedModel((0.0,) * 11, (1.0,) * 11, (1.0,) * 11, -6.0)
    >>> found, mean = with_mean(model, np.random.default_rng(0).normal(size=(500, 11)).astype(np.float32), 0.25)
    >>> round(mean, 2), found.intercept > model.intercept
    (0.25, True)
    """
    chance = model(values)
    chance = chance[np.isfinite(chance)]
    mean = float(chance.mean()) if len(chance) else least
    if mean >= least:
        return model, mean
    odds = scipy.special.logit(np.clip(chance, np.exp(-_FARTHEST / 2), None))

    def above(shift: float) -> float:
        return float(scipy.special.expit(odds + shift).mean()) - least

    shift = float(scipy.optimize.brentq(above, 0.0, _FARTHEST))
    return replace(model, intercept=model.intercept + shift), least
