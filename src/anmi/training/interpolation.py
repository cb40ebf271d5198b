"""Weights between the untrained and the trained encoder (WiSE-FT, arXiv 2109.01903)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import torch
from torch import nn

logger = logging.getLogger(__name__)
# Tried from the trained weights down; the first of equals is taken.
SHARES: Final = (1.0, 0.75, 0.5, 0.25)


def interpolate(model: nn.Module, before: Mapping[str, torch.Tensor], share: float) -> None:
    """Set every parameter to θ₀ + α (θ − θ₀), where θ₀ are those ``before`` training and α is ``share``, in [0, 1].

    Examples
    --------
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 3.0)
    >>> interpolate(model, {"weight": torch.tensor([[1.0]])}, 0.25)
    >>> model.weight.item()
    1.5
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.lerp(before[name].to(weight), weight, share))


def choose_share(
    model: nn.Module,
    before: Mapping[str, torch.Tensor],
    wanted: float | Literal["dev"],
    evaluate_dev: Callable[[Any], float] | None,
    known: float | None,
) -> tuple[float, dict[str, float]]:
    """Interpolate ``model`` in place; return the share α of the trained weights and what each share got on dev.

    Parameters
    ----------
    model, before
        The trained model, and its parameters before training.
    wanted
        α, or ``dev`` for the best of :data:`SHARES` there.
    evaluate_dev
        Scores a model on dev, larger is better. Without it, and where ``known`` is None, ``dev`` keeps the trained
        weights.
    known
        What the first of two passes chose.
    """
    if wanted != "dev" or known is not None:
        share = float(known if wanted == "dev" and known is not None else wanted)
        if share < 1:
            interpolate(model, before, share)
        return share, {}
    if evaluate_dev is None:
        return 1.0, {}
    trained = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    measured: dict[float, float] = {}
    for share in SHARES:
        interpolate(model, before, share)
        model.eval()
        measured[share] = float(evaluate_dev(model))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(trained[name])
    best = max(SHARES, key=lambda share: measured[share])
    interpolate(model, before, best)
    logger.info("Dev chose %g of the trained weights, the rest is the untrained encoder", best)
    return best, {str(share): value for share, value in measured.items()}
