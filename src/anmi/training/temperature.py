"""The temperature of a contrastive loss: fixed, or learned as log t."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn

LOWEST: Final = 0.01
HIGHEST: Final = 1.0


class Temperature(nn.Module):
    """A positive scalar t by which similarities are divided.

    Parameters
    ----------
    initial
        Start value, in [0.01, 1].
    learnable
        Learn log t by gradient descent. The parameter is called ``log_t``; the trainer gives it a learning rate of its
        own and no weight decay, which would pull t towards 1.

    Examples
    --------
    >>> round(float(Temperature(0.07)()), 4)
    0.07
    """

    log_t: Tensor

    def __init__(self, initial: float = 0.07, *, learnable: bool = False) -> None:
        super().__init__()
        if not LOWEST <= initial <= HIGHEST:
            raise ValueError(f"temperature {initial} lies outside [{LOWEST}, {HIGHEST}]")
        start = torch.tensor(math.log(initial))
        self.learnable = learnable
        if learnable:
            self.log_t = nn.Parameter(start)
        else:
            self.register_buffer("log_t", start)

    def forward(self) -> Tensor:
        """Return t as a tensor without dimensions, within [0.01, 1]."""
        if self.learnable:
            # The parameter itself is projected: clamping only the value returned would leave a parameter that has
            # stepped outside without gradient, and so stuck there for ever.
            with torch.no_grad():
                self.log_t.clamp_(math.log(LOWEST), math.log(HIGHEST))
        return self.log_t.exp()
