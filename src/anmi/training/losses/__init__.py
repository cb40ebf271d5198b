"""Losses: ``loss(positive [B], documents [B, N], log_weights [B, N], facts) -> [B]``.

Plain ``nn.Module`` objects that know neither encoders nor batches; see :mod:`anmi.training.batch`
for how the columns and weights of a batch come about. A document that is no negative of a row has a
log-weight of -inf there; so has the row's own positive, which is a column like any other.

A :class:`~anmi.training.losses.common.Loss` with a temperature has the module ``temperature``, by
whose value similarities are divided.

Gradient caching, by which a batch of any size takes the memory of one pass, is no matter of the
loss: see ``recompute`` of :class:`~anmi.training.objective.ContrastiveObjective`.
"""

from __future__ import annotations

from typing import Final

import torch

from anmi.training import parts
from anmi.training.losses.around import DrawnBySimAns, HardnessAdaptive
from anmi.training.losses.common import Loss
from anmi.training.losses.contrastive import (
    DebiasedContrastive,
    Triplet,
    WeightedInfoNCE,
)
from anmi.training.losses.judged import Distillation, EntityClassification, Hybrid
from anmi.training.losses.temperature import build_temperature
from anmi.training.options import TrainingOptions

LOSSES: Final[dict[str, type[Loss]]] = {
    "infonce": WeightedInfoNCE,
    "hybrid": Hybrid,
    "entity": EntityClassification,
    "debiased": DebiasedContrastive,
    "triplet": Triplet,
    "distillation": Distillation,
}


def build_loss(options: TrainingOptions, dimensions: int | None = None, seed: int = 0) -> Loss:
    """Return the loss that ``options`` describe.

    What is to be estimated from the data must have been. First weights of small networks are drawn
    by the seed, whatever was drawn before and is drawn later.

    Raises
    ------
    AnmiError
        The loss cannot be had with these options.
    """
    size = dimensions or 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        temperature = build_temperature(options.temperature, size)
        loss = LOSSES[options.loss.kind](temperature, options.loss, size)
        if isinstance(options.draw, parts.SimAnsDraw):
            return DrawnBySimAns(loss, options.draw)
        return (
            HardnessAdaptive(loss, options.hardness, size)
            if options.hardness.kind == "hans"
            else loss
        )
