"""From options to a loss."""

from __future__ import annotations

from torch import nn

from anmi.errors import AnmiError
from anmi.training.losses.debiased import DebiasedContrastive
from anmi.training.losses.infonce import WeightedInfoNCE
from anmi.training.options import TrainingOptions
from anmi.training.options.losses import DebiasedOptions, InfoNCEOptions
from anmi.training.temperature import build_temperature


def build_loss(options: TrainingOptions, dimensions: int | None = None, seed: int = 0) -> nn.Module:
    """Return the loss that ``options`` describe.

    Parameters
    ----------
    options
        Of the training; what is to be estimated from the data must have been.
    dimensions
        Of the embeddings, for what reads them.
    """
    temperature = build_temperature(options.temperature, dimensions)
    match options.loss:
        case InfoNCEOptions():
            return WeightedInfoNCE(temperature)
        case DebiasedOptions(tau_plus=float(tau_plus), form=form):
            return DebiasedContrastive(temperature, tau_plus, form)
        case DebiasedOptions():
            raise AnmiError("the debiased loss needs tau_plus as a number: no corpus is at hand to estimate it from")
    raise ValueError(f"{options.loss!r} is no loss")
