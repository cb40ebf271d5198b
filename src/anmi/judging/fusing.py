"""The fused judge chooses its coefficients for a collection and adds P(relevant | evidence) to candidates."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from anmi import seeds
from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.engine.threads import ahead, in_threads
from anmi.errors import AnmiError
from anmi.judging.calibration import reliability
from anmi.judging.cross_encoder import fold_of
from anmi.judging.evidence import Material, gather
from anmi.judging.fused import (
    FEATURES,
    FusedModel,
    base_rate,
    features,
    shipped,
    transferred,
    with_network,
)
from anmi.judging.hidden import Examples, examples, hide, reached
from anmi.judging.prior import (
    Contaminated,
    as_relevant,
    clusters,
    fit_contaminated,
    most_similar,
    share_by_known,
    with_mean,
)
from anmi.ragged import Float32s, Float64s, Int64s

log = logging.getLogger(__name__)
# Queries whose labelled document is among the most similar ones, below which nothing is learned
# from them.
_LEAST_REACHED: Final = 50
# A mean over the candidates of this many queries is known to within a few per cent of itself.
_FOR_A_MEAN: Final = 1000
# Where so many documents may be as relevant as the known positive, nothing is known of them. With a
# weak encoder half as many seem to be where one is; six real collections have 1.6 to 6.3.
_TOO_MANY: Final = 25
# Share of the queries with a group of documents like the positive from which on these are relevant,
# too.
_CLUSTERED: Final = 0.4
_AS_LIKELY: Final = 0.5
_MOST: Final = 0.9


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
    """Return of a judge's summary whose truth had a part in its shipped coefficients and whose had none.

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
        network = self.material.network
        name = self.encoder if network is None else with_network(self.encoder)
        return transferred(name, self.without)

    @property
    def without(self) -> str | None:
        """The collection whose truth had no part in the shipped coefficients; None where all six had."""
        if self.options.without != "auto":
            return self.options.without
        return self.collection if self.collection in shipped()["without"] else None

    def fit(self, shards: CandidateShards) -> None:
        """Choose the coefficients, and refine them on hidden positives where there are enough."""
        self.models = []
        self.queries = 0
        several = 0
        for block in ahead(shards.only()):
            self.queries += len(block)
            several += int(((block.positives != PADDING).sum(axis=1) > 1).sum())
        self.summary = {
            "options": self.options.model_dump(mode="json"),
            "without": self.without,
            "fitted_on": [name for name in shipped()["without"] if name != self.without],
            "queries_with_several_positives": several,
        }
        reason = self._refine(shards, several)
        some = min(self.options.most_queries, _FOR_A_MEAN)
        sample = (self._sample(block, self.queries, some) for block in ahead(shards.only("dense")))
        near = most_similar(sample, self.material, self.options.depth)
        if reason:
            self._transfer(shards, near, reason)
        self._check_similar_documents(shards, near)
        self.summary["models"] = [model.as_dict() for model in self.models]

    def _refine(self, shards: CandidateShards, several: int) -> str:
        """Learn coefficients from hidden positives; return why there is too little to learn from, or nothing."""
        if self.options.mode == "transfer":
            return "mode is transfer"
        reason = (
            f"{several} queries with several positives are fewer than {self.options.least_queries}"
        )
        if several >= self.options.least_queries:
            seen = self._hidden(shards, several)
            found = 0 if seen is None else seen.queries
            if seen is not None and found >= self._least_reached:
                self._learn(seen)
                log.info(
                    "fused judge: learned its coefficients from %d queries with several positives",
                    found,
                )
                return ""
            reason = f"{found} queries have a further positive among the most similar documents"
        return reason

    def _check_similar_documents(self, shards: CandidateShards, near: list[Candidates]) -> None:
        """Look for what coefficients cannot see: groups that are like the positive, and too many that are as near."""
        queries = sum(len(block) for block in near)
        if queries < _LEAST_REACHED:
            return
        groups = [clusters(block.columns["likeness_terms"]) for block in near]
        grouped = sum(int(each.any(axis=1).sum()) for each in groups) / queries
        self.clustered = grouped >= _CLUSTERED
        if self.clustered:
            log.info(
                "fused judge: %.0f %% of the queries have a group of documents that resemble the"
                " positive far more than all others do; it counts them as relevant",
                100 * grouped,
            )
        values = _inputs(near)
        group = np.concatenate(
            [each[block.filled] for each, block in zip(groups, near, strict=True)]
        )
        count, reached_share = as_relevant(ahead(shards.only("dense", "bm25")), self.options.depth)
        chance = np.nanmean([model(values) for model in self.models], axis=0)
        mean = float(
            np.nanmean(np.where(group & self.clustered, np.fmax(chance, _AS_LIKELY), chance))
        )
        share = min((count - 1) * reached_share * queries / max(len(values), 1), _MOST)
        self.summary |= {"as_relevant": count, "grouped": grouped, "warning": None}
        # Where they are more than a pool holds, the coefficients were learned from labels that tell
        # nothing.
        if count < _TOO_MANY or (share < 2 * mean and count <= self.options.depth):
            return
        if self.options.prior == "estimated":
            self.models = [with_mean(model, values, share)[0] for model in self.models]
        self.summary["warning"] = (
            f"labelled documents rank no higher than {count:.0f} others of their query, so nobody"
            " can tell how many of these are relevant, and negatives are drawn from lower ranks"
        )
        log.warning("fused judge: %s", self.summary["warning"])

    def _transfer(self, shards: CandidateShards, near: list[Candidates], reason: str) -> None:
        """Use the shipped coefficients, raised to the share of relevant documents that is to be reckoned with."""
        options = self.options
        shared = self._shipped
        base = base_rate(self.encoder, self.without)
        self.summary |= {"mode": "transfer", "provenance": shipped()["provenance"]}
        say = log.info if self.queries else log.debug
        known = self.encoder in shipped()["models"]
        blind = (
            "" if known else f" without vectors (encoder {self.encoder} was not among those fitted)"
        )
        say("fused judge: uses the shipped coefficients%s, since %s", blind, reason)
        self.models = [shared]
        if options.prior == "shipped":
            return
        values = _inputs(near)
        by_known = share_by_known(
            (self._sample(block, self.queries) for block in ahead(shards.only("dense"))),
            self.material,
            depth=options.depth,
            ridge=options.ridge,
            expected=base,
            least=self._least_reached,
        )
        mean = with_mean(shared, values, 0.0)[1]
        model, share = with_mean(shared, values, max(base, (by_known or 0.0) / options.overshoot))
        self.models = [model]
        self.summary |= {
            "shipped_prior": base,
            "prior_by_known": by_known,
            "prior_by_judge": mean,
            "estimated_prior": share,
        }
        alone = f" (shipped coefficients alone: {100 * mean:.2g} %)" if share > mean else ""
        say(
            "fused judge: assumes that %.2g %% of the most similar documents are relevant%s",
            100 * share,
            alone,
        )

    @property
    def _least_reached(self) -> int:
        return min(_LEAST_REACHED, self.options.least_queries)

    def fold(self, block: Candidates) -> Int64s:
        """Fold of each row of a block, [Q]; queries of one text share a fold."""
        texts = [self.material.query_texts[str(query)] for query in block.query_ids]
        return fold_of(texts, self.options.folds, self.seed)

    def _hidden(self, shards: CandidateShards, several: int) -> Examples | None:
        """Gather hidden positives that retrieval would have found, and the candidates beside them."""

        def parts() -> Iterator[tuple[Candidates, Float32s, Int64s]]:
            for block in ahead(shards.only("dense")):
                some = self._sample(block, several)
                hidden, _, _ = hide(some, self.options.depth, self.options.hidden, self.seed)
                hidden = gather(hidden.take(reached(hidden.columns["dense"])), self.material)
                yield hidden, features(hidden), self.fold(hidden)

        return examples(parts())

    def _sample(self, block: Candidates, queries: int, most: int | None = None) -> Candidates:
        """Rows to learn from: about ``most``, or ``most_queries``, of the given number, whatever the shards."""
        nothing = np.zeros((len(block), 1), np.int32)
        draws = seeds.uniform(self.seed, "judging/fused", block.query_ids.tolist(), nothing)[:, 0]
        return block.take(draws * queries < (most or self.options.most_queries))

    def _learn(self, seen: Examples) -> None:
        from sklearn.metrics import roc_auc_score

        centre = self._shipped
        standard = replace(seen, values=centre.standardised(seen.values))
        base = base_rate(self.encoder, self.without)
        options = self.options

        def without(number: int) -> Contaminated:
            others = seen.fold != number
            learnt = standard.take(others)
            if len(np.unique(learnt.labelled)) < 2:
                raise AnmiError(
                    f"{options.folds} folds leave no hidden positive to learn from; lower"
                    " denoising.fused.folds or use mode: transfer"
                )
            chances = np.nan_to_num(centre(seen.values[others]))
            found = float(np.average(chances, weights=learnt.weights * ~learnt.labelled))
            # What the shipped coefficients find may be far too little; see anmi.judging.prior.
            expected = min(max(found, base), 0.5)
            return fit_contaminated(learnt, np.array(centre.coefficients), options.ridge, expected)

        chance = np.zeros(len(seen.values))
        shares = []
        for number, found in enumerate(
            in_threads(without, range(self.options.folds), os.cpu_count() or 1)
        ):
            model = replace(centre, coefficients=found.coefficients, intercept=found.intercept)
            held = seen.fold == number
            self.models.append(model)
            shares.append(found.share)
            # Of being labelled, both kinds weighing the same: f₁ / (f₁ + f) with f₁ / f = relevant
            # / share.
            relevant = model(seen.values[held])
            chance[held] = relevant / (relevant + found.share)
        share = float(np.mean(shares))
        log.info(
            "fused judge: about %.2g %% of the most similar unlabelled documents are relevant",
            100 * share,
        )
        method = (
            "hidden positives against unlabelled candidates, each query's of the same weight,"
            " cross-fitted"
        )
        judged = {
            "auc": float(roc_auc_score(seen.labelled, chance, sample_weight=seen.weights)),
            "reliability": reliability(chance, seen.labelled, weights=seen.weights),
            "method": method,
        }
        self.summary |= {
            "mode": "hidden",
            "hidden_positives": int(seen.labelled.sum()),
            "estimated_prior": share,
            "judges": {"fused": judged},
        }

    def probability(self, block: Candidates) -> Float64s:
        """P(relevant) of the candidates of a block that has its evidence, [Q, M]."""
        values = features(block)
        if len(self.models) == 1:
            return self.models[0](values)
        result = np.full(block.documents.shape, np.nan)
        fold = self.fold(block)
        for number, model in enumerate(self.models):
            result[fold == number] = model(values[fold == number])
        return result

    def __call__(self, block: Candidates) -> Candidates:
        """Return the block with its evidence, ``p_evidence``, and ``p_heldout`` of positives that can be hidden.

        ``p_heldout`` is what a known positive would be given were it an unlabelled candidate, by
        coefficients that did not see its query.
        """
        held = np.full(block.positives.shape, np.nan, np.float32)
        hidden, row, place = hide(block, 0)
        if len(hidden):
            held[row, place] = self.probability(gather(hidden, self.material))[:, 0]
        block = gather(block, self.material)
        probability = np.where(block.filled, self.probability(block), np.nan)
        if self.clustered:
            group = clusters(block.columns["likeness_terms"])
            probability = np.where(group, np.fmax(probability, _AS_LIKELY), probability)
        return block.with_columns(
            {"p_evidence": probability}, {"p_evidence": held, "p_heldout": held}
        )


def _inputs(blocks: list[Candidates]) -> Float32s:
    """Inputs of the judge of the candidates of blocks, float32 [n, K]."""
    parts = [features(block)[block.filled] for block in blocks]
    return np.concatenate([np.zeros((0, len(FEATURES)), np.float32), *parts])


def contributions(block: Candidates, summary: dict[str, Any], fold: int = 0) -> dict[str, Float64s]:
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
    parts = model.contributions(features(block))
    return {kind: part for kind, part in parts.items() if kind in block.columns}
