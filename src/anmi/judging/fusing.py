"""The fused judge at work on a collection: which coefficients it uses, and the columns it adds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from anmi.candidates import PADDING, Candidates, CandidateShards
from anmi.errors import AnmiError
from anmi.judging.calibration import reliability
from anmi.judging.evidence import Material, gather
from anmi.judging.fused import FusedModel, features, fit_model, shipped, transferred
from anmi.judging.hidden import averaged, hidden_evidence
from anmi.judging.teacher import fold_of

log = logging.getLogger(__name__)


class FusedOptions(BaseModel):
    """Where the coefficients of the fused judge come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["auto", "hidden", "transfer"] = Field(
        "auto",
        description="`hidden` refines the coefficients on the collection's own queries with several positives, "
        "`transfer` uses the shipped ones; `auto` takes hidden where there are enough such queries.",
    )
    without: str | None = Field(
        "auto",
        description="Collection whose truth is to have had no part in the shipped coefficients, such as `scifact`; "
        "for measuring on one of the six that they were fitted on. auto: leaves out the built-in `api_docs` where it "
        "is what is mined, and nothing for collections that are read from a place, whose name says nothing of what is "
        "there. None: leaves out nothing.",
    )
    least_queries: int = Field(
        200, ge=1, description="Queries with several positives from which `auto` learns; fewer are mostly noise."
    )
    folds: int = Field(3, ge=2, le=20, description="A query is never judged by coefficients fitted on it.")
    ridge: float = Field(
        0.003, ge=0, description="Pull towards the shipped coefficients; weak, since they suit no collection exactly."
    )
    depth: int = Field(
        100, ge=1, description="Candidates per query that are learned from; more are ever less like a false negative."
    )
    label_quantile: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Quantile of the hidden positives' probabilities that is taken for certain relevance, from which "
        "follows which share of the relevant documents is labelled (Elkan & Noto 2008, whose third estimator is 1).",
    )


def left_out(without: str | None, collection: str) -> str | None:
    """Return which collection's truth had no part in the coefficients; None where all six had.

    Parameters
    ----------
    without
        Of :class:`FusedOptions`.
    collection
        What is mined, as the parameter ``collection`` says it.

    Examples
    --------
    >>> left_out("auto", "api_docs"), left_out("auto", "beir:data/scifact"), left_out("scifact", "beir:data/scifact")
    ('api_docs', None, 'scifact')
    """
    if without != "auto":
        return without
    return collection if collection in shipped()["without"] else None


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
        What is mined, as the parameter ``collection`` says it; decides what ``without: auto`` leaves out.
    """

    options: FusedOptions
    material: Material
    encoder: str
    seed: int
    collection: str = ""
    models: list[FusedModel] = field(default_factory=list)
    queries: int = 0
    summary: dict[str, Any] = field(default_factory=dict)

    def fit(self, shards: CandidateShards) -> None:
        """Choose the coefficients, and refine them on hidden positives where there are enough.

        Raises
        ------
        AnmiError
            ``mode: hidden`` with too few queries that have several positives.
        """
        without = left_out(self.options.without, self.collection)
        shared = transferred(self.encoder, without)
        self.models, self.queries, several = [], 0, 0
        for block in shards.only():
            self.queries += len(block)
            several += int(((block.positives != PADDING).sum(axis=1) > 1).sum())
        enough = several >= (self.options.least_queries if self.options.mode == "auto" else self.options.folds)
        if self.options.mode == "hidden" and not enough:
            raise AnmiError(
                f"denoising.fused.mode is hidden, but only {several} queries have several positives, fewer than the "
                f"{self.options.folds} folds; use mode: transfer, or auto"
            )
        self.summary = {
            "options": self.options.model_dump(mode="json"),
            "without": without,
            "fitted_on": [name for name in shipped()["without"] if name != without],
            "queries_with_several_positives": several,
        }
        if self.options.mode == "transfer" or not enough:
            self.models = [shared]
            known = self.encoder in shipped()["models"]
            self.summary |= {"mode": "transfer", "provenance": shipped()["provenance"]}
            log.info(
                "fused judge: shipped coefficients%s, since %s",
                "" if known else f" without vectors (encoder {self.encoder} was not among those fitted)",
                "mode is transfer"
                if self.options.mode == "transfer"
                else f"{several} queries with several positives are fewer than {self.options.least_queries}",
            )
        else:
            self._learn(shards, shared)
            log.info("fused judge: coefficients refined on %d queries with several positives", several)
        self.summary["models"] = [model.as_dict() for model in self.models]

    def restore(self, summary: dict[str, Any]) -> None:
        """Judge by the coefficients of an earlier run, of which the summary is given."""
        self.models = [FusedModel.from_dict(model) for model in summary["models"]]
        self.summary = summary

    def fold(self, block: Candidates) -> NDArray[np.int64]:
        """Fold of each row of a block, [Q]; queries of one text share a fold."""
        texts = [self.material.query_texts[str(query)] for query in block.query_ids]
        return fold_of(texts, self.options.folds, self.seed)

    def _learn(self, shards: CandidateShards, centre: FusedModel) -> None:
        inputs, labels, folds = [], [], []
        for block in shards:
            hidden, planted, _ = hidden_evidence(block, self.material, self.options.depth)
            if len(hidden) == 0:
                continue
            row, slot = np.nonzero(hidden.filled)
            inputs.append(features(hidden)[row, slot])
            labels.append(planted[row, slot])
            folds.append(self.fold(hidden)[row])
        value, fold = np.concatenate(inputs), np.concatenate(folds)
        label: NDArray[np.bool_] = np.concatenate(labels)
        probability = np.zeros(len(label))
        for number in range(self.options.folds):
            seen, held = fold != number, fold == number
            if len(np.unique(label[seen])) < 2:
                raise AnmiError(
                    f"{self.options.folds} folds leave no hidden positive to learn from; lower denoising.fused.folds "
                    "or use mode: transfer"
                )
            nothing = np.zeros(int(seen.sum()), np.int64)
            model = fit_model(value[seen], label[seen], nothing, self.options.ridge, centre)
            certain = float(np.quantile(model(value[seen])[label[seen]], self.options.label_quantile))
            model = FusedModel(
                model.mean, model.scale, model.coefficients, model.intercept, min(max(certain, 1e-3), 1.0)
            )
            self.models.append(model)
            probability[held] = model(value[held])
        self._summarise(probability, label)

    def _summarise(self, probability: NDArray[np.float64], label: NDArray[np.bool_]) -> None:
        from sklearn.metrics import roc_auc_score

        judges = {
            "fused": {
                "auc": float(roc_auc_score(label, probability)),
                "reliability": reliability(probability, label),
                "method": "hidden positives against unlabelled candidates, cross-fitted",
            }
        }
        self.summary |= {"mode": "hidden", "hidden_positives": int(label.sum()), "judges": judges}

    def probability(self, block: Candidates) -> NDArray[np.float64]:
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

        ``p_heldout`` is what a known positive would be given were it an unlabelled candidate, by coefficients that
        did not see its query.
        """
        if not self.models:
            raise AnmiError("the fused judge was not fitted")
        held = np.full(block.positives.shape, np.nan, np.float32)
        hidden, label, origin = hidden_evidence(block, self.material, 0)
        if len(hidden):
            held = averaged(block, self.probability(hidden), hidden, label, origin)
        block = gather(block, self.material)
        probability = np.where(block.filled, self.probability(block), np.nan)
        return block.with_columns({"p_evidence": probability}, {"p_evidence": held, "p_heldout": held})


def contributions(block: Candidates, summary: dict[str, Any], fold: int = 0) -> dict[str, NDArray[np.float64]]:
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
    return FusedModel.from_dict(models[min(fold, len(models) - 1)]).contributions(features(block))
