"""P(relevant | evidence): one calibrated judgment from many small ones.

A logistic model over the evidence, each piece also relative to the known positive's own value.
Coefficients are never negative, since every piece of evidence speaks for relevance, and a ridge
pulls them to one another when collections with planted truth are fitted for shipping, to the
shipped ones when a collection's own hidden positives refine them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from anmi.candidates import PADDING, SHIFT, Candidates
from anmi.errors import AnmiError, nearest
from anmi.judging.evidence import NETWORK
from anmi.ragged import Bools, Float32s, Float64s

Values = Mapping[str, NDArray[Any]]
_TINY: Final = 1e-9
# From it on what a language model read is promoted, which is wrong in no more than 5 % of the
# cases.
SURE: Final = 0.95
_SHIPPED: Final = "fused_transfer.json"


def _closeness(share: NDArray[Any]) -> NDArray[Any]:
    """Stretch a share near 1: −log(1 − share + 0.05), from −0.05 to 3."""
    return -np.log(np.clip(1 - share, 0, 1) + 0.05)


def _ratio(values: Values, of_positives: Values) -> NDArray[Any]:
    """Match as a share of the positive's."""
    return (values["match"] + 0.02) / (of_positives["match"] + 0.02)


def _gap(name: str) -> Callable[[Values, Values], NDArray[Any]]:
    """Return what takes the positive's value from the candidate's."""
    return lambda values, of_positives: np.clip(values[name] - of_positives[name], -1, 0.3)


def _close(name: str) -> Callable[[Values, Values], NDArray[Any]]:
    return lambda values, _: _closeness(values[name])


@dataclass(frozen=True)
class Feature:
    """One input of the model: the evidence it is made of and how.

    Attributes
    ----------
    evidence
        Column it belongs to; contributions are summed by it.
    value
        From the evidence of the candidates [Q, M] and its mean over the known positives [Q, 1] to
        [Q, M]. Larger values speak for relevance.
    """

    evidence: str
    value: Callable[[Values, Values], NDArray[Any]]


FEATURES: Final[dict[str, Feature]] = {
    "dense": Feature("dense", _close("dense")),
    "dense_gap": Feature("dense", _gap("dense")),
    "match": Feature("match", lambda values, _: values["match"]),
    "match_ratio": Feature(
        "match", lambda values, positives: np.log(np.clip(_ratio(values, positives), 0.02, 2))
    ),
    "match_reached": Feature(
        "match", lambda values, positives: _closeness(np.minimum(_ratio(values, positives), 1))
    ),
    "coverage": Feature("coverage", _close("coverage")),
    "coverage_reached": Feature(
        "coverage",
        lambda values, positives: _closeness(1 - positives["coverage"] + values["coverage"]),
    ),
    "likeness": Feature("likeness", _close("likeness")),
    "likeness_terms": Feature("likeness_terms", _close("likeness_terms")),
    "containment": Feature("containment", _close("containment")),
    "contained": Feature("contained", _close("contained")),
    "network_gap": Feature(NETWORK, _gap(NETWORK)),
}
OF_NETWORK: Final = "network_gap"
# What stands in coefficients without the network in the place of its own.
_ABSENT: Final = {"mean": 0.0, "scale": 1.0, "coefficients": 0.0}
EVIDENCE: Final = tuple(dict.fromkeys(feature.evidence for feature in FEATURES.values()))


def features(block: Candidates) -> Float32s:
    """Return the model's inputs in the order of :data:`FEATURES`, float32 [Q, M, K], or NaN.

    Raises
    ------
    AnmiError
        A column of evidence other than ``network`` is missing from the block.
    """
    columns = {NETWORK: np.full(block.documents.shape, np.nan), **block.columns}
    unknown = np.full(block.positives.shape, np.nan)
    positive_columns = {NETWORK: unknown, **block.positive_columns}
    missing = [name for name in EVIDENCE if name not in columns]
    if missing:
        raise AnmiError(
            f'the evidence "{missing[0]}" has not been gathered for these candidates; run denoising'
            " again"
        )
    is_known = block.positives != PADDING
    of_positives = {
        name: _mean_known(positive_columns[name], is_known)
        for name in ("dense", "match", "coverage", NETWORK)
    }
    with np.errstate(invalid="ignore"):
        inputs = [feature.value(columns, of_positives) for feature in FEATURES.values()]
    return np.stack(inputs, axis=2).astype(np.float32)


def _mean_known(values: Float32s, is_known: Bools) -> Float64s:
    """Mean over each row's known positives that have a value, [Q, 1]; NaN in rows without any."""
    is_used = is_known & np.isfinite(values)
    count = is_used.sum(axis=1, keepdims=True)
    total = np.where(is_used, values, 0).sum(axis=1, keepdims=True)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@dataclass(frozen=True)
class FusedModel:
    """Coefficients of the logistic model.

    Attributes
    ----------
    mean, scale
        By which each input is standardised; an unknown input counts as average. K numbers each.
    coefficients
        K numbers ≥ 0, on standardised inputs.
    intercept
        Log-odds of an average candidate.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float

    def standardised(self, values: Float32s) -> Float64s:
        """Inputs [..., K] with mean 0 and scale 1, unknown ones 0."""
        return np.nan_to_num((values - np.array(self.mean)) / np.array(self.scale))

    def __call__(self, values: Float32s) -> Float64s:
        """P(relevant) from inputs [..., K]; NaN where every input is unknown."""
        odds = self.standardised(values) @ np.array(self.coefficients) + self.intercept
        probability = np.minimum(scipy.special.expit(odds), 1 - _TINY)
        return np.where(np.isnan(values).all(axis=-1), np.nan, probability)

    def contributions(self, values: Float32s) -> dict[str, Float64s]:
        """Return what each kind of evidence adds to an average candidate's log-odds, [...] each."""
        added = self.standardised(values) * np.array(self.coefficients)
        kinds = np.array([feature.evidence for feature in FEATURES.values()])
        return {kind: added[..., kinds == kind].sum(axis=-1) for kind in EVIDENCE}

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers by the name of the input."""
        named = {field: dict(zip(FEATURES, getattr(self, field), strict=True)) for field in _ABSENT}
        return asdict(self) | named

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> FusedModel:
        """Rebuild a model from :meth:`as_dict`.

        Raises
        ------
        AnmiError
            The inputs are not those of this version.
        """
        try:
            numbers = {}
            for field, absent in _ABSENT.items():
                by_feature = {OF_NETWORK: absent} | raw[field]
                numbers[field] = tuple(float(by_feature[feature]) for feature in FEATURES)
            return FusedModel(**numbers, intercept=float(raw["intercept"]))
        except (KeyError, TypeError, ValueError) as error:
            raise AnmiError(
                f"the coefficients of the fused judge do not fit this version ({error} is missing,"
                " unknown or not a number): run denoising again, or benchmarks/fit_fused.py for"
                " the shipped ones"
            ) from error


@cache
def shipped() -> dict[str, Any]:
    """Return the shipped coefficients and where they come from.

    Returns
    -------
    dict
        ``models`` by encoder (``minilm``, ``static``, ``corpus``, ``other``; ``corpus and network``
        with the network's evidence), ``without`` with such models by the name of a collection that
        had no part in them, and ``provenance``.
    """
    return json.loads(
        resources.files("anmi.judging").joinpath(_SHIPPED).read_text(encoding="utf-8")
    )


def with_network(encoder: str) -> str:
    """Return the name of the shipped model for an encoder beside a packaged network.

    Examples
    --------
    >>> with_network("corpus") in shipped()["models"], with_network("minilm") in shipped()["models"]
    (True, False)
    """
    return f"{encoder} and {NETWORK}"


def transferred(encoder: str, without: str | None = None) -> FusedModel:
    """Return the shipped model for an encoder, one without vectors for an unknown encoder.

    Parameters
    ----------
    encoder
        Its name, or that of :func:`with_network`.
    without
        A collection whose truth is to have had no part in the coefficients; None takes those of
        all.

    Raises
    ------
    AnmiError
        No coefficients were fitted without that collection.
    """
    raw = shipped()
    if without is not None and without not in raw["without"]:
        raise AnmiError(
            f'no coefficients were fitted without "{without}"; {nearest(without, raw["without"])}'
        )
    models = raw["models"] if without is None else raw["without"][without]
    return FusedModel.from_dict(models.get(encoder, models["other"]))


def base_rate(encoder: str, without: str | None = None) -> float:
    """Return the share of relevant documents in the pools behind the shipped coefficients.

    Parameters are those of :func:`transferred`; every collection weighs the same.
    """
    by_encoder = shipped()["provenance"]["collections"]
    rates = [
        collection["planted"] / collection["candidates"]
        for collection in by_encoder.get(encoder, by_encoder["minilm"])
        if collection["collection"] != without
    ]
    return float(np.mean(rates))


def log_odds(probability: NDArray[Any]) -> Float64s:
    """Log-odds of probabilities of any precision, within ±21; NaN stays NaN.

    Examples
    --------
    >>> log_odds(np.array([0.5, 1.0], np.float32)).round(1).tolist()
    [0.0, 20.7]
    """
    # In float32 the upper bound would be 1, whose log-odds are infinite.
    return scipy.special.logit(np.clip(np.asarray(probability, np.float64), _TINY, 1 - _TINY))


def combined(
    probability: NDArray[Any],
    second_probability: NDArray[Any],
    weight: float,
    prior: float,
) -> Float32s:
    """Add a second judge's evidence to a probability: logit p + weight · (logit q − logit prior).

    Parameters
    ----------
    probability
        P(relevant) by the fused judge, any shape.
    second_probability
        The second judge's calibrated probability of the same shape; NaN, not judged, changes
        nothing.
    weight
        ≥ 0; how far the second judge is trusted.
    prior
        Base rate the second judge is calibrated at.

    Examples
    --------
    >>> combined(np.array([0.1, 0.1]), np.array([0.5, np.nan]), 1.0, 0.1).round(2).tolist()
    [0.5, 0.10000000149011612]
    """
    added_odds = log_odds(second_probability) - scipy.special.logit(prior)
    odds = log_odds(probability) + weight * np.nan_to_num(added_odds)
    return scipy.special.expit(odds).astype(np.float32)


def unread(columns: Mapping[str, Float32s], name: str) -> Float32s:
    """Return a probability as it would be had no language model been asked."""
    if SHIFT not in columns or name not in ("p_evidence", "p_relevant", "p_heldout"):
        return columns[name]
    return scipy.special.expit(log_odds(columns[name]) - columns[SHIFT]).astype(np.float32)
