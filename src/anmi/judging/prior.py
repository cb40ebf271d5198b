"""How many of the most similar documents are relevant, where the collection has no positive to hide.

Coefficients carry over from collection to collection, the share of relevant documents that they expect does not: on
SciFact the shipped ones expect 0.2 % where 1.2 % were hidden. So probabilities are raised until their mean over the
most similar documents is a share that is to be reckoned with: the odds of all are multiplied by one factor, as under a
label shift (Saerens et al. 2002, "Adjusting the Outputs of a Classifier to New a Priori Probabilities"). That paper's
own way to the share, EM over the candidates, is of no use here, since it takes for granted that the densities carry
over: on three of six collections it ends at 0 (benchmarks/calibration.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from anmi.candidates import Candidates
from anmi.judging.contaminated import fit_contaminated
from anmi.judging.evidence import Material, gather
from anmi.judging.examples import examples, joined
from anmi.judging.fused import FEATURES, FusedModel, features
from anmi.judging.hidden import nearest, reached, shown

# Evidence that a document has by itself: beside a known positive that positive would be no witness.
_OF_THE_QUERY: Final = ("dense", "match", "coverage")
_FLAT: Final = 1e-6
# Log-odds by which probabilities are raised, at most; no share between 1e-4 and ½ asks for more.
_FARTHEST: Final = 40.0


def share_by_known(
    blocks: Iterable[Candidates], material: Material, *, depth: int, ridge: float, expected: float, least: int
) -> float | None:
    """Return the share of relevant documents among the most similar, by what known positives and candidates say.

    It compares ``dense``, ``match`` and ``coverage`` of the known positives with those of the candidates
    (:func:`anmi.judging.contaminated.fit_contaminated`). Known positives are seldom average relevant documents, and
    these three kinds of evidence never tell surely, so it is rather an upper bound.

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
        Queries with a known positive among the most similar documents, below which there is nothing to learn: None.
    """
    parts = []
    wanted = [FEATURES[name] for name in _OF_THE_QUERY]
    for block in blocks:
        known = shown(block, depth)
        known = known.take(reached(known.columns["dense"]))
        if len(known):
            known = gather(known, material, ("coverage", "match"))
            values = np.stack([each.value(known.columns, {}) for each in wanted], axis=2)
            parts.append(examples(known, values.astype(np.float32), np.zeros(len(known), np.int64)))
    seen = joined(parts)
    if seen is None or seen.queries < least:
        return None
    scale = np.nanstd(seen.values, axis=0)
    inputs = np.nan_to_num((seen.values - np.nanmean(seen.values, axis=0)) / np.where(scale > _FLAT, scale, 1))
    nothing = np.zeros(len(wanted))
    return fit_contaminated(inputs, seen.labelled, seen.weights, nothing, ridge, expected, seen.queries).share


def most_similar(blocks: Iterable[Candidates], material: Material, depth: int) -> NDArray[np.float32]:
    """Return the judge's inputs of the ``depth`` most similar candidates of every query, float32 [n, K]."""
    parts = [np.zeros((0, len(FEATURES)), np.float32)]
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
        parts.append(features(gather(few, material))[few.filled])
    return np.concatenate(parts)


def raised(model: FusedModel, values: NDArray[np.float32], least: float) -> tuple[FusedModel, float]:
    """Return a model whose mean probability is at least a given share, and that mean.

    Probabilities are never lowered: what makes a judge doubt many documents may be that many are relevant, and a
    candidate that is doubted wrongly costs less than one that is trusted wrongly.

    Parameters
    ----------
    model
        Whose order of candidates is kept.
    values
        Inputs of the documents that the share is of, [n, K]; those of which nothing is known do not count.
    least
        The share, between 0 and 1.

    Examples
    --------
    >>> model = FusedModel((0.0,) * 11, (1.0,) * 11, (1.0,) * 11, -6.0)
    >>> found, mean = raised(model, np.random.default_rng(0).normal(size=(500, 11)).astype(np.float32), 0.25)
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
