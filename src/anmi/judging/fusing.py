"""The fused judge chooses its coefficients for a collection and adds P(relevant | evidence).

Evidence is gathered by :mod:`anmi.judging.evidence`; what is fitted, here and in
:mod:`anmi.judging.prior`, reads nothing but blocks that have it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from anmi import seeds
from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.engine.threads import ahead, in_threads
from anmi.errors import AnmiError
from anmi.judging.calibration import reliability
from anmi.judging.cross_encoder import fold_of
from anmi.judging.evidence import (
    Material,
    gather,
    gather_hidden,
    gather_known,
    gather_nearest,
    hide,
)
from anmi.judging.fused import (
    FEATURES,
    FusedModel,
    base_rate,
    features,
    shipped,
    transferred,
    with_network,
)
from anmi.judging.prior import (
    Contaminated,
    Examples,
    as_relevant,
    clusters,
    examples_of,
    fit_contaminated,
    share_by_known,
    with_mean,
)
from anmi.ragged import Bools, Float32s, Float64s, Int64s

log = logging.getLogger(__name__)
# Fewest queries whose labelled document is among the most similar ones to learn from.
_FEWEST_REACHED: Final = 50
# A mean over the candidates of this many queries is known to within a few per cent of itself.
_FOR_A_MEAN: Final = 1000
# From so many documents on that may be as relevant as the known positive, labels tell nothing. A
# weak encoder suggests about 12 where the truth is 1; six real collections have 1.6 to 6.3.
_TOO_MANY: Final = 25
# From this share of queries on that have a group of documents like the positive, such a group is
# relevant, too.
_CLUSTERED: Final = 0.4
_EVEN: Final = 0.5
_LARGEST_SHARE: Final = 0.9


class FusedOptions(BaseModel):
    """Where the coefficients of the fused judge come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["auto", "transfer"] = "auto"
    without: str | None = "auto"
    least_queries: int = Field(50, ge=1)
    folds: int = Field(3, ge=2, le=20)
    ridge: float = Field(0.003, ge=0)
    depth: int = Field(100, ge=1)
    hidden: int = Field(4, ge=1)
    most_queries: int = Field(4000, ge=1)
    prior: Literal["shipped", "estimated"] = "estimated"
    overshoot: float = Field(2.5, ge=1)


def provenance(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return which collections the shipped coefficients were fitted on, and which one was left out.

    Returns
    -------
    dict
        ``without`` (None for nothing) and ``fitted_on``; empty where no judge was asked.
    """
    return {name: summary[name] for name in ("without", "fitted_on") if name in summary}


@dataclass
class FusedJudge:
    """Adds P(relevant | evidence) to candidates.

    Parameters
    ----------
    options
        Where the coefficients come from.
    material
        What the evidence is gathered from.
    encoder
        Name of the encoder behind ``dense``; decides which shipped coefficients are used.
    seed
        Of the run; keys the folds.
    collection
        What is mined, as the parameter ``collection`` says it; decides what ``without: auto``
        leaves out.
    """

    options: FusedOptions
    material: Material
    encoder: str
    seed: int
    collection: str = ""
    models: list[FusedModel] = field(default_factory=list)
    queries: int = 0
    clustered: bool = False
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def _shipped(self) -> FusedModel:
        """The shipped coefficients, with the network's where there is one."""
        has_network = self.material.network is not None
        return transferred(
            with_network(self.encoder) if has_network else self.encoder, self.without
        )

    @property
    def without(self) -> str | None:
        """The collection that the shipped coefficients were fitted without; None for all six."""
        if self.options.without != "auto":
            return self.options.without
        return self.collection if self.collection in shipped()["without"] else None

    @property
    def _fewest_reached(self) -> int:
        return min(_FEWEST_REACHED, self.options.least_queries)

    def fold(self, block: Candidates) -> Int64s:
        """Fold of each row of a block, [Q]; queries of one text share a fold."""
        texts = [self.material.query_texts[str(query)] for query in block.query_ids]
        return fold_of(texts, self.options.folds, self.seed)

    def fit(self, shards: CandidateShards) -> None:
        """Choose the coefficients, and refine them on hidden positives where there are enough."""
        self.models = []
        self.queries = 0
        with_several = 0
        for block in ahead(shards.only()):
            self.queries += len(block)
            with_several += int(((block.positives != PADDING).sum(axis=1) > 1).sum())
        self.summary = {
            "options": self.options.model_dump(mode="json"),
            "without": self.without,
            "fitted_on": [name for name in shipped()["without"] if name != self.without],
            "queries_with_several_positives": with_several,
        }
        reason = self._refine(shards, with_several)
        few_queries = min(self.options.most_queries, _FOR_A_MEAN)
        nearest = [
            gather_nearest(block, self.material, self.options.depth)
            for block in self._samples(shards, self.queries, few_queries)
        ]
        if reason:
            self._transfer(shards, nearest, reason)
        self._check_similar_documents(shards, nearest)
        self.summary["models"] = [model.as_dict() for model in self.models]

    def _samples(
        self, shards: CandidateShards, queries: int, sample_size: int
    ) -> Iterator[Candidates]:
        """Yield about ``sample_size`` of so many queries to learn from, whatever the shards."""
        for block in ahead(shards.only("dense")):
            no_documents = np.zeros((len(block), 1), np.int32)
            query_ids = block.query_ids.tolist()
            draws = seeds.uniform(self.seed, "judging/fused", query_ids, no_documents)[:, 0]
            yield block.take(draws * queries < sample_size)

    def _refine(self, shards: CandidateShards, with_several: int) -> str:
        """Learn coefficients from hidden positives; return why there are too few, or nothing."""
        options = self.options
        if options.mode == "transfer":
            return "mode is transfer"
        if with_several < options.least_queries:
            return (
                f"{with_several} queries with several positives are fewer than"
                f" {options.least_queries}"
            )
        examples = examples_of(self._hidden(shards, with_several))
        queries = 0 if examples is None else examples.queries
        if examples is None or queries < self._fewest_reached:
            return f"{queries} queries have a further positive among the most similar documents"
        self._learn(examples)
        log.info(
            "fused judge: learned its coefficients from %d queries with several positives", queries
        )
        return ""

    def _hidden(
        self, shards: CandidateShards, with_several: int
    ) -> Iterator[tuple[Candidates, Float32s, Int64s]]:
        """Yield hidden positives and the candidates beside them, their inputs and folds."""
        options = self.options
        for block in self._samples(shards, with_several, options.most_queries):
            hidden = gather_hidden(block, self.material, options.depth, options.hidden, self.seed)
            yield hidden, features(hidden), self.fold(hidden)

    def _learn(self, examples: Examples) -> None:
        from sklearn.metrics import roc_auc_score

        shipped_model = self._shipped
        p_labelled = np.zeros(len(examples.values))
        shares = []
        folds = range(self.options.folds)
        fit = partial(self._fit_without, examples)
        for fold, fitted in enumerate(in_threads(fit, folds, os.cpu_count() or 1)):
            model = replace(
                shipped_model, coefficients=fitted.coefficients, intercept=fitted.intercept
            )
            self.models.append(model)
            shares.append(fitted.share)
            # Labelled and unlabelled weighing the same: f₁ / (f₁ + f), f₁ / f = p_relevant / share.
            held_out = examples.fold == fold
            p_relevant = model(examples.values[held_out])
            p_labelled[held_out] = p_relevant / (p_relevant + fitted.share)
        share = float(np.mean(shares))
        log.info(
            "fused judge: about %.2g %% of the most similar unlabelled documents are relevant",
            100 * share,
        )
        weights = examples.weights
        judge = {
            "auc": float(roc_auc_score(examples.labelled, p_labelled, sample_weight=weights)),
            "reliability": reliability(p_labelled, examples.labelled, weights=weights),
            "method": "hidden positives against unlabelled candidates, each query's of the same"
            " weight, cross-fitted",
        }
        self.summary |= {
            "mode": "hidden",
            "hidden_positives": int(examples.labelled.sum()),
            "estimated_prior": share,
            "judges": {"fused": judge},
        }

    def _fit_without(self, examples: Examples, fold: int) -> Contaminated:
        """Fit on all folds but one."""
        shipped_model = self._shipped
        learned = examples.take(examples.fold != fold)
        if len(np.unique(learned.labelled)) < 2:
            raise AnmiError(
                f"{self.options.folds} folds leave no hidden positive to learn from; lower"
                " denoising.fused.folds or use mode: transfer"
            )
        chances = np.nan_to_num(shipped_model(learned.values))
        mean = float(np.average(chances, weights=learned.weights * ~learned.labelled))
        # What the shipped coefficients find may be far too little; see anmi.judging.prior.
        expected = min(max(mean, base_rate(self.encoder, self.without)), _EVEN)
        standard = replace(learned, values=shipped_model.standardised(learned.values))
        centre = np.array(shipped_model.coefficients)
        return fit_contaminated(standard, centre, self.options.ridge, expected)

    def _transfer(
        self,
        shards: CandidateShards,
        nearest: list[Candidates],
        reason: str,
    ) -> None:
        """Use the shipped coefficients, raised to the share of relevant documents to expect."""
        options = self.options
        shipped_model = self._shipped
        self.summary |= {"mode": "transfer", "provenance": shipped()["provenance"]}
        say = log.info if self.queries else log.debug
        is_fitted = self.encoder in shipped()["models"]
        blind = f" without vectors (encoder {self.encoder} was not among those fitted)"
        say(
            "fused judge: uses the shipped coefficients%s, since %s",
            "" if is_fitted else blind,
            reason,
        )
        self.models = [shipped_model]
        if options.prior == "shipped":
            return
        base = base_rate(self.encoder, self.without)
        by_known = share_by_known(
            (
                gather_known(block, self.material, options.depth)
                for block in self._samples(shards, self.queries, options.most_queries)
            ),
            ridge=options.ridge,
            expected=base,
            fewest_queries=self._fewest_reached,
        )
        values = _inputs(nearest)
        _, by_judge = with_mean(shipped_model, values, 0.0)
        expected = max(base, (by_known or 0.0) / options.overshoot)
        model, share = with_mean(shipped_model, values, expected)
        self.models = [model]
        self.summary |= {
            "shipped_prior": base,
            "prior_by_known": by_known,
            "prior_by_judge": by_judge,
            "estimated_prior": share,
        }
        say(
            "fused judge: assumes that %.2g %% of the most similar documents are relevant%s",
            100 * share,
            f" (shipped coefficients alone: {100 * by_judge:.2g} %)" if share > by_judge else "",
        )

    def _check_similar_documents(self, shards: CandidateShards, nearest: list[Candidates]) -> None:
        """Look for what coefficients cannot see.

        These are groups of documents that are like the positive, and too many that are as near.
        """
        queries = sum(len(block) for block in nearest)
        if queries < _FEWEST_REACHED:
            return
        groups = [clusters(block.columns["likeness_terms"]) for block in nearest]
        grouped = sum(int(group.any(axis=1).sum()) for group in groups) / queries
        self.clustered = grouped >= _CLUSTERED
        if self.clustered:
            log.info(
                "fused judge: %.0f %% of the queries have a group of documents that resemble the"
                " positive far more than all others do; it counts them as relevant",
                100 * grouped,
            )
        count, reached_share = as_relevant(ahead(shards.only("dense", "bm25")), self.options.depth)
        self.summary |= {"as_relevant": count, "grouped": grouped, "warning": None}
        values = _inputs(nearest)
        is_grouped = np.concatenate(
            [group[block.filled] for group, block in zip(groups, nearest, strict=True)]
        )
        chance = np.nanmean([model(values) for model in self.models], axis=0)
        mean = float(np.nanmean(self._raised(chance, is_grouped)))
        more_relevant = (count - 1) * reached_share * queries
        share = min(more_relevant / max(len(values), 1), _LARGEST_SHARE)
        # The coefficients were learned from labels that tell nothing where more documents are as
        # relevant as a pool holds, or as the judge expects.
        tells_nothing = share >= 2 * mean or count > self.options.depth
        if count < _TOO_MANY or not tells_nothing:
            return
        if self.options.prior == "estimated":
            self.models = [with_mean(model, values, share)[0] for model in self.models]
        self.summary["warning"] = (
            f"labelled documents rank no higher than {count:.0f} others of their query, so nobody"
            " can tell how many of these are relevant, and negatives are drawn from lower ranks"
        )
        log.warning("fused judge: %s", self.summary["warning"])

    def _raised(self, chance: Float64s, is_grouped: Bools) -> Float64s:
        """Return probabilities, at least even in groups like the positive where these count."""
        return np.where(is_grouped & self.clustered, np.fmax(chance, _EVEN), chance)

    def probability(self, block: Candidates) -> Float64s:
        """P(relevant) of the candidates of a block that has its evidence, [Q, M]."""
        values = features(block)
        if len(self.models) == 1:
            return self.models[0](values)
        probability = np.full(block.documents.shape, np.nan)
        folds = self.fold(block)
        for fold, model in enumerate(self.models):
            probability[folds == fold] = model(values[folds == fold])
        return probability

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with evidence, ``p_evidence``, and ``p_heldout`` of hidden positives.

        ``p_heldout`` is what a known positive would be given were it an unlabelled candidate, by
        coefficients that did not see its query.
        """
        held_out = np.full(block.positives.shape, np.nan, np.float32)
        hidden, rows, slots = hide(block, 0)
        if len(hidden):
            held_out[rows, slots] = self.probability(gather(hidden, self.material))[:, 0]
        block = gather(block, self.material)
        probability = np.where(block.filled, self.probability(block), np.nan)
        if self.clustered:
            probability = self._raised(probability, clusters(block.columns["likeness_terms"]))
        return block.with_columns(
            columns={"p_evidence": probability},
            positive_columns={"p_evidence": held_out, "p_heldout": held_out},
        )


def _inputs(blocks: list[Candidates]) -> Float32s:
    """Inputs of the judge of the candidates of blocks, float32 [n, K]."""
    inputs = [features(block)[block.filled] for block in blocks]
    return np.concatenate([np.zeros((0, len(FEATURES)), np.float32), *inputs])


def contributions(
    block: Candidates,
    summary: dict[str, Any],
    fold: int = 0,
) -> dict[str, Float64s]:
    """What each kind of evidence adds to the log-odds of a block's candidates, [Q, M] by evidence.

    Parameters
    ----------
    block
        With its evidence.
    summary
        Of the judge, as saved.
    fold
        Whose coefficients are used; 0 for shipped ones.
    """
    models = summary["models"]
    model = FusedModel.from_dict(models[min(fold, len(models) - 1)])
    by_kind = model.contributions(features(block))
    return {kind: added for kind, added in by_kind.items() if kind in block.columns}
