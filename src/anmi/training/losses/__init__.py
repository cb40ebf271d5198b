"""Losses on similarities: ``loss(positive [B], negative [B, N], log_weights [B, N]) -> [B]``.

Plain ``nn.Module`` objects that know neither encoders nor batches; see :mod:`anmi.training.batch` for how the columns
and weights of a batch come about.
"""

from __future__ import annotations

from torch import nn

from anmi.errors import AnmiError
from anmi.training.losses.debiased import DebiasedContrastive
from anmi.training.losses.infonce import WeightedInfoNCE
from anmi.training.options import TrainingOptions
from anmi.training.temperature import Temperature

__all__ = ["DebiasedContrastive", "WeightedInfoNCE", "build_loss"]


def build_loss(options: TrainingOptions) -> nn.Module:
    """Return the loss that ``options`` names, with its temperature as ``loss.temperature``."""
    temperature = Temperature(options.temperature, learnable=options.learnable_temperature)
    if options.loss == "debiased":
        if options.tau_plus is None:
            raise AnmiError("the debiased loss needs tau_plus as a number: no corpus is at hand to estimate it from")
        return DebiasedContrastive(temperature, options.tau_plus, options.debiased_form)
    return WeightedInfoNCE(temperature)
