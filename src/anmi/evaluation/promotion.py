"""Whether a newly trained model takes the place of the one in use.

A model that is trained every night on nearly the same data is rarely better by a margin that a test
could show. So the question is not whether it is better but whether it can be worse: it is promoted
when a paired, one-sided test excludes that it loses more than a margin (non-inferiority), and when
few of its negatives are relevant.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from anmi.errors import AnmiError
from anmi.evaluation.significance import interval

PROMOTED: Final = "promoted"
KEPT: Final = "kept"
# How each condition of the rule ended.
PASSED: Final = "passed"
FAILED: Final = "failed"


class PromotionRule(BaseModel):
    """When a challenger becomes champion."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["hybrid", "dense"] = "hybrid"
    margin: float = Field(0.01, ge=0, lt=1)
    training_noise: float = Field(0.0055, ge=0, lt=1)
    confidence: float = Field(0.95, gt=0.5, lt=1)
    min_queries: int = Field(50, ge=2)
    min_unlabelled: int = Field(50, ge=2)
    max_false_negative_rate: float = Field(0.05, ge=0, le=1)

    @property
    def luck(self) -> float:
        """Difference that the seed alone makes, exceeded by a share of 1 − confidence."""
        return NormalDist().inv_cdf(self.confidence) * math.sqrt(2) * self.training_noise

    @property
    def allowed(self) -> float:
        """Loss that keeps nobody from being promoted: the margin or the luck, whichever is more."""
        return max(self.margin, self.luck)


@dataclass(frozen=True)
class FalseNegativeRate:
    """How many of a recipe's negatives are relevant.

    ``value, low, high`` as of :func:`anmi.evaluation.significance.share`, NaN where there are none;
    ``count`` of ``negatives``; ``failed`` says why it is not known. ``of`` is ``audited`` for what
    an audit's queries got, ``drawn`` for what training drew for its own.
    """

    value: float
    low: float
    high: float
    count: int
    negatives: int
    failed: str = ""
    of: Literal["audited", "drawn"] = "audited"


@dataclass(frozen=True)
class Decision:
    """What is done with the challenger, and why.

    Attributes
    ----------
    decision
        ``promoted`` or ``kept`` (the champion is).
    reasons
        What each condition came to, ``passed: …`` or ``failed: …``, with the figures it rests on.
    figures
        The numbers by name; what was not measured is missing.
    """

    decision: Literal["promoted", "kept"]
    reasons: tuple[str, ...]
    figures: dict[str, float]


def decide(
    challenger: pd.Series[Any],
    champion: pd.Series[Any] | None,
    rate: FalseNegativeRate | str,
    rule: PromotionRule,
    *,
    seed: int,
    resamples: int = 10_000,
    unlabelled: Collection[str] = (),
) -> Decision:
    """Apply the rule.

    Both are nDCG@10 of each test query, by query id; without a champion its place is free. ``rate``
    is a sentence where there is nothing to measure, which keeps nobody from being promoted.
    ``unlabelled`` are the ids of the queries none of whose documents a label of the challenger's
    training names: it may lose no more on these than is allowed either.

    Raises
    ------
    AnmiError
        There is no test query, or the two were not asked the same ones.

    Notes
    -----
    The bound is the lower end of the two-sided percentile interval of confidence 2c − 1 of the mean
    difference, which leaves 1 − c below it. Of that rate it is the upper end that counts, unlike in
    ``audit.max_false_negative_rate``: nobody looks on when a model is promoted at night, so a doubt
    keeps the champion; an audit of more queries removes it.

    On these it is the mean difference itself that is held against the margin. They are a part of
    all queries, and the bound on so few would keep a champion for ever.

    Examples
    --------
    >>> champion = pd.Series([0.5, 0.75] * 30, index=[f"q{i}" for i in range(60)])
    >>> rate = FalseNegativeRate(0.01, 0.0, 0.02, 10, 1000)
    >>> better = decide(champion + 0.25, champion, rate, PromotionRule(), seed=1)
    >>> better.decision, better.figures["difference"], better.figures["bound"]
    ('promoted', 0.25, 0.25)
    >>> decide(champion - 0.25, champion, "not mined", PromotionRule(), seed=1).decision
    'kept'
    """
    if challenger.empty:
        raise AnmiError(
            "the test set is empty, so no models can be compared; give the collection test queries"
        )
    checks = [_compare(challenger, champion, rule, seed, resamples)]
    if champion is not None:
        checks.append(_generalises(challenger, champion, unlabelled, rule))
    checks.append(_audit(rate, rule))
    figures: dict[str, float] = {}
    for _, _, check_figures in checks:
        figures |= check_figures
    reasons = tuple(
        f"{PASSED if holds else FAILED}: {sentence}" for holds, sentence, _ in checks if sentence
    )
    is_promoted = all(holds for holds, _, _ in checks)
    return Decision("promoted" if is_promoted else "kept", reasons, figures)


def _compare(
    challenger: pd.Series[Any],
    champion: pd.Series[Any] | None,
    rule: PromotionRule,
    seed: int,
    resamples: int,
) -> tuple[bool, str, dict[str, float]]:
    figures = {"queries": float(len(challenger)), "challenger": float(challenger.mean())}
    if champion is None:
        return (
            True,
            f"there is no champion yet, and the challenger has nDCG@10 {challenger.mean():.4f}",
            figures,
        )
    if set(challenger.index) != set(champion.index) or not (
        challenger.index.is_unique and champion.index.is_unique
    ):
        raise AnmiError(
            f"champion and challenger were asked different queries ({len(champion)} and"
            f" {len(challenger)}), which is no paired comparison; run the whole pipeline again"
        )
    figures["champion"] = float(champion.mean())
    if len(challenger) < rule.min_queries:
        sentence = (
            f"{len(challenger)} test queries are fewer than the {rule.min_queries} that a"
            " comparison needs (retrain.rule.min_queries)"
        )
        return False, sentence, figures
    difference = (challenger - champion.reindex(challenger.index)).to_numpy()
    mean, bound, _ = interval(
        difference,
        seed=seed,
        resamples=resamples,
        confidence=2 * rule.confidence - 1,
    )
    figures |= {"difference": mean, "bound": bound, "margin": rule.allowed, "luck": rule.luck}
    holds = bound >= -rule.allowed
    verdict = "not inferior" if holds else "not shown to be non-inferior"
    sentence = (
        f"the challenger is {verdict}: nDCG@10 {figures['challenger']:.4f} against"
        f" {figures['champion']:.4f} on the same {len(challenger)} queries, a difference of"
        f" {mean:+.4f} that is with {rule.confidence:.0%} confidence at least {bound:+.4f}; allowed"
        f" loss: {rule.allowed:.4f}; the seed alone makes trainings on the same data differ by up"
        f" to {rule.luck:.4f} (retrain.rule.training_noise)"
        + (", so the difference may be luck" if abs(mean) <= rule.luck else "")
    )
    return holds, sentence, figures


def _generalises(
    challenger: pd.Series[Any],
    champion: pd.Series[Any],
    unlabelled: Collection[str],
    rule: PromotionRule,
) -> tuple[bool, str, dict[str, float]]:
    query_ids = challenger.index.intersection(pd.Index(list(unlabelled), dtype=object))
    figures = {"unlabelled_queries": float(len(query_ids))}
    if len(query_ids) < rule.min_unlabelled:
        return True, "", figures
    difference = float((challenger[query_ids] - champion[query_ids]).mean())
    holds = difference >= -rule.allowed
    sentence = (
        f"on the {len(query_ids)} queries whose documents no training label names the challenger "
        f"{'keeps' if holds else 'loses'} quality: a difference of {difference:+.4f}; allowed "
        f"loss: {rule.allowed:.4f}"
    )
    return holds, sentence, figures | {"unlabelled_difference": difference}


def _audit(
    rate: FalseNegativeRate | str, rule: PromotionRule
) -> tuple[bool, str, dict[str, float]]:
    if isinstance(rate, str):
        return True, rate, {}
    if rate.failed or math.isnan(rate.value):
        reason = rate.failed or "it chose no negative for any audited query"
        return False, f"the false-negative rate of the recipe is not known: {reason}", {}
    holds = rate.high <= rule.max_false_negative_rate
    sentence = (
        f"of {rate.negatives} {rate.of} negatives {rate.count} are relevant ({rate.value:.2%}, 95 %"
        f" interval over queries {rate.low:.2%} to {rate.high:.2%}), and its upper end"
        f" {'stays within' if holds else 'exceeds'} the bound of {rule.max_false_negative_rate:.2%}"
    )
    if not holds and rate.value <= rule.max_false_negative_rate and rate.of == "audited":
        sentence += (
            "; the estimate is below it, so an audit of more queries (audit.queries) may tell"
        )
    figures = {
        "false_negative_rate": rate.value,
        "false_negative_rate_low": rate.low,
        "false_negative_rate_high": rate.high,
        "max_false_negative_rate": rule.max_false_negative_rate,
    }
    return holds, sentence, figures
