"""From options to a loss."""

from __future__ import annotations

import torch
from torch import nn

from anmi.errors import AnmiError
from anmi.training.losses.adaptive import HardnessAdaptive
from anmi.training.losses.debiased import DebiasedContrastive
from anmi.training.losses.distillation import Distillation
from anmi.training.losses.drawn import DrawnBySimAns
from anmi.training.losses.entity import EntityClassification
from anmi.training.losses.hard_debiased import HardDebiasedContrastive
from anmi.training.losses.hybrid import Hybrid
from anmi.training.losses.infonce import WeightedInfoNCE
from anmi.training.losses.margin_mse import MarginMSE
from anmi.training.losses.pooled import PooledInfoNCE
from anmi.training.losses.tau_plus import TauPlus
from anmi.training.losses.triplet import Triplet
from anmi.training.options import TrainingOptions
from anmi.training.options.drawing import SimAnsDraw
from anmi.training.options.hardness import HansOptions
from anmi.training.options.losses import (
    DebiasedOptions,
    DistillationOptions,
    EntityOptions,
    HardDebiasedOptions,
    HybridOptions,
    InfoNCEOptions,
    MarginMSEOptions,
    PooledOptions,
    TauPlusOptions,
    TripletOptions,
)
from anmi.training.options.part import PartOptions
from anmi.training.simans import LearnableSimAns
from anmi.training.temperature import build_temperature


def build_loss(options: TrainingOptions, dimensions: int | None = None, seed: int = 0) -> nn.Module:
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
        if isinstance(options.draw, SimAnsDraw):
            return _drawn(loss, options.draw)
        if not isinstance(options.hardness, HansOptions):
            return loss
        if dimensions is None:
            raise AnmiError("training by hardness needs the number of dimensions of the embeddings")
        return HardnessAdaptive(loss, options.hardness, dimensions)


def _drawn(loss: nn.Module, options: SimAnsDraw) -> DrawnBySimAns:
    a, b = (1.0, 1.5) if options.form == "rank" else (0.5, 0.0)
    drawing = LearnableSimAns(options.a or a, b if options.b is None else options.b, form=options.form)
    return DrawnBySimAns(loss, drawing, options.relaxation, options.reads[0])


def _build(options: TrainingOptions, dimensions: int | None) -> nn.Module:
    loss = options.loss
    if isinstance(loss, TripletOptions):
        return Triplet(loss.margin)
    if isinstance(loss, MarginMSEOptions):
        return MarginMSE(loss.column, loss.scale)
    temperature = build_temperature(options.temperature, dimensions)
    if isinstance(loss, EntityOptions):
        if dimensions is None:
            raise AnmiError("the loss of entities needs the number of dimensions of the embeddings")
        return EntityClassification(temperature, dimensions, loss.share)
    return _with_temperature(loss, temperature)


def _with_temperature(loss: PartOptions, temperature: nn.Module) -> nn.Module:
    match loss:
        case InfoNCEOptions():
            return WeightedInfoNCE(temperature)
        case PooledOptions():
            return PooledInfoNCE(temperature, loss.share)
        case HybridOptions():
            return Hybrid(temperature, loss.alpha, loss.hidden)
        case HardDebiasedOptions():
            return HardDebiasedContrastive(temperature, _tau_plus(loss), loss.form, loss.beta)
        case DebiasedOptions():
            return DebiasedContrastive(temperature, _tau_plus(loss), loss.form)
        case DistillationOptions():
            return Distillation(temperature, loss.column, loss.share, loss.label_temperature, loss.uncertain)
    raise ValueError(f"{loss!r} is no loss")


def _tau_plus(options: TauPlusOptions) -> TauPlus:
    if not isinstance(options.tau_plus, float):
        raise AnmiError("the debiased loss needs tau_plus as a number: no corpus is at hand to estimate it from")
    if options.learned and options.tau_plus == 0.0:
        raise AnmiError(
            "tau_plus is to be learned and starts at 0 (given, or estimated where no negative was judged relevant), "
            "where its logit is infinite: give it a small number, or do not learn it"
        )
    return TauPlus(options.tau_plus, learnable=options.learned, prior_strength=options.prior_strength)
