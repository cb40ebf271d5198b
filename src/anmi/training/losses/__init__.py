"""Losses on similarities: ``loss(positive [B], documents [B, N], log_weights [B, N], facts) -> [B]``.

Plain ``nn.Module`` objects that know neither encoders nor batches; see :mod:`anmi.training.batch` for how the columns
and weights of a batch come about. A document that is no negative of a row has a log-weight of -inf there; so has the
row's own positive, which is a column like any other.

A :class:`~anmi.training.losses.common.Loss` with a temperature has the module ``temperature``, by whose value
similarities are divided.

Gradient caching, by which a batch of any size takes the memory of one pass, is no matter of the loss: see ``recompute``
of :class:`~anmi.training.objective.ContrastiveObjective`.
"""

from __future__ import annotations

import torch

from anmi.errors import AnmiError
from anmi.training import parts
from anmi.training.losses.adaptive import HardnessAdaptive
from anmi.training.losses.common import Loss
from anmi.training.losses.contrastive import (
    DebiasedContrastive,
    HardDebiasedContrastive,
    TauPlus,
    Triplet,
    WeightedInfoNCE,
)  # fmt: skip
from anmi.training.losses.drawn import DrawnBySimAns, LearnableSimAns
from anmi.training.losses.judged import Distillation, EntityClassification, Hybrid
from anmi.training.losses.temperature import build_temperature
from anmi.training.options import TrainingOptions


def build_loss(options: TrainingOptions, dimensions: int | None = None, seed: int = 0) -> Loss:
    """Return the loss that ``options`` describe.

    What is to be estimated from the data must have been. First weights of small networks are drawn by the seed,
    whatever was drawn before and is drawn later.

    Raises
    ------
    AnmiError
        The loss cannot be had with these options.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        loss = _build(options, dimensions)
        if isinstance(draw := options.draw, parts.SimAnsDraw):
            a, b = (1.0, 1.5) if draw.form == "rank" else (0.5, 0.0)
            return DrawnBySimAns(loss, LearnableSimAns(a, b, form=draw.form), draw.reads[0])
        if not isinstance(options.hardness, parts.HansOptions):
            return loss
        return HardnessAdaptive(loss, options.hardness, dimensions or 0)


def _build(options: TrainingOptions, dimensions: int | None) -> Loss:
    temperature = build_temperature(options.temperature, dimensions)
    made: Loss = WeightedInfoNCE(temperature)
    match options.loss:
        case parts.TripletOptions() as loss:
            made = Triplet(loss.margin)
        case parts.HybridOptions() as loss:
            made = Hybrid(temperature, loss.alpha, raw=loss.targets == "raw")
        case parts.HardDebiasedOptions() as loss:
            made = HardDebiasedContrastive(temperature, _tau_plus(loss), loss.form, loss.beta)
        case parts.DebiasedOptions() as loss:
            made = DebiasedContrastive(temperature, _tau_plus(loss), loss.form)
        case parts.DistillationOptions() as loss:
            made = Distillation(temperature, loss.column, loss.share, loss.label_temperature)
        case parts.EntityOptions() as loss:
            made = EntityClassification(temperature, dimensions or 0, loss.share)
    return made


def _tau_plus(options: parts.DebiasedOptions) -> TauPlus:
    if not isinstance(options.tau_plus, float):
        raise AnmiError("the debiased loss needs tau_plus as a number: no corpus is at hand to estimate it from")
    if options.learned and options.tau_plus == 0.0:
        raise AnmiError(
            "tau_plus is to be learned and starts at 0 (given, or estimated where no negative was judged relevant), "
            "where its logit is infinite: give it a small number, or do not learn it"
        )
    return TauPlus(options.tau_plus, learnable=options.learned, prior_strength=options.prior_strength)
